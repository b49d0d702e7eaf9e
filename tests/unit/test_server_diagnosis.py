"""Each fault that a connector may have is planted and named; right states pass, whatever their noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speculators_compat.server.diagnosis import NORMED, Sample, diagnose

LAYERS = [1, 3, 5, 7]
CANDIDATES = range(8)
LENGTHS = [20, 3, 40, 9]
HIDDEN = 16
TOLERANCE = 1e-3


def references(lengths=LENGTHS, seed=0, step=0.3):
    """Residual streams: each layer adds a little, as a decoder does; after the final norm in addition."""
    random = np.random.default_rng(seed)
    samples = {}
    for index, length in enumerate(lengths):
        states = random.normal(size=(length, HIDDEN)).astype(np.float32)
        by_layer = {}
        for layer in CANDIDATES:
            states = states + step * random.normal(size=states.shape).astype(np.float32)
            by_layer[layer] = states
        by_layer[NORMED] = 3 * states / np.linalg.norm(states, axis=1, keepdims=True)
        samples[index] = Sample(random.integers(0, 1000, length).tolist(), by_layer)
    return samples


def served(expected, noise=0.0, seed=1, layers=LAYERS):
    random = np.random.default_rng(seed)
    found = {}
    for index, sample in expected.items():
        columns = {}
        for layer in layers:
            states = sample.states[layer]
            rough = random.normal(size=states.shape).astype(np.float32)
            size = np.linalg.norm(states, axis=1, keepdims=True) / np.linalg.norm(rough, axis=1, keepdims=True)
            columns[layer] = states + noise * size * rough
        found[index] = Sample(list(sample.token_ids), columns)
    return found


@pytest.fixture
def expected():
    return references()


@pytest.fixture
def found(expected):
    return served(expected)


def findings(found, expected, tolerance=TOLERANCE):
    return diagnose(found, expected, tolerance).findings


def change(found, index, make, layers=LAYERS):
    for layer in layers:
        found[index].states[layer] = make(found[index].states[layer].copy())


def put(rows, first, last, value):
    rows[first:last] = value
    return rows


@pytest.mark.parametrize("noise", [0.0, 1e-6, 5e-4])
def test_right_states(expected, noise):
    report = diagnose(served(expected, noise), expected, TOLERANCE)
    assert report.findings == []
    assert report.noisy_rows == 0
    assert report.rows == sum(LENGTHS) * len(LAYERS)
    assert report.errors.keys() == set(LAYERS)
    assert all(error == pytest.approx(noise, rel=0.01) for error in report.errors.values())


def test_rows_of_another_prompt(expected, found):
    for layer in LAYERS:
        found[2].states[layer] = put(found[2].states[layer].copy(), 20, 40, expected[0].states[layer])
    assert findings(found, expected) == ["sample 2: rows 20 to 39 are rows 0 to 19 of prompt 0"]


def test_two_prompts_in_each_others_place(expected, found):
    """Equal lengths alone would hide it; here each gets what fits of the other."""
    for layer in LAYERS:
        found[1].states[layer] = expected[3].states[layer][:3].copy()
    assert findings(found, expected) == ["sample 1: rows 0 to 2 are rows 0 to 2 of prompt 3"]


def test_a_shift_inside_a_prompt(expected, found):
    change(found, 0, lambda rows: np.concatenate([rows[1:], rows[:1]]))
    assert findings(found, expected) == [
        "sample 0: rows 0 to 18 are rows 1 to 19 of the same prompt",
        "sample 0: row 19 is row 0 of the same prompt",
    ]


@pytest.mark.parametrize("step", [0.3, 0.01])
def test_layers_shifted_by_one(step):
    """Also where a layer changes less than a row may differ."""
    expected = references(step=step)
    found = {
        index: Sample(sample.token_ids, {layer: sample.states[layer - 1] for layer in LAYERS})
        for index, sample in expected.items()
    }
    wanted = ["every sample: layers are shifted by one: layer 1 is layer 0, and so on"]
    assert findings(found, expected, tolerance=0.02) == wanted


def test_layers_shifted_where_the_last_is_right(expected, found):
    for index, sample in found.items():
        for layer in LAYERS[:-1]:
            sample.states[layer] = expected[index].states[layer + 1]
    assert findings(found, expected) == ["every sample: layers are shifted by one: layer 1 is layer 2, and so on"]


def test_layers_in_another_order(expected, found):
    for sample in found.values():
        sample.states[1], sample.states[5] = sample.states[5], sample.states[1]
    assert findings(found, expected) == ["every sample: layer 1 is layer 5", "every sample: layer 5 is layer 1"]


def test_the_last_layer_after_the_final_norm(expected, found):
    for index, sample in found.items():
        sample.states[7] = expected[index].states[NORMED]
    assert findings(found, expected) == ["every sample: the last layer is after the final norm"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda rows: rows[:24], "rows 24 to 39 are not in the file"),
        (lambda rows: put(rows, 24, 40, 0), "rows 24 to 39 are zero"),
        (lambda rows: put(rows, 24, 40, np.nan), "rows 24 to 39 are not finite"),
        (lambda rows: put(rows, 24, 40, np.arange(16)), "rows 24 to 39 are unlike any row"),
    ],
    ids=["short", "zero", "nan", "stale"],
)
def test_the_last_chunk_is_missing(expected, found, make, said):
    change(found, 2, make)
    assert findings(found, expected) == [f"sample 2: the last chunk is missing: {said}"]


def test_rows_lost_elsewhere(expected, found):
    change(found, 2, lambda rows: put(put(rows, 0, 4, 0), 10, 11, 7.5))
    assert findings(found, expected) == ["sample 2: rows 0 to 3 are zero", "sample 2: row 10 is unlike any row"]


def test_rows_too_many(expected, found):
    change(found, 1, lambda rows: np.concatenate([rows, rows]))
    assert findings(found, expected) == ["sample 1: 6 rows for 3 tokens"]


def test_one_layer_alone(expected, found):
    change(found, 2, lambda rows: put(rows, 5, 9, 0), layers=[3])
    assert findings(found, expected) == ["sample 2: layer 3: rows 5 to 8 are zero"]


def test_files(expected, found):
    found[0] = Sample(expected[3].token_ids, found[0].states)
    found[1] = Sample([*expected[1].token_ids[:2], -1], found[1].states)
    del found[2]
    said = findings(found, expected)
    assert said[0] == "sample 0: its file is that of prompt 3"
    assert said[1].startswith("sample 1: other token_ids than the prepared row's from token 2 on")
    assert said[2] == "sample 2: its file is missing"
    assert len(said) == 3


def test_another_hidden_size(expected, found):
    change(found, 1, lambda rows: rows[:, :8])
    assert findings(found, expected) == ["sample 1: states of 8 values a row instead of 16"]


def test_a_few_noisy_rows_are_counted_and_many_are_a_finding(expected, found):
    """An expert chosen differently moves a row, not to another row's place."""
    change(found, 2, lambda rows: put(rows, 7, 8, 1.2 * rows[7]))
    report = diagnose(found, expected, TOLERANCE)
    assert report.findings == []
    assert report.noisy_rows == len(LAYERS)
    change(found, 2, lambda rows: 1.2 * rows)
    assert "fit nowhere better" in findings(found, expected)[0]


