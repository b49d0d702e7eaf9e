"""INT4 capture and serving on a GPU, beside vLLM alone: no speculators, no network.

    PYTHONPATH=src python benchmarks/gpu_int4_and_serving.py --fixtures build/gpu --out DIR [--only int4|serve]

``int4``: a tiny Kimi-K2.5 whose routed experts are stored as the published checkpoint stores them (W4A16, group 32)
and its twin with the same values unpacked run through this package's worker extension, MLA on and off; their states
are compared layer by layer with each other and with transformers in float32. ``serve``: serve-check of the draft that
tools/gpu_fixtures.py made, against an untrained and a shifted head.

Writes ``int4.json`` and ``serve_check.json`` to DIR. Each engine runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

EXTENSION = "speculators_compat.capture.extension.HiddenStatesWorkerExtension"
LENGTHS = (1, 7, 32, 129, 300)
#: Latent attention's GPU kernels take the real model's widths only: 512 + 64 for the latent, 128 + 64 for a head.
KIMI = {
    "num_hidden_layers": 4,
    "hidden_size": 512,
    "num_attention_heads": 16,
    "q_lora_rank": 256,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_experts": 16,
    "experts_per_token": 4,
    "intermediate_size": 1024,
    "moe_intermediate_size": 256,
    "vocab_size": 1024,
}


def capture(job: dict[str, Any]) -> None:
    """Child process: states of every prompt, one prompt in a step, through the worker extension."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the worker in this process: replies need no serialisation
    import torch
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=job["model"],
        dtype=job["dtype"],
        trust_remote_code=True,
        enforce_eager=True,
        enable_prefix_caching=False,
        async_scheduling=False,
        max_model_len=512,
        max_num_batched_tokens=2048,
        gpu_memory_utilization=job["memory"],
        limit_mm_per_prompt=dict.fromkeys(("image", "video", "vision_chunk"), 0),
        skip_mm_profiling=True,
        worker_extension_cls=EXTENSION,
    )
    found = llm.collective_rpc("_setup_hidden_states_capture", args=(job["layers"],))[0]
    sampling = SamplingParams(temperature=0.0, max_tokens=1)
    states = []
    for ids in job["prompts"]:
        llm.collective_rpc("_reset_capture")
        llm.generate([{"prompt_token_ids": ids}], sampling, use_tqdm=False)
        taken = llm.collective_rpc("_take_captured_states", args=(len(ids),))[0]
        if not all(taken["finite"]) or taken["token_ids"].tolist() != ids:
            raise RuntimeError("states are not finite, or belong to other tokens")
        states.append([state.float() for state in taken["states"]])
    torch.save({"states": states, "facts": facts(llm, found)}, job["result"])


def facts(llm: Any, found: dict[str, Any]) -> dict[str, Any]:
    """Which code paths the engine took, as far as its objects say."""
    from speculators_compat.capture.decoder import find_decoder

    def look(worker: Any) -> dict[str, Any]:
        layer = find_decoder(worker.model_runner.model)[0].layers[1]
        names: dict[str, str] = {"runner": type(worker.model_runner).__module__}
        for name, module in layer.named_modules():
            for attribute in ("quant_method", "impl", "attn_backend"):
                value = getattr(module, attribute, None)
                if value is not None and ("expert" in name or "attn" in name):
                    names[f"{name}.{attribute}"] = value.__name__ if isinstance(value, type) else type(value).__name__
        return names

    return {"decoder": found["decoder"], **llm.collective_rpc(look)[0]}


def run_capture(model: Path, prompts: list[list[int]], layers: list[int], mla: bool, options: Any) -> dict[str, Any]:
    """Run :func:`capture` in a process of its own."""
    import torch

    with tempfile.TemporaryDirectory() as scratch:
        job = {
            "model": str(model), "prompts": prompts, "layers": layers, "result": f"{scratch}/states.pt",
            "dtype": options.dtype, "memory": options.memory,
        }  # fmt: skip
        env = {**os.environ, "VLLM_MLA_DISABLE": "0" if mla else "1"}
        started = time.monotonic()
        subprocess.run([sys.executable, __file__, "--job", json.dumps(job)], env=env, check=True)
        result: dict[str, Any] = torch.load(job["result"], weights_only=True)
        result["facts"]["seconds"] = round(time.monotonic() - started, 1)
        return result


