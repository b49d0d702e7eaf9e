"""The picture at the end of a run: what is read, what is drawn, and that a page is safe and whole by itself."""

from __future__ import annotations

import base64
import html.parser
import json
import logging
import math
import re
import struct
import sys

import pytest
import yaml
from tests.unit.test_cli import refused, run

from speculators_compat.drift import UsageError
from speculators_compat.pipeline import page
from speculators_compat.pipeline import run as running
from speculators_compat.pipeline.config import RunConfig
from speculators_compat.pipeline.curves import Head, read_curves, read_heads, read_lengths, running_mean, thin
from speculators_compat.pipeline.pictures import NAMES, draw

HOSTILE = "<script>alert(1)</script>\"' onload='x' & $\\frac{$"


def train(step: int, epoch: int, loss: float, **more: float) -> dict:
    return {"step": step, "train": {"loss": loss, **more}, "epoch": epoch, "lr": 1e-4}


def val(step: int, epoch: int, loss: float, **more: float) -> dict:
    return {"step": step, "val": {"loss_epoch": loss, **more}, "epoch": epoch}


def accuracies(first: float, suffix: str = "") -> dict[str, float]:
    return {f"full_acc_{step}{suffix}": first / (step + 1) for step in range(3)}


FINISHED = [
    *(train(step, step // 10, 5.0 / (step + 1), **accuracies(step / 40)) for step in range(20)),
    val(20, 1, 0.7, **accuracies(0.5, "_epoch")),
]


@pytest.fixture
def config(tmp_path) -> RunConfig:
    content = {"model": f"some/{HOSTILE}", "output": str(tmp_path / "run"), "prepare": {"data": "sharegpt"}}
    return RunConfig.model_validate(content)


def write_metrics(config: RunConfig, records: list) -> None:
    config.output.mkdir(parents=True, exist_ok=True)
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    (config.output / "train_metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))


def finish(config: RunConfig, acceptance: dict | None = None) -> None:
    """What a finished run leaves, with hostile names wherever a name can stand."""
    config.steps_dir.mkdir(parents=True)
    config.data_dir.mkdir()
    prepare = {"samples": 3, "conversations": 4, "dropped": {HOSTILE: 1}, "truncated": {}, "seconds": 1.0}
    (config.steps_dir / "prepare.json").write_text(json.dumps(prepare))
    (config.data_dir / "sample_lengths.json").write_text(json.dumps({"0": 5, "1": 9, "2": 300}))
    (config.data_dir / "manifest.json").write_text(json.dumps({"versions": {"vllm": HOSTILE}}))
    write_metrics(config, FINISHED)
    if acceptance is not None:
        (config.output / "serve_check.json").write_text(json.dumps({"heads": acceptance}))


class Reader(html.parser.HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_data(self, data):
        self.words += data


def png_size(content: bytes) -> tuple[int, int]:
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", content[16:24])


def test_curves_follow_the_steps(config):
    write_metrics(config, FINISHED)
    curves = read_curves(config)
    assert curves.series("loss") == [5.0 / (step + 1) for step in range(20)]
    assert curves.validation_series("loss") == [(20, 0.7)]
    assert curves.validation_series("full_acc_1") == [(20, 0.25)]
    assert curves.draft_steps() == 3
    assert curves.unreadable == 0


def test_a_resumed_run_replaces_the_epoch_that_was_interrupted(config):
    """The trainer counts its steps from 0 again and repeats the epoch of which no checkpoint was saved."""
    first = [train(0, 0, 9.0), train(1, 0, 8.0), val(2, 0, 7.5), train(2, 1, 7.0), train(3, 1, 6.9)]
    write_metrics(config, [*first, train(0, 1, 5.0), train(1, 1, 4.0), val(2, 1, 3.5)])
    curves = read_curves(config)
    assert curves.series("loss") == [9.0, 8.0, 5.0, 4.0]
    assert curves.validation_series("loss") == [(2, 7.5), (4, 3.5)]


def test_what_is_no_record_is_counted_and_left_out(config):
    records = [
        train(0, 0, 3.0),
        "{half",
        "[]",
        '"text"',
        {"step": 1, "epoch": 0},
        {"step": "x", "epoch": 0, "train": {}},
    ]
    write_metrics(config, [*records, train(1, 0, math.nan), train(2, 0, math.inf), train(3, 0, 2.0)])
    curves = read_curves(config)
    assert curves.unreadable == 5
    loss = curves.series("loss")
    assert (loss[0], loss[3]) == (3.0, 2.0)
    assert math.isnan(loss[1])
    assert math.isnan(loss[2])
    assert curves.series("other") == []
    assert len(draw(curves, [], [])) == 1


def test_nothing_there_is_nothing_to_draw(config):
    assert (read_curves(config).train, read_lengths(config), read_heads(config)) == ([], [], [])
    assert draw(read_curves(config), [], []) == []


@pytest.mark.parametrize("text", ["", "[]", "{", '{"heads": 3}', '{"heads": {"a": 1}}', "[" * 100_000])
def test_damaged_files_are_no_error(config, text):
    finish(config)
    (config.output / "serve_check.json").write_text(text)
    (config.data_dir / "sample_lengths.json").write_text(text)
    (config.data_dir / "manifest.json").write_text(text)
    assert (read_heads(config), read_lengths(config)) == ([], [])
    assert page.write_report(config).is_file()


def test_heads_are_those_with_shares_by_position(config):
    good = {"acceptance_per_position": [0.5, 0, 1], "mean_acceptance_length": 2.5}
    bad = ([], [1.5], [math.nan], ["x"], None, [True])
    heads = {"trained": good, **{f"bad{i}": {"acceptance_per_position": values} for i, values in enumerate(bad)}}
    finish(config, {**heads, "no mean": {"acceptance_per_position": [0.25]}})
    assert read_heads(config) == [Head("trained", [0.5, 0.0, 1.0], 2.5), Head("no mean", [0.25], None)]


def test_smoothing_by_hand():
    assert running_mean([1, 2, 6, 4], 1) == [1, 2, 6, 4]
    assert running_mean([1, 2, 6, 4], 3) == [1.5, 3, 4, 5]
    assert running_mean([1, math.nan, 3, 5], 2) == [1, 2, 4, 4]
    assert math.isnan(running_mean([math.nan], 3)[0])
    assert thin([1, 2, 3], 3) == ([1, 2, 3], [1, 2, 3])
    assert thin([1, 3, 5, 7, 9], 3) == ([1.5, 3.5, 5], [2, 6, 9])
    places, values = thin(range(100_000), 600)
    assert len(places) == len(values) <= 600


def test_every_picture_is_drawn_at_a_readable_size(config):
    finish(config, {"trained": {"acceptance_per_position": [0.7, 0.5, 0.3], "mean_acceptance_length": 2.5}})
    pictures = draw(read_curves(config), read_lengths(config), read_heads(config))
    assert tuple(picture.name for picture in pictures) == NAMES
    assert {png_size(picture.png) for picture in pictures} == {(900, 540)}
    assert len({picture.png for picture in pictures}) == 4
    assert pictures[1].caption
    # the picture is of the data: others look otherwise, the same look the same
    other = draw(read_curves(config), [5, 9, 200], read_heads(config))
    assert [mine.png == theirs.png for mine, theirs in zip(pictures, other, strict=True)] == [True, True, False, True]


@pytest.mark.parametrize("name", [HOSTILE, "_hidden", "$", "\\", "", "x" * 1000])
def test_names_of_heads_are_text(config, name):
    (picture,) = draw(read_curves(config), [], [Head(name, [0.5], 1.5)])
    assert png_size(picture.png) == (900, 540)


@pytest.mark.parametrize("lengths", [[1], [7, 7, 7], [1, 10**6]])
def test_any_lengths_make_a_histogram(config, lengths):
    (picture,) = draw(read_curves(config), lengths, [])
    assert f"{sum(lengths):,} tokens" in picture.caption


def test_the_page_is_whole_by_itself_and_escapes_every_name(config):
    finish(config, {HOSTILE: {"acceptance_per_position": [0.7, 0.5], "mean_acceptance_length": 2.2}})
    path = page.write_report(config)
    assert path == config.output / "report.html"
    text = path.read_text()
    found = Reader(text)
    assert "script" not in found.tags
    assert not [item for item in found.attributes if item[1].startswith("on")]
    # model, dropped reason, version at extraction, name of the head
    assert found.words.count(HOSTILE) >= 5
    sources = [value for _, name, value in found.attributes if name in ("src", "href", "action", "srcset")]
    assert len(sources) == 4
    for source in sources:
        assert png_size(base64.b64decode(source.removeprefix("data:image/png;base64,"), validate=True)) == (900, 540)
    assert not re.search(r"https?:|url\(|@import|<link", re.sub(r'src="data:[^"]*"', "", text))
    assert ("meta", "content", page.POLICY) in found.attributes
    assert "3 of 4 conversations" in found.words
    assert "70.0%, 50.0%" in found.words
    assert sorted(entry.name for entry in (config.output / "pictures").iterdir()) == sorted(f"{n}.png" for n in NAMES)
    assert (config.output / "pictures" / "loss.png").read_bytes() == base64.b64decode(sources[0].partition(",")[2])


def test_a_run_without_training_says_so(config):
    finish(config)
    (config.output / "train_metrics.jsonl").unlink()
    text = page.write_report(config).read_text()
    assert "the train step has not run" in text
    assert "serve-check has not run" in text
    assert Reader(text).tags.count("img") == 1


def test_a_picture_of_something_that_is_gone_goes_too(config):
    finish(config)
    page.write_report(config)
    (config.output / "train_metrics.jsonl").unlink()
    page.write_report(config)
    assert [entry.name for entry in (config.output / "pictures").iterdir()] == ["lengths.png"]


def test_without_matplotlib_the_page_has_no_pictures_and_one_line_says_how_to_get_them(config, monkeypatch, caplog):
    finish(config, {"trained": {"acceptance_per_position": [0.7], "mean_acceptance_length": 1.7}})
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with caplog.at_level(logging.INFO):
        text = page.write_report(config).read_text()
    assert [record.message for record in caplog.records] == [page.WITHOUT]
    assert "pip install" in page.WITHOUT
    assert "img" not in Reader(text).tags
    assert "70.0%" in text
    assert not (config.output / "pictures").exists()


def test_a_matplotlib_that_fails_costs_the_pictures_only(config, monkeypatch):
    finish(config)

    def fail(*args):
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr(page, "draw", fail)
    found = Reader(page.write_report(config).read_text())
    assert f"matplotlib failed with RuntimeError: {HOSTILE}" in found.words


def test_a_failing_report_does_not_fail_a_finished_run(config, tmp_path, monkeypatch, caplog):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    started = []
    monkeypatch.setattr(running, "check_inputs", lambda config: None)
    monkeypatch.setattr(running, "_run_process", lambda command, env: started.append(command) or 0)

    def fail(config):
        raise OSError("no space left")

    monkeypatch.setattr(page, "write_report", fail)
    summary = running.run_pipeline(path)
    assert len(started) == 4
    assert summary["output"] == str(config.output)
    assert "the run is complete, but its report could not be written: OSError: no space left" in caplog.text


def test_a_finished_run_has_its_report(config, tmp_path, monkeypatch):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    finish(config)
    monkeypatch.setattr(running, "check_inputs", lambda config: None)
    monkeypatch.setattr(running, "_run_process", lambda command, env: 0)
    running.run_pipeline(path)
    assert (config.output / "report.html").is_file()
    assert (config.output / "pictures" / "accuracy.png").is_file()


def test_a_report_of_no_run_is_refused(config):
    with pytest.raises(UsageError, match="at least one step has finished"):
        page.write_report(config)
    assert not config.output.exists()


def test_the_command(config, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    assert "at least one step" in refused(run("report", path, cwd=tmp_path))
    finish(config)
    result = run("report", path, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == str(config.output / "report.html")
