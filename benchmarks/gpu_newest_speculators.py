"""Today's speculators on a GPU: Kimi-K2.5 from conversations to a draft, and states beside vLLM's own extraction.

    PYTHONPATH=src python benchmarks/gpu_newest_speculators.py --out FILE [--only NAME ...] [--prefix-caching]

``flow eagle3``, ``flow dflash``: the whole pipeline for a Kimi-K2.5 with latent attention's real head sizes (512 + 64
for the latent, 128 + 64 and 128 for a head). ``native llama``, ``native kimi``: states of unequally long prompts, in
chunks of at most 128 tokens, from our generator, from vLLM's own ``extract_hidden_states`` with its file connector, and
from transformers. ``native llama, shared prefixes``: the same for prompts that begin alike, with vLLM's prefix caching
as it comes or, with ``--prefix-caching``, forced on: ``speculators_compat.server.diagnosis`` names what is wrong.

Writes the JSON file after each part; each engine runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from extraction import wait_for
from gpu_model_runners import LENGTHS, MAX_LEN, PROMPTS, SHAPES, own_rounding, worst

import speculators_compat  # noqa: F401 - before speculators

BUDGET = 128
#: Layers of the native comparison: after layer k. The last one is what a trainer's targets come from.
LAYERS = [1, 3, 4, 5]
#: A draft's inputs and the verifier's last layer.
FLOW_LAYERS = [1, 2, 4, 5]
CONVERSATIONS = 400
SHARED = 96  # tokens that the prompts of the last part begin with
PARTS = ("flow eagle3", "flow dflash", "native llama", "native kimi", "native llama, shared prefixes")


# --- the pipeline ----------------------------------------------------------------------------------------------------


def flow(algorithm: str, root: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The pipeline, each step as a user starts it."""
    import yaml

    from speculators_compat.testing import make_language, make_model

    model = root / "flow-model"
    conversations = root / "conversations.jsonl"
    if not model.exists():
        make_model("kimi_k25", model, **SHAPES["kimi_k25"], dtype="bfloat16")
        make_language(conversations, CONVERSATIONS)
    output = root / algorithm
    config = {
        "model": str(model), "output": str(output), "trust_remote_code": True, "seq_length": 256,
        "layer_ids": FLOW_LAYERS,
        "prepare": {"data": str(conversations), "num_proc": 4},
        "extract": {"gpu_memory_utilization": options.memory},
        "vocab": {"draft_vocab_size": 512},
        "train": {"algorithm": algorithm, "epochs": 4, "lr": 1e-3, "total_seq_len": 1024, "num_workers": 2},
    }  # fmt: skip
    path = root / f"{algorithm}.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    seconds: dict[str, float] = {}
    for step in ("prepare", "extract", "vocab", "train"):
        begun = time.monotonic()
        subprocess.run([sys.executable, "-m", "speculators_compat", step, str(path)], check=True, timeout=400)
        seconds[step] = round(time.monotonic() - begun, 1)
    reports = {step: json.loads((output / "steps" / f"{step}.json").read_text()) for step in seconds}
    return {"seconds": seconds, "train": reports["train"], "samples": reports["extract"]["samples"]}


# --- states ----------------------------------------------------------------------------------------------------------


def native(job: dict[str, Any]) -> None:
    """Child process: states by vLLM's own extraction."""
    import torch
    from safetensors.torch import load_file
    from vllm import LLM, SamplingParams

    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {
            "dtype": job["dtype"], "trust_remote_code": True, "enforce_eager": True, "max_model_len": MAX_LEN,
            "max_num_batched_tokens": job["budget"], "gpu_memory_utilization": job["memory"],
            "speculative_config": {
                "method": "extract_hidden_states", "num_speculative_tokens": 1,
                "draft_model_config": {"hf_config": {
                    "eagle_aux_hidden_state_layer_ids": [layer + 1 for layer in job["layers"]]}},
            },
            "kv_transfer_config": {
                "kv_connector": "ExampleHiddenStatesConnector", "kv_role": "kv_producer",
                "kv_connector_extra_config": {"shared_storage_path": folder},
            },
            **job["options"],
        }  # fmt: skip
        llm = LLM(model=job["model"], **options)
        sampling = SamplingParams(temperature=0.0, max_tokens=1, detokenize=False)
        inputs = [{"prompt_token_ids": ids} for ids in job["prompts"]]
        outputs = llm.generate(inputs, sampling, use_tqdm=False)
        wait_for(Path(folder))
        states, ids = [], []
        for output in outputs:
            content = load_file(output.kv_transfer_params["hidden_states_path"])
            states.append([state.float() for state in content["hidden_states"].unbind(1)])
            ids.append(content["token_ids"].tolist())
        caching = bool(llm.llm_engine.vllm_config.cache_config.enable_prefix_caching)
    torch.save({"states": states, "ids": ids, "facts": {"prefix caching": caching}}, job["result"])


def ours(job: dict[str, Any]) -> None:
    """Child process: states by our generator."""
    import torch
    from speculators.data_generation import VllmHiddenStatesGenerator

    generator = VllmHiddenStatesGenerator(
        job["model"], job["layers"], max_model_len=MAX_LEN, max_num_batched_tokens=BUDGET, dtype=job["dtype"],
        gpu_memory_utilization=job["memory"], trust_remote_code=True,
    )  # fmt: skip
    with generator:
        results = generator.generate(job["prompts"])
        states = [[state.float().cpu() for state in result["hidden_states"]] for result in results]
        ids = [result["input_ids"].tolist() for result in results]
    torch.save({"states": states, "ids": ids, "facts": {}}, job["result"])


