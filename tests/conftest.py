"""Settings of the CPU engine, for pytest run by hand (nox sets the same), and the choice of a cell's tests."""

import os
from pathlib import Path

import pytest

from speculators_compat import matrix, versions
from speculators_compat.drifts import catalogue

ENGINE_ENV = Path(__file__).parents[1] / "tools" / "engine.env"

for _line in ENGINE_ENV.read_text(encoding="utf-8").splitlines():
    if _line and not _line.startswith("#"):
        os.environ.setdefault(*_line.split("=", 1))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cell", action="store_true", help="only the tests of one cell of the matrix")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --cell: tests marked so, and those of the drifts whose range begins or ends with the installed vLLM."""
    if not config.getoption("--cell"):
        return
    vllm = versions.installed("vllm")
    release = vllm.release if vllm else ""
    bounded = {f"test_{drift.id}" for drift in catalogue() if release in matrix.ends(drift.since, drift.until)}
    kept = [item for item in items if item.get_closest_marker("cell") or item.path.stem in bounded]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))


def _group(item: pytest.Item) -> str:
    """Tests that share an engine share a process: one group per engine, the drifts' own, the rest by file."""
    engine = getattr(item, "callspec", None) and item.callspec.params.get("engine")
    if engine:
        return "-".join(map(str, engine))
    return "drifts" if "drifts" in item.path.parts else item.path.stem
