import json

import pytest

from speculators_compat import UsageError
from speculators_compat.drifts.arrow_safe_rows import DRIFT, _rows
from tests.support import shim, speculators_is

pytestmark = pytest.mark.engine

USER = {"role": "user", "content": "one"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "one"}]}


def call(arguments):
    function = {"name": "f", "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "id": "f:0", "function": function}]}


#: Conversations that one Arrow table cannot hold: as an error, or with keys that nobody wrote.
REFUSED = {
    "content of two kinds": [[USER], [PARTS]],
    "arguments of two types": [[USER, call({"x": 1})], [USER, call({"x": "1"})]],
}
FILLED = [[USER, call({"x": 1})], [USER, call({"y": 2})]]


def write(path, conversations, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"conversations": turns, **more}) + "\n" for turns in conversations))
    return path


def load(path, without=""):
    """Turns of every conversation, as speculators' normalisation gives them."""
    with shim(without=without):
        from speculators.data_generation import preprocessing

        cache = str(path.parent / f"cache-{without}")
        raw = preprocessing.load_raw_dataset(str(path), cache_dir=cache)
        raw = raw[0] if isinstance(raw, tuple) else raw
        return [preprocessing._normalize_conversation(turns) for turns in raw["conversations"]]


def arguments(turns):
    return [item["function"]["arguments"] for turn in turns for item in turn.get("tool_calls") or ()]


def datasets_unifies() -> bool:
    import datasets

    return int(datasets.__version__.partition(".")[0]) < 5


@pytest.mark.parametrize("case", REFUSED)
def test_rows_of_two_shapes_fail_without_and_are_read_with(tmp_path, case):
    path = write(tmp_path / "data.jsonl", REFUSED[case])
    if datasets_unifies():
        with pytest.raises(Exception, match="generating the dataset") as error:
            load(path, without=DRIFT.id)
        assert f"{type(error.value).__name__}: {error.value}" == DRIFT.symptom
    found = load(path)
    assert [turns[0]["content"] for turns in found] == ["one", "one"]
    assert [arguments(turns) for turns in found] == [arguments(turns) for turns in REFUSED[case]]


def test_arguments_gain_keys_without_and_stay_as_they_are_with(tmp_path):
    path = write(tmp_path / "data.jsonl", FILLED)
    if datasets_unifies() and speculators_is(">=0.6"):  # earlier releases forget the calls
        without = f"{DRIFT.id},whole_turns"
        assert [arguments(turns) for turns in load(path, without)] == [[{"x": 1, "y": None}], [{"x": None, "y": 2}]]
    assert [arguments(turns) for turns in load(path)] == [[{"x": 1}], [{"y": 2}]]


@pytest.mark.skipif(not speculators_is(">=0.6"), reason="earlier releases forget tool calls")
def test_upstreams_own_normalisation_reads_packed_turns(tmp_path):
    path = write(tmp_path / "data.jsonl", FILLED)
    assert [arguments(turns) for turns in load(path, without="whole_turns")] == [[{"x": 1}], [{"y": 2}]]


def test_other_columns_of_two_kinds_are_no_hindrance(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps({"id": key, "conversations": [USER]}) + "\n" for key in (1, "two")))
    if datasets_unifies():
        with pytest.raises(Exception, match="generating the dataset"):
            load(path, without=DRIFT.id)
    assert load(path) == [[USER], [USER]]


def test_a_file_that_is_one_list(tmp_path):
    path = tmp_path / "data.json"
    path.write_text(json.dumps([{"conversations": turns} for turns in REFUSED["content of two kinds"]]))
    assert [turns[0]["content"] for turns in load(path)] == ["one", "one"]


@pytest.mark.skipif(not speculators_is(">=0.7"), reason="folders are read from 0.7 on")
def test_a_folder_of_files(tmp_path):
    folder = tmp_path / "data"
    write(folder / "a.jsonl", [[USER]])
    write(folder / "deeper" / "b.jsonl", [[PARTS, call({"x": 1})]])
    if datasets_unifies():
        with pytest.raises(Exception, match="generating the dataset"):
            load(folder, without=DRIFT.id)
    first, second = load(folder)
    assert (first[0]["content"], second[0]["content"], arguments(second)) == ("one", "one", [{"x": 1}])


def test_a_file_that_needs_no_packing_is_read_as_it_is(tmp_path):
    path = write(tmp_path / "data.jsonl", [[USER]], id="a")
    assert load(path) == [[USER]]
    assert not list(tmp_path.rglob("speculators_compat"))


def test_a_line_that_is_no_json_is_named(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text('{"conversations": []}\n\n{"conversations": [}\n')
    with pytest.raises(UsageError, match="line 3"):
        list(_rows(path))
    path.write_text('[{"conversations": []}, 3]')
    with pytest.raises(UsageError, match="a row of type int"):
        list(_rows(path))