CHILDREN = {"native": native, "ours": ours}


def run_child(name: str, job: dict[str, Any], env: dict[str, str]) -> dict[str, Any]:
    """Run one of :data:`CHILDREN` in a process of its own."""
    import torch

    with tempfile.TemporaryDirectory() as scratch:
        job = {**job, "child": name, "result": f"{scratch}/states.pt"}
        begun = time.monotonic()
        command = [sys.executable, __file__, "--job", json.dumps(job)]
        subprocess.run(command, check=True, timeout=280, env={**os.environ, **env})
        found: dict[str, Any] = torch.load(job["result"], weights_only=True)
        found["facts"]["seconds"] = round(time.monotonic() - begun, 1)
        return found


def states_of(kind: str, root: Path, options: argparse.Namespace, shared: bool = False) -> dict[str, Any]:
    """Ours, vLLM's own and transformers', in bfloat16; errors are relative L2, the worst layer of any prompt."""
    from speculators_compat.testing import make_model, random_prompts, reference_hidden_states

    model = root / kind
    if not model.exists():
        make_model(kind, model, **SHAPES[kind], dtype="bfloat16")
    config = json.loads((model / "config.json").read_text())
    vocabulary = config.get("text_config", config)["vocab_size"] - 256
    prompts = random_prompts(vocabulary, [LENGTHS[index % len(LENGTHS)] for index in range(PROMPTS)])
    # Connectors before 0.24 take no prompt in chunks: a step then holds the longest one.
    job: dict[str, Any] = {"model": str(model), "layers": LAYERS, "dtype": "bfloat16", "memory": options.memory}
    job |= {"budget": BUDGET, "options": {}}
    if shared:
        (start,) = random_prompts(vocabulary, [SHARED])
        prompts = [start + ids[: MAX_LEN - SHARED - 2] for ids in prompts]
        job |= {"budget": 2 * MAX_LEN, "options": {"enable_prefix_caching": True} if options.prefix_caching else {}}
        if options.whole_prompts:
            job["options"]["enable_chunked_prefill"] = False
    job["prompts"] = prompts
    expected = reference_hidden_states(model, prompts, LAYERS)
    record: dict[str, Any] = {"transformers in bfloat16": own_rounding(model, prompts, expected, LAYERS)}
    found = {}
    env = {"VLLM_MLA_DISABLE": "0"}
    for name in CHILDREN:
        try:
            found[name] = run_child(name, job, env)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            record[name] = {"failed": f"{type(error).__name__}, exit code {getattr(error, 'returncode', None)}"}
            continue
        record[name] = judged(found[name], prompts, expected, record["transformers in bfloat16"])
    if len(found) == 2 and not record["native"].get("findings"):
        record["native against ours"] = worst(found["native"]["states"], found["ours"]["states"])
    return record


def judged(found: dict[str, Any], prompts: list[list[int]], expected: list[Any], rounding: float) -> dict[str, Any]:
    """The error, and what the diagnosis says of the rows."""
    from speculators_compat.server.diagnosis import Sample, diagnose

    def samples(ids: list[list[int]], states: list[Any]) -> dict[int, Sample]:
        columns = [{layer: state.numpy() for layer, state in zip(LAYERS, one, strict=True)} for one in states]
        return {index: Sample(*pair) for index, pair in enumerate(zip(ids, columns, strict=True))}

    tolerance = max(0.08, 4 * rounding)  # of one row; the errors below are of whole prompts
    report = diagnose(samples(found["ids"], found["states"]), samples(prompts, expected), tolerance)
    told: dict[str, Any] = {**found["facts"], "findings": report.findings[:12], "of": len(report.findings)}
    shapes = [[[tuple(state.shape) for state in states] for states in every] for every in (found["states"], expected)]
    if shapes[0] == shapes[1]:
        told["error"] = worst(found["states"], expected)
    return told


def run_part(name: str, root: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One of :data:`PARTS`."""
    if name.startswith("flow"):
        return flow(name.split()[1], root, options)
    return states_of("kimi_k25" if "kimi" in name else "llama", root, options, shared="shared" in name)


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/newest_speculators.json"))
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--memory", type=float, default=0.2, help="share of the GPU's memory for each engine")
    parser.add_argument("--prefix-caching", action="store_true", help="ask vLLM for it in the last part")
    parser.add_argument("--whole-prompts", action="store_true", help="no chunked prefill in the last part")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job = json.loads(options.job)
        CHILDREN[job["child"]](job)
        return 0
    from speculators_compat import versions

    names = ("vllm", "speculators", "torch", "transformers")
    installed = {name: found.version for name in names if (found := versions.installed(name))}
    result: dict[str, Any] = {"versions": installed, "shapes": SHAPES, "layers": LAYERS, "flow layers": FLOW_LAYERS}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="newest-"))
    for name in options.only:
        try:
            result[name] = run_part(name, root, options)
        except Exception as error:
            traceback.print_exc()
            result[name] = {"failed": f"{type(error).__name__}: {str(error)[:500]}"}
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(name, json.dumps(result[name]), flush=True)
    return int(any("failed" in str(result[name]) for name in options.only))


if __name__ == "__main__":
    sys.exit(main())
