"""Changed copies of vLLM 0.16.0 are caught where a call site touches the change, and never end in a traceback."""

from __future__ import annotations

import pytest

from speculators_compat.audit.compare import check_pair

from .attacks import attacks, harmless
from .mutants import mutants
from .releases import source

LEAST = 0.95


def _keys(findings):
    return {(finding.key, finding.wants) for finding in findings}


@pytest.mark.parametrize("changes", [mutants, attacks])
def test_changed_copies_are_caught(changes):
    caller, api = source("speculators", "0.4.0.1"), source("vllm", "0.16.0")
    _, findings = check_pair(caller, api)
    known = _keys(findings)
    every = list(changes(api))
    missed = [(m.kind, m.symbol, m.detail) for m in every if not _keys(check_pair(caller, m.source)[1]) - known]
    assert len(every) >= 50
    assert len(missed) <= (1 - LEAST) * len(every), missed


@pytest.mark.parametrize("kind", ["change default", "reorder"])
def test_what_no_signature_shows_is_caught_beside_the_contract(kind):
    caller, api = source("speculators", "0.4.0.1"), source("vllm", "0.16.0")
    mutant = next(item for item in mutants(api) if item.kind == kind)
    expected = {"change default": "changed-default", "reorder": "reordered-arguments"}[kind]
    assert expected in {finding.kind for finding in check_pair(caller, mutant.source)[1]}


def test_only_the_change_is_reported():
    caller, api = source("speculators", "0.4.0.1"), source("vllm", "0.16.0")
    mutant = next(item for item in mutants(api) if item.kind == "rename argument" and item.detail == "block_hasher")
    fresh = [finding for finding in check_pair(caller, mutant.source)[1] if finding.counts]
    expected = ("unexpected-argument", "block_hasher", "renamed to block_hasher_renamed?")
    assert [(finding.kind, finding.name, finding.hint) for finding in fresh] == [expected]


def test_what_no_call_site_notices_is_not_reported():
    caller, api = source("speculators", "0.4.0.1"), source("vllm", "0.16.0")
    known = {finding.key for finding in check_pair(caller, api)[1]}
    every = list(harmless(api))
    alarms = {
        (m.kind, m.symbol, finding.kind, finding.name)
        for m in every
        for finding in check_pair(caller, m.source)[1]
        if finding.key not in known
    }
    assert len(every) >= 30
    assert alarms == set()
