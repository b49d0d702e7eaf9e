from __future__ import annotations

from speculators_compat.drifts.noise_transforms_module import DRIFT
from tests.drifts.fakes import fake_speculators, run_beside

CODE = "from speculators.train.noise_transforms import AddUniformNoise"


def test_symptom_and_fix(tmp_path):
    folder = fake_speculators(tmp_path, "0.9.0", {"train/data.py": ""})
    assert DRIFT.symptom in run_beside(folder, CODE, SPECULATORS_COMPAT_DISABLE=DRIFT.id).stderr
    assert "RemovedNameError: speculators removed train.noise_transforms after 0.8.1" in run_beside(folder, CODE).stderr


def test_a_release_that_has_the_module_keeps_it(tmp_path):
    folder = fake_speculators(tmp_path, "0.8.1", {"train/noise_transforms.py": "AddUniformNoise = 'its own'\n"})
    assert "its own" in run_beside(folder, CODE + "\nprint(AddUniformNoise)").stdout
