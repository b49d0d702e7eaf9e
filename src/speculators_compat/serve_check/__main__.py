"""``python -m speculators_compat.serve_check``: the command where typer is not installed."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from ..drift import UsageError
from .check import CONTROLS, EngineError, Settings, as_text, run_check


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m speculators_compat.serve_check",
        description="Serve a trained draft and an untrained one in vLLM and compare what is accepted.",
    )
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT")
    parser.add_argument("--verifier")
    parser.add_argument("--prompts", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--num-prompts", type=int, default=Settings.num_prompts)
    parser.add_argument("--num-speculative-tokens", type=int, dest="speculative_tokens")
    parser.add_argument("--max-tokens", type=int, default=Settings.max_tokens)
    parser.add_argument("--control", action="append", default=[], choices=CONTROLS, dest="controls")
    parser.add_argument("--no-plain", action="store_false", dest="compare_plain")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--dtype", default=Settings.dtype)
    parser.add_argument("--tensor-parallel", type=int, default=1, dest="tensor_parallel_size")
    parser.add_argument("--gpu-memory-utilization", type=float)
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--trust-remote-code", action="store_true")
    parser.add_argument("--enforce-eager", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", dest="as_json")
    return parser


def main() -> int:
    """Exit code: 0 the trained head is clearly above the untrained one, 1 it is not or a run failed, 2 bad input."""
    arguments = vars(_parser().parse_args())
    as_json = arguments.pop("as_json")
    settings = Settings(**{**arguments, "controls": tuple(arguments["controls"])})
    try:
        content = run_check(settings)
    except UsageError as error:
        print(f"Error: {error}", file=sys.stderr)  # noqa: T201 (a command line)
        return 2
    except (EngineError, ValueError) as error:
        print(f"Error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(json.dumps(content, indent=2) if as_json else as_text(content))  # noqa: T201
    return 0 if content["verdict"]["trained_above_untrained"] else 1


if __name__ == "__main__":
    sys.exit(main())
