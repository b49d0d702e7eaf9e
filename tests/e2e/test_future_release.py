"""A vLLM of the future, planted: the installed one with one thing renamed, newly required or removed, as 0.99.0.

It must be detected and named: by the warning that nobody tested it, and by an error that says which name or argument
does not fit, which drifts took part and what to do.
"""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support import run_python

pytestmark = [pytest.mark.engine, pytest.mark.default_pair]

RUN = """
import logging, speculators_compat
logging.basicConfig()
from speculators.data_generation import VllmHiddenStatesGenerator
if __name__ == "__main__":
    VllmHiddenStatesGenerator({model!r}, [0], max_model_len=64)
"""
METADATA = "Metadata-Version: 2.1\nName: vllm\nVersion: 0.99.0+cpu\n"


def overlay(root: Path, module: str, pattern: str, replacement: str) -> Path:
    """A folder for the path whose vLLM is the installed one, but for one edit of one module."""
    installed = Path(find_spec("vllm").submodule_search_locations[0])
    here, there = root / "vllm", installed
    here.mkdir(parents=True)
    *parents, last = module.split("/")
    for part in (*parents, last):
        for path in there.iterdir():
            if path.name not in (part, "__pycache__"):
                (here / path.name).symlink_to(path)
        here, there = here / part, there / part
        if part != last:
            here.mkdir()
    text, count = re.subn(pattern, replacement, there.read_text())
    assert count, f"{pattern} is not in {module}"
    here.write_text(text)
    (root / "vllm-0.99.0.dist-info").mkdir()
    (root / "vllm-0.99.0.dist-info" / "METADATA").write_text(METADATA)
    return root


PLANTS = {
    "renamed function": (
        ("v1/core/kv_cache_utils.py", r"\bget_kv_cache_config_from_groups\b", "get_config_of_the_future"),
        ["MovedNameError", "cannot import name 'get_kv_cache_config_from_groups'", "speculators-compat audit"],
    ),
    "new required argument": (
        ("v1/core/sched/scheduler.py", r"(def __init__\(\s*self,)", r"\1 argument_of_the_future,"),
        ["missing 1 required positional argument: 'argument_of_the_future'", "raised through patched code"],
    ),
    "removed field": (
        ("config/cache.py", r"\n    gpu_memory_utilization: float = [^\n]*", "\n"),
        ["gpu_memory_utilization", "raised through patched code"],
    ),
}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="notes: https://docs.python.org/3/whatsnew/3.11.html")
@pytest.mark.parametrize("plant", PLANTS)
def test_what_moved_is_named(tmp_path, models, plant):
    edit, expected = PLANTS[plant]
    model = models("llama", num_hidden_layers=6)
    done = run_python(RUN.format(model=str(model)), env={"PYTHONPATH": str(overlay(tmp_path / "future", *edit))})
    assert done.returncode == 1
    for words in (*expected, "0.99.0", "newer than any tested release"):
        assert words in done.stderr, done.stderr[-3000:]
