"""The audit over every published release: nothing false, nothing missed."""

from __future__ import annotations

import pytest

from speculators_compat import matrix
from speculators_compat.audit.compare import audit

from .figures import PAGE, page, pair
from .releases import SPECULATORS, VLLM, WITHOUT_GENERATOR, source
from .truth import FITTING, truths


@pytest.mark.parametrize("vllm", VLLM)
@pytest.mark.parametrize("speculators", SPECULATORS)
def test_what_is_found_is_what_is_true(speculators, vllm):
    found = pair(speculators, vllm)
    assert found.found - found.true == set(), "false alarms"
    assert found.true - found.found == set(), "missed"


@pytest.mark.parametrize(("speculators", "vllm"), FITTING)
def test_a_pair_that_fits_raises_no_alarm(speculators, vllm):
    report = audit(source("speculators", speculators), [source("vllm", vllm)])
    # Kimi-K2.5 on vLLM 0.15 does not fit, whatever the metadata of speculators 0.4 say; Llama does.
    alarms = [finding for finding in report.findings if finding.counts and not finding.applies_to]
    assert alarms == []
    assert not report.unmended


@pytest.mark.parametrize("vllm", VLLM)
@pytest.mark.parametrize("speculators", WITHOUT_GENERATOR)
def test_a_release_without_a_generator_raises_no_alarm(speculators, vllm):
    report = audit(source("speculators", speculators), [source("vllm", vllm)])
    assert [finding for finding in report.findings if finding.counts] == []


@pytest.mark.parametrize("vllm", VLLM)
@pytest.mark.parametrize("speculators", SPECULATORS)
def test_every_drift_that_a_pair_needs_is_seen_or_listed(speculators, vllm):
    assert pair(speculators, vllm).lost == ()


@pytest.mark.parametrize("vllm", sorted(matrix.audited()))
def test_what_is_recorded_of_a_release_that_nobody_ran_is_what_its_sources_say(vllm):
    for speculators, recorded in matrix.audited()[vllm]["speculators"].items():
        summary = audit(source("speculators", speculators), [source("vllm", vllm)]).summary()
        assert recorded == {key: summary[key] for key in recorded}, "run: tools/watch.py RELEASE --record"


def test_the_failures_of_one_pair_come_in_one_go():
    report = audit(source("speculators", "0.3.0"), [source("vllm", "0.16.0")])
    found = {(finding.name, finding.site.path.rpartition("/")[2], finding.site.line) for finding in report.findings}
    generator, worker = "vllm_hidden_states_generator.py", "custom_worker.py"
    assert {
        ("is_encoder_decoder", generator, 194),
        ("kv_cache_specs", generator, 139),
        ("block_size", generator, 148),
        ("get_input_embeddings", worker, 30),
        ("execute_model", generator, 261),
        ("unique_reply_rank", generator, 267),
        ("SupportsEagle3", worker, 102),
        ("from_pretrained", generator, 84),
    } <= found
    assert report.summary()["unmended"] == 0


def test_since_is_the_first_release_given():
    apis = [source("vllm", vllm) for vllm in ("0.16.0", "0.17.1", "0.18.1")]
    report = audit(source("speculators", "0.4.0.1"), apis)
    since = {finding.name: finding.since for finding in report.findings if finding.counts}
    assert since["eos_token_id"] == apis[1].label
    assert since["block_size"] == apis[2].label


def test_the_truth_knows_every_pair_that_does_not_fit():
    empty = [(s, v) for s in SPECULATORS for v in VLLM if not truths(s, v)]
    assert sorted(empty) == sorted(set(FITTING) - {("0.4.0.1", "0.15.1")})


def test_the_page_is_fresh():
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.audit.figures"
