"""The generated pages are what the records say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from speculators_compat.docs import PAGES, readme_table, server_tables, with_server_tables, with_table
from speculators_compat.drifts import catalogue

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", sorted(PAGES))
def test_the_page_is_fresh(name):
    found = (DOCS / name).read_text(encoding="utf-8")
    assert found == PAGES[name](), "run: python -m speculators_compat.docs"


def test_the_readme_has_the_table_of_the_records():
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert readme_table() in text
    assert with_table(text) == text, "run: python -m speculators_compat.docs"


def test_the_page_on_the_server_has_the_tables_of_the_facts():
    text = (DOCS / "server.md").read_text(encoding="utf-8")
    assert server_tables() in text
    assert with_server_tables(text) == text, "run: python -m speculators_compat.docs"


def test_every_test_and_drift_that_the_list_of_faults_names_is_there():
    text = (DOCS / "faults.md").read_text(encoding="utf-8")
    tests = re.findall(r"`((?:\w+/)+test_\w+\.py)`", text)
    drifts = [name for names in re.findall(r"drift (`\w+`)", text) for name in re.findall(r"\w+", names)]
    assert len(tests) > 20
    assert len(drifts) > 15
    assert not [name for name in tests if not (DOCS.parent / "tests" / name).is_file()]
    assert not set(drifts) - {drift.id for drift in catalogue()}
