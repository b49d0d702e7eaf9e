"""The matrix: its rows are complete, its records are of its rows, its ends are those of the drifts."""

from __future__ import annotations

from pathlib import Path

import pytest

from speculators_compat import matrix
from speculators_compat.drifts import catalogue
from speculators_compat.versions import release

ROOT = Path(__file__).parents[2]
EACH = pytest.mark.parametrize("row", matrix.rows(), ids=matrix.name)
RESULTS = {"passed", "failed", "not installed"}


@EACH
def test_a_row_has_its_constraints_and_they_are_its_versions(row):
    pins = (ROOT / "constraints" / f"vllm-{row['vllm']}.txt").read_text(encoding="utf-8").splitlines()
    assert f"{row['distribution']}=={row['build']}" in pins
    assert {f"{name}=={version}" for name, version in matrix.forced(row).items()} <= set(pins)


def test_every_constraint_file_has_a_row():
    assert {path.stem for path in (ROOT / "constraints").glob("*.txt")} == {
        f"vllm-{row['vllm']}" for row in matrix.rows()
    }


def test_one_pair_is_the_default():
    assert [row["vllm"] for row in matrix.rows() if row["default"]] == ["0.16.0"]


def test_the_ci_brackets_the_default():
    releases = list(dict.fromkeys(row["vllm"] for row in matrix.rows()))
    assert list(dict.fromkeys(row["vllm"] for row in matrix.rows() if row["ci"])) == [
        releases[0],
        "0.16.0",
        releases[-1],
    ]


def test_speculators_0_4_0_runs_at_both_ends_of_each_drift():
    """It has 0.4.0.1's code but for a converter: what a drift does at its ends is all that it could show."""
    wanted = {release for drift in catalogue() for release in matrix.ends(drift.since, drift.until)}
    assert {row["vllm"] for row in matrix.rows() if row["speculators"] == "0.4.0"} == wanted


def test_a_restored_release_is_run_or_refused_beside_each_vllm():
    releases = list(dict.fromkeys(row["vllm"] for row in matrix.rows()))
    restored = {(row["vllm"], row["speculators"]) for row in matrix.rows() if row["restored"]}
    assert matrix.restored_releases() == ["0.5.0", "0.6.0", "0.7.0", "0.8.1", "0.9.0"]
    everything = {(vllm, speculators) for vllm in releases for speculators in matrix.restored_releases()}
    assert restored | set(matrix.refused()) == everything
    # What no resolver installs is run beside the newest vLLM alone: `install` is how a user gets there.
    assert {vllm for vllm, _ in restored & set(matrix.refused())} == {releases[-1]}


def test_a_refusal_names_both_and_the_bounds_that_exclude_each_other():
    for (vllm, speculators), words in matrix.refused().items():
        assert words.startswith(f"speculators=={speculators} depends on "), vllm
        assert " and vllm depends on " in words


def test_records_are_of_rows_and_complete():
    names = [matrix.name(row) for row in matrix.rows()]
    assert [name for name in names if name in matrix.results()] == list(matrix.results())
    for name, record in matrix.results().items():
        assert record["result"] in RESULTS, name
        assert record["commit"]
        if record["result"] == "passed":
            assert record["tests"]["passed"] > 10
            found = record["versions"]
            assert name == matrix.name({"vllm": release(found["vllm"]), "speculators": found["speculators"]})
