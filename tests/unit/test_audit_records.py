"""What the audit can see of each drift, held against the catalogue of drifts."""

from __future__ import annotations

import re

import pytest

from speculators_compat.audit.findings import Severity
from speculators_compat.audit.output import KINDS
from speculators_compat.audit.records import records
from speculators_compat.drifts import catalogue

BOUND = [drift.id for drift in catalogue() if drift.since or drift.until]
BEHAVIOUR = {
    "applies_to", "in_range", "omits", "passes", "present", "severity", "subscripted", "unless_uses", "uses", "wants",
}  # fmt: skip


@pytest.mark.parametrize("drift", BOUND)
def test_a_drift_bound_to_a_release_is_found_or_says_why_not(drift):
    record = records().get(drift)
    assert record, "add it to src/speculators_compat/audit/records.toml: what finds it, or why sources cannot show it"
    assert record.get("finds") or record.get("behaviour") or len(record.get("unseen", "").split()) > 5


@pytest.mark.parametrize("name", sorted(records()))
def test_a_record_names_a_drift_and_known_kinds(name):
    record = records()[name]
    assert name in {drift.id for drift in catalogue()}
    assert set(record) <= {"behaviour", "finds", "severity", "unseen"}
    for pattern in record.get("finds", ()):
        assert re.fullmatch(r"([\w-]+) [\w.*()]+", pattern)
        assert pattern.partition(" ")[0] in KINDS
    behaviour = record.get("behaviour", {})
    assert set(behaviour) <= BEHAVIOUR
    if behaviour:
        assert Severity(behaviour["severity"])
        assert behaviour.get("present") or behaviour.get("in_range"), "or it would hold everywhere"