@pytest.mark.parametrize(("noise", "named"), [(5e-5, False), (5e-4, True)])
def test_a_better_fit_counts_only_beyond_the_noise(noise, named):
    """Two layers closer to each other than arithmetic is exact cannot be told apart, and need not be."""
    expected = references(step=noise)
    found = served(expected)
    for index, sample in found.items():
        sample.states[3] = expected[index].states[2]
    assert findings(found, expected) == (["every sample: layer 3 is layer 2"] if named else [])


def test_of_prompts_that_begin_alike_the_one_that_explains_most_is_named(expected, found):
    for layer in expected[0].states:
        expected[3].states[layer][:5] = expected[0].states[layer][:5]
    for sample in (0, 3):
        for layer in LAYERS:
            found[sample].states[layer] = expected[sample].states[layer]
            found[2].states[layer] = put(found[2].states[layer].copy(), 10, 19, expected[3].states[layer])
    assert findings(found, expected) == ["sample 2: rows 10 to 18 are rows 0 to 8 of prompt 3"]


def test_a_row_that_is_not_finite_hides_no_other_fault(expected, found):
    for index, sample in found.items():
        for layer in LAYERS:
            sample.states[layer] = expected[index].states[layer - 1]
    change(found, 0, lambda rows: put(rows, 2, 3, np.nan))
    assert findings(found, expected) == [
        "every sample: layers are shifted by one: layer 1 is layer 0, and so on",
        "sample 0: row 2 is not finite",
    ]


def test_equal_prefixes_are_no_fault():
    """Two prompts that begin alike have equal rows: neither is the other's."""
    expected = references([30, 30])
    for layer, states in expected[1].states.items():
        states[:12] = expected[0].states[layer][:12]
    assert findings(served(expected, noise=5e-4), expected) == []


faults = st.sampled_from(["none", "other prompt", "zero tail", "cut tail", "shift", "norm", "stale"])


@settings(max_examples=150, deadline=None)
@given(
    lengths=st.lists(st.integers(4, 60), min_size=2, max_size=5),
    seed=st.integers(0, 10**6),
    noise=st.sampled_from([0.0, 1e-5, 2e-4]),
    fault=faults,
    data=st.data(),
)
def test_a_planted_fault_is_named_and_nothing_else(lengths, seed, noise, fault, data):
    expected = references(lengths, seed)
    found = served(expected, noise, seed + 1)
    index = data.draw(st.integers(0, len(lengths) - 1))
    length = lengths[index]
    first = data.draw(st.integers(1, length - 2))
    states = found[index].states
    wanted: list[str] = []
    if fault == "other prompt":
        other = data.draw(st.integers(0, len(lengths) - 1).filter(lambda place: place != index))
        size = min(length - first, lengths[other])
        for layer in LAYERS:
            states[layer][first : first + size] = expected[other].states[layer][:size]
        rows, theirs = (f"rows {a} to {a + size - 1}" for a in (first, 0))
        wanted = [f"sample {index}: {rows} are {theirs} of prompt {other}"] if size > 1 else [f"of prompt {other}"]
    elif fault in {"zero tail", "stale"}:
        garbage = np.random.default_rng(seed + 2).normal(size=(length - first, HIDDEN)) * (fault == "stale")
        for layer in LAYERS:
            states[layer][first:] = garbage
        what = "zero" if fault == "zero tail" else "unlike any row"
        wanted = [f"sample {index}: the last chunk is missing: rows {first} to {length - 1} are {what}"]
    elif fault == "cut tail":
        for layer in LAYERS:
            states[layer] = states[layer][:first]
        rows = f"rows {first} to {length - 1}"
        wanted = [f"sample {index}: the last chunk is missing: {rows} are not in the file"]
    elif fault == "shift":
        for layer in LAYERS:
            states[layer] = expected[index].states[layer - 1]
        wanted = [f"sample {index}: layers are shifted by one: layer 1 is layer 0, and so on"]
    elif fault == "norm":
        states[7] = expected[index].states[NORMED]
        wanted = [f"sample {index}: the last layer is after the final norm"]
    said = findings(found, expected)
    assert len(said) == len(wanted), said
    for text, part in zip(said, wanted, strict=True):
        assert part in text