def by_layer(actual: list[list[Any]], expected: list[list[Any]]) -> dict[str, Any]:
    """Relative L2 error of each layer: over all tokens, and of the worst prompt."""
    import torch

    from speculators_compat.testing import relative_error

    layers = range(len(actual[0]))
    joined = [[torch.cat([prompt[layer] for prompt in side]) for layer in layers] for side in (actual, expected)]
    return {
        "all_tokens": [round(relative_error(joined[0][layer], joined[1][layer]), 7) for layer in layers],
        "worst_prompt": [
            round(max(relative_error(one[layer], other[layer]) for one, other in zip(actual, expected, strict=True)), 7)
            for layer in layers
        ],
    }


def compare_int4(options: argparse.Namespace) -> dict[str, Any]:
    """INT4 checkpoint, its unpacked twin and transformers, layer by layer."""
    from speculators_compat.testing import make_int4, make_model, random_prompts, reference_hidden_states

    root = Path(tempfile.mkdtemp(prefix="int4-"))
    source = make_model("kimi_k25", root / "source", **KIMI)
    folders = {"int4": make_int4(source, root / "int4", root / "twin"), "twin": root / "twin"}
    layers = list(range(KIMI["num_hidden_layers"]))
    prompts = random_prompts(KIMI["vocab_size"] - 256, LENGTHS)
    reference = reference_hidden_states(root / "twin", prompts, layers)
    unquantised = reference_hidden_states(source, prompts, layers)
    result: dict[str, Any] = {
        "dtype": options.dtype, "lengths": LENGTHS, "shape": KIMI, "layers": layers, "runs": {}, "errors": {},
        "quantisation_itself": by_layer(reference, unquantised),
    }  # fmt: skip
    for mla in options.mla:
        states = {}
        for name in options.checkpoints:
            label = f"{name}, MLA {'on' if mla else 'off'}"
            try:
                found = run_capture(folders[name], prompts, layers, mla, options)
            except subprocess.CalledProcessError as error:
                result["runs"][label] = {"failed": error.returncode}
                continue
            states[name] = found["states"]
            result["runs"][label] = found["facts"]
            result["errors"][f"{label}: against transformers float32"] = by_layer(found["states"], reference)
        if len(states) == 2:
            label = f"int4 against twin, MLA {'on' if mla else 'off'}"
            result["errors"][label] = by_layer(states["int4"], states["twin"])
    return result


def serve(options: argparse.Namespace) -> int:
    """serve-check of the fixtures; its exit code."""
    fixtures = options.fixtures
    command = [
        sys.executable, "-m", "speculators_compat.serve_check", str(fixtures / "draft"),
        "--verifier", str(fixtures / "verifier"), "--prompts", str(fixtures / "prompts.jsonl"), "--num-prompts", "256",
        "--control", "shifted", "--max-tokens", "64", "--dtype", options.dtype,
        "--gpu-memory-utilization", str(options.memory), "--out", str(options.out / "serve_check.json"),
    ]  # fmt: skip
    return subprocess.run(command + options.serve_option, check=False).returncode


def main() -> int:
    """Run what was asked for; the exit code is that of the worst part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fixtures", type=Path, default=Path("build/gpu"))
    parser.add_argument("--out", type=Path, default=Path("build/gpu-results"))
    parser.add_argument("--only", choices=("int4", "serve"))
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--memory", type=float, default=0.3, help="share of the GPU's memory for each engine")
    parser.add_argument("--mla", type=int, nargs="*", default=[1, 0], help="1 on, 0 off")
    parser.add_argument("--checkpoints", nargs="*", default=["int4", "twin"])
    parser.add_argument("--serve-option", action="append", default=[], help="passed on to serve-check")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        capture(json.loads(options.job))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    code = 0
    if options.only != "int4":
        code = serve(options)
    if options.only != "serve":
        result = compare_int4(options)
        (options.out / "int4.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        print(json.dumps({key: result[key] for key in ("runs", "errors", "quantisation_itself")}, indent=2))
        code = code or int(any("failed" in run for run in result["runs"].values()))
    return code


if __name__ == "__main__":
    sys.exit(main())
