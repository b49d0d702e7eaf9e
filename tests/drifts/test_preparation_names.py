from __future__ import annotations

import pytest

from speculators_compat.drifts.preparation_names import DRIFT
from tests.drifts.fakes import fake_speculators, run_beside

#: As in 0.6: one list of paths, the rest by keyword.
FUNCTION = """
def load_and_preprocess_dataset(target_model_path, train_data_paths, *, seq_length, seed=0, token_freq_path="t"{more}):
    print("CACHE", load_raw_dataset(train_data_paths[0]))
    return target_model_path, train_data_paths, seq_length, seed
def load_raw_dataset(train_data_path):
    return load_dataset(train_data_path)
def load_dataset(path, cache_dir=None):
    return cache_dir
# Sites of other drifts.
def _preprocess_batch(examples): ...
def _normalize_conversation(conv): ...
def save_token_frequency_distribution(dataset, output_path): ...
"""
BUILDER = "def build_speculator_training_dataset(dataset, processor): ...\n"
CALL = "from speculators.data_generation.preprocessing import load_and_preprocess_dataset as load\n"


@pytest.fixture
def newest(tmp_path):
    files = {"data_generation/preprocessing.py": FUNCTION.format(more=", render_endpoint=None") + BUILDER}
    return fake_speculators(tmp_path, "0.9.0", files)


def test_the_symptom_without_it(newest):
    code = CALL + "load(target_model_path='m', train_data_path='d', seq_length=8)"
    assert DRIFT.symptom in run_beside(newest, code, SPECULATORS_COMPAT_DISABLE=DRIFT.id).stderr


@pytest.mark.parametrize(
    "arguments",
    [
        "target_model_path='m', train_data_path='d', seq_length=8, seed=3",
        "'m', 'd', 8, seed=3, cache_dir=None, assistant_pattern=None, turn_dropout=False",
        "'m', ['d'], seq_length=8, seed=3",
    ],
)
def test_old_and_new_calls_mean_the_same(newest, arguments):
    done = run_beside(newest, CALL + f"print('CALLED', load({arguments}))")
    assert "CALLED ('m', ['d'], 8, 3)" in done.stdout, done.stderr


def test_a_cache_folder_reaches_the_loader_and_only_in_its_call(newest):
    done = run_beside(newest, CALL + "load('m', 'd', 8, cache_dir='c'); load('m', 'd', 8)")
    assert "CACHE c\nCACHE None" in done.stdout, done.stderr
    raw = "from speculators.data_generation.preprocessing import load_raw_dataset as load\n"
    done = run_beside(newest, raw + "print('RAW', load('d', num_proc=2, cache_dir='c'), load('d'))")
    assert "RAW c None" in done.stdout, done.stderr


@pytest.mark.parametrize("option", ["assistant_pattern='x'", "turn_dropout=True"])
def test_an_option_that_is_gone_is_refused(newest, option):
    done = run_beside(newest, CALL + f"load('m', 'd', 8, {option})")
    assert f"UsageError: This speculators cannot prepare data with {option.partition('=')[0]}." in done.stderr


def test_the_renamed_builder_names_what_replaced_it(newest):
    done = run_beside(newest, "from speculators.data_generation.preprocessing import build_eagle3_dataset")
    assert "build_speculator_training_dataset replaced it" in done.stderr


def test_a_release_that_has_the_builder_keeps_it(tmp_path):
    files = {
        "data_generation/preprocessing.py": FUNCTION.format(more="")
        + "def build_eagle3_dataset(dataset, processor): ...\n"
    }
    folder = fake_speculators(tmp_path, "0.6.0", files)
    code = "from speculators.data_generation.preprocessing import build_eagle3_dataset as b\nprint('OWN', b.__code__)"
    assert "OWN <code object build_eagle3_dataset" in run_beside(folder, code).stdout
