"""Installing speculators beside a vLLM: what is there stays, what is missing is added, what is not met is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from speculators_compat import UsageError
from speculators_compat import install as module


class FakeMetadata:
    """A set of installed distributions, and what speculators declares."""

    PackageNotFoundError = KeyError

    def __init__(self) -> None:
        self.versions = {"torch": "2.11.0+cpu", "transformers": "5.5.4", "vllm": "0.26.0", "numpy": "2.3.5"}
        self.declared = [
            "torch<=2.10.0,>=2.9.0",
            "transformers<=4.57.6",
            "numpy>=2",
            "loguru<=0.7.3",
            "pytest; extra == 'dev'",
        ]

    def version(self, name: str) -> str:
        return self.versions[name]

    def requires(self, name: str) -> list[str]:
        assert name == "speculators"
        return self.declared

    def distributions(self):
        for name, version in self.versions.items():
            yield type("Dist", (), {"metadata": {"Name": name}, "version": version})


@pytest.fixture
def environment(monkeypatch) -> FakeMetadata:
    found = FakeMetadata()
    monkeypatch.setattr(module, "metadata", found)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(module.shutil, "which", lambda name: "uv")
    return found


def test_nothing_that_is_installed_moves_and_what_is_missing_is_added(environment):
    commands, held = [], []

    def run(command):
        commands.append(command[5:])
        if "--constraint" in command:
            held.extend(Path(command[command.index("--constraint") + 1]).read_text().split())

    said = module.install("speculators==0.4.0.1", run)
    assert commands[0] == ["--no-deps", "speculators==0.4.0.1"]
    assert commands[1][2:] == ["loguru<=0.7.3"]
    assert held == ["numpy==2.3.5", "torch==2.11.0+cpu", "transformers==5.5.4", "vllm==0.26.0"]
    assert said == [
        "torch<=2.10.0,>=2.9.0 is declared; 2.11.0+cpu stays",
        "transformers<=4.57.6 is declared; 5.5.4 stays",
    ]


def test_with_nothing_missing_one_command_is_enough(environment):
    environment.versions["loguru"] = "0.7.3"
    commands = []
    module.install("speculators==0.4.0.1", commands.append)
    assert len(commands) == 1


@pytest.mark.parametrize("what", ["torch==2.11.0", "speculators", "speculators>=0.4", "not a requirement !", ""])
def test_only_one_release_of_speculators_is_taken(environment, what):
    with pytest.raises(UsageError, match=r"Say for instance speculators==0\.4\.0\.1"):
        module.install(what, lambda command: pytest.fail("it ran"))


def test_vllm_comes_first(environment, monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="vLLM must be installed first"):
        module.install("speculators==0.4.0.1", lambda command: pytest.fail("it ran"))


def test_a_failing_installer_is_one_message(environment, monkeypatch):
    monkeypatch.setattr(module, "_pip", lambda: ["false"])
    with pytest.raises(UsageError, match="exit code 1 of false --no-deps"):
        module.install("speculators==0.4.0.1")
