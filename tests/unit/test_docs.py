"""The generated pages are what the records say."""

from __future__ import annotations

from pathlib import Path

import pytest

from speculators_compat.docs import PAGES

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", sorted(PAGES))
def test_the_page_is_fresh(name):
    found = (DOCS / name).read_text(encoding="utf-8")
    assert found == PAGES[name](), "run: python -m speculators_compat.docs"
