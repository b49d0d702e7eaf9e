"""Both model runners of vLLM on a GPU against transformers, through speculators' own generator.

    PYTHONPATH=src python benchmarks/gpu_model_runners.py --out FILE [--only LABEL ...]

A tiny Llama and a Kimi-K2.5 with latent attention's real head sizes (512 + 64 for the latent, 128 + 64 and 128 for a
head) run under ``VLLM_USE_V2_MODEL_RUNNER`` 0 and 1: forty prompts of unequal lengths, those of up to 299 tokens in
chunks of at most 128. Each state is compared with transformers' in float32. Latent attention's kernels take bfloat16
alone; what that dtype costs by itself is shown beside it: transformers in bfloat16 against transformers in float32, on
the same GPU. With latent attention disabled the same Kimi runs in float32.

Writes a JSON file after each engine; each runs in a process of its own. Exit code 1 if a float32 engine's error is
above 2e-5, a bfloat16 one's above twice what the dtype costs, the runner was not the one asked for, or one failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_int4_and_serving import KIMI

TOLERANCE = 2e-5
#: Attention and expert kernels sum in another order than transformers: twice its own rounding is allowed.
ROUNDING = 2.0
BUDGET, MAX_LEN, PROMPTS = 128, 300, 40
LENGTHS = (1, 299, 15, 17, 2, 130, 33, 16, 257, 1, 64, 128)
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"num_hidden_layers": 6, "hidden_size": 512},
    "kimi_k25": {**KIMI, "num_hidden_layers": 6},
}
LAYERS = [3, 0, 5, 1]
#: Label: kind of model, dtype, and whether latent attention is on.
ENGINES = {
    "llama, float32": ("llama", "float32", False),
    "llama, bfloat16": ("llama", "bfloat16", False),
    "kimi, MLA off, float32": ("kimi_k25", "float32", False),
    "kimi, MLA on, bfloat16": ("kimi_k25", "bfloat16", True),
}


def capture(job: dict[str, Any]) -> None:
    """Child process: states of every prompt from a generator, and what its worker runs on."""
    import speculators_compat  # noqa: F401 - first, as the README says

    import torch  # isort: skip
    from speculators.data_generation import VllmHiddenStatesGenerator  # isort: skip

    generator = VllmHiddenStatesGenerator(
        job["model"],
        LAYERS,
        max_model_len=MAX_LEN,
        max_num_batched_tokens=BUDGET,
        dtype=job["dtype"],
        gpu_memory_utilization=job["memory"],
    )
    results = generator.generate(job["prompts"])
    if [result["input_ids"].tolist() for result in results] != job["prompts"]:
        raise RuntimeError("results are not in the order of the prompts")
    facts = generator.executor.collective_rpc(look)[0]
    states = [[state.float().cpu() for state in result["hidden_states"]] for result in results]
    torch.save({"states": states, "facts": facts}, job["result"])
    generator.close()


def look(worker: Any) -> dict[str, Any]:
    """Which runner and which attention the worker uses, as its objects say."""
    from speculators_compat.capture.decoder import find_decoder

    worker = getattr(worker, "worker", worker)
    layer = find_decoder(worker.model_runner.model)[0].layers[1]
    backends = {
        value.__name__ if isinstance(value, type) else type(value).__name__
        for module in layer.modules()
        for value in (getattr(module, "attn_backend", None), getattr(module, "impl", None))
        if value is not None
    }
    return {"runner": type(worker.model_runner).__module__, "attention": sorted(backends)}


def run_capture(label: str, v2: bool, model: Path, prompts: list[list[int]], memory: float) -> dict[str, Any]:
    """Run :func:`capture` in a process of its own."""
    import torch

    _, dtype, mla = ENGINES[label]
    with tempfile.TemporaryDirectory() as scratch:
        job = {"model": str(model), "prompts": prompts, "dtype": dtype, "memory": memory, "result": f"{scratch}/s.pt"}
        # In float32 vLLM's attention is Triton's, whose products round to TF32 (an error of 6e-4) unless told not to.
        precision = {"TRITON_F32_DEFAULT": "ieee"} if dtype == "float32" else {}
        runner = {"VLLM_USE_V2_MODEL_RUNNER": str(int(v2)), "VLLM_MLA_DISABLE": str(int(not mla))}
        env = {**os.environ, **precision, **runner}
        started = time.monotonic()
        subprocess.run([sys.executable, __file__, "--job", json.dumps(job)], env=env, check=True, timeout=400)
        found: dict[str, Any] = torch.load(job["result"], weights_only=True)
        found["facts"]["seconds"] = round(time.monotonic() - started, 1)
        return found


def own_rounding(
    model: Path, prompts: list[list[int]], expected: list[list[Any]], layers: Sequence[int] = tuple(LAYERS)
) -> float:
    """Error of transformers in bfloat16 against itself in float32: what the dtype costs, worst layer of a prompt."""
    import torch

    from speculators_compat.testing.reference import load_reference_model

    device = "cuda" if torch.cuda.is_available() else "cpu"
    reference = load_reference_model(model).to(device, torch.bfloat16)
    seen: dict[int, Any] = {}

    def keep(layer: int) -> Any:
        def hook(module: object, args: object, output: Any) -> None:
            seen[layer] = (output[0] if isinstance(output, tuple) else output)[0].float().cpu()

        return hook

    for layer in layers:
        reference.model.layers[layer].register_forward_hook(keep(layer))
    states = []
    for prompt in prompts:
        with torch.inference_mode():
            reference.model(input_ids=torch.tensor([prompt], device=device), use_cache=False)
        states.append([seen[layer] for layer in layers])
    return worst(states, expected)


def worst(actual: list[list[Any]], expected: list[list[Any]]) -> float:
    """Largest relative L2 error of any layer of any prompt."""
    from speculators_compat.testing import relative_error

    pairs = [pair for one, other in zip(actual, expected, strict=True) for pair in zip(one, other, strict=True)]
    return float(f"{max(relative_error(*pair) for pair in pairs):.2e}")


def compare(label: str, options: argparse.Namespace, root: Path) -> dict[str, Any]:
    """One model and dtype under both runners."""
    from speculators_compat.testing import make_model, random_prompts, reference_hidden_states

    kind, dtype, _ = ENGINES[label]
    model = root / kind
    if not model.exists():
        make_model(kind, model, **SHAPES[kind])
    text = json.loads((model / "config.json").read_text())
    vocabulary = text.get("text_config", text)["vocab_size"]
    lengths = [LENGTHS[index % len(LENGTHS)] for index in range(PROMPTS)]
    prompts = random_prompts(vocabulary - 256, lengths)
    expected = reference_hidden_states(model, prompts, LAYERS)
    limit = TOLERANCE
    record: dict[str, Any] = {}
    if dtype == "bfloat16":
        record["transformers in bfloat16"] = own_rounding(model, prompts, expected)
        limit = ROUNDING * record["transformers in bfloat16"]
    states = {}
    for v2 in (False, True):
        name = "V2" if v2 else "V1"
        try:
            found = run_capture(label, v2, model, prompts, options.memory)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            record[name] = {"failed": f"{type(error).__name__}, exit code {getattr(error, 'returncode', None)}"}
            continue
        states[name] = found["states"]
        record[name] = {"error": worst(found["states"], expected), **found["facts"]}
        right_runner = ("gpu.model_runner" in found["facts"]["runner"]) is v2
        record[name]["passed"] = bool(right_runner and record[name]["error"] <= limit)
    if len(states) == 2:
        record["V2 against V1"] = worst(states["V2"], states["V1"])
    record["limit"] = float(f"{limit:.2e}")
    return record


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/model_runners.json"))
    parser.add_argument("--only", nargs="*", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--memory", type=float, default=0.2, help="share of the GPU's memory for each engine")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        capture(json.loads(options.job))
        return 0
    from speculators_compat import versions

    names = ("vllm", "speculators", "torch", "transformers")
    installed = {name: found.version for name in names if (found := versions.installed(name))}
    result: dict[str, Any] = {"versions": installed, "shapes": SHAPES, "layers": LAYERS, "prompts": PROMPTS}
    result |= {"lengths": LENGTHS, "tokens a step": BUDGET, "engines": {}}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="runners-"))
    for label in options.only:
        result["engines"][label] = compare(label, options, root)
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(label, json.dumps(result["engines"][label]), flush=True)
    runs = [engine.get(name, {}) for engine in result["engines"].values() for name in ("V1", "V2")]
    return int(not all(run.get("passed") for run in runs))


if __name__ == "__main__":
    sys.exit(main())
