import pytest

from speculators_compat import UsageError, versions
from speculators_compat.drifts.transformers_5_refused import _refusing
from speculators_compat.versions import Installed


@pytest.fixture
def beside(monkeypatch):
    def construct(transformers: str) -> str:
        found = Installed("transformers", "transformers", transformers)
        monkeypatch.setattr(versions, "installed", lambda module: found)
        return _refusing(lambda: "config", None, (), {})

    return construct


def test_transformers_4_passes(beside):
    assert beside("4.57.6") == "config"


@pytest.mark.parametrize("version", ["5.0.0", "5.19.0"])
def test_transformers_5_is_refused(beside, version):
    with pytest.raises(UsageError, match=rf"needs transformers 4.* Found: transformers {version}"):
        beside(version)


@pytest.mark.engine
def test_only_beside_the_vllm_that_lets_it_in(needed, states):
    if needed("transformers_5_refused"):
        assert states["transformers_5_refused"] == "applied"
