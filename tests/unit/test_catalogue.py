"""Over all drifts: facts complete, own test exists, files light, records consistent."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from speculators_compat import drifts
from speculators_compat.drifts import catalogue

ROOT = Path(__file__).parents[2]
EACH = pytest.mark.parametrize("drift", catalogue(), ids=lambda drift: drift.id)


@EACH
def test_facts_are_complete(drift):
    for fact in ("title", "symptom", "call_site", "upstream"):
        assert getattr(drift, fact).strip(), fact
    assert drift.upstream.startswith("https://")
    assert drift.sites
    SpecifierSet(drift.speculators)
    if drift.since and drift.until:
        assert Version(drift.since) < Version(drift.until)
    assert drift.since or drift.until or drift.probe or "vllm" not in drift.call_site
    assert drift.silent == drift.symptom.startswith("no error"), "a silent drift says so in its symptom"
    assert set(drift.requires) <= {other.id for other in catalogue()}


@EACH
def test_it_has_a_test_of_its_own(drift):
    assert (ROOT / "tests" / "drifts" / f"test_{drift.id}.py").is_file()


@EACH
def test_the_changelog_names_it(drift):
    assert f"`{drift.id}`" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@EACH
def test_its_file_says_what_it_is_and_imports_nothing_heavy(drift):
    source = Path(drifts.__file__).with_name(f"{drift.id}.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    assert ast.get_docstring(tree)
    top = {alias.name.split(".")[0] for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    top |= {
        (node.module or "").split(".")[0] for node in tree.body if isinstance(node, ast.ImportFrom) if not node.level
    }
    assert not top & {"torch", "vllm", "transformers", "speculators", "datasets"}


@EACH
def test_only_patching_sets_attributes_on_foreign_modules(drift):
    """A drift returns new values; the engine writes them (design: walls)."""
    source = Path(drifts.__file__).with_name(f"{drift.id}.py").read_text(encoding="utf-8")
    names = {
        node.func.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        if isinstance(node.func, ast.Name)
    }
    assert "delattr" not in names


def test_ids_are_unique_and_equal_to_their_files():
    ids = [drift.id for drift in catalogue()]
    files = {p.stem for p in Path(drifts.__file__).parent.glob("*.py") if not p.stem.startswith("_")}
    assert set(ids) == files
    assert len(ids) == len(set(ids))
