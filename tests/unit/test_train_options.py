"""Algorithms, options and settings by release, without speculators: what is offered, refused and handed on."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace

import pytest

from speculators_compat import versions
from speculators_compat.drift import UsageError
from speculators_compat.pipeline import checkpoints, train_settings
from speculators_compat.pipeline.config import RunConfig
from speculators_compat.pipeline.draft import _window, mask_token
from speculators_compat.pipeline.splits import split, split_rows, splits
from speculators_compat.pipeline.train_metrics import listening, result, validations
from speculators_compat.pipeline.train_options import FIELD_OF, algorithms, check_options, known_options
from speculators_compat.pipeline.training_run import TrainingRun
from speculators_compat.serve_check.prompts import _held_out

VOCABULARY = 163840


@pytest.fixture
def release(monkeypatch):
    """Say which speculators is installed."""

    def install(version: str) -> None:
        found = versions.Installed("speculators", "speculators", version)
        monkeypatch.setattr(versions, "installed", lambda module: found if module == "speculators" else None)

    return install


def config(tmp_path, **train) -> RunConfig:
    return RunConfig.model_validate(
        {"model": "some/model", "output": str(tmp_path / "run"), "prepare": {"data": "sharegpt"}, "train": train}
    )


@pytest.mark.parametrize(
    ("version", "offered"),
    [
        ("0.3.0", ["eagle3"]),
        ("0.4.0.1", ["eagle3"]),
        ("0.5.0", ["dflash", "eagle3"]),
        ("0.6.0", ["dflash", "eagle3", "peagle"]),
    ],
)
def test_another_algorithm_is_refused_with_those_offered(release, tmp_path, version, offered):
    release(version)
    assert algorithms() == offered
    for name in offered:
        check_options(config(tmp_path, algorithm=name), VOCABULARY)
    with pytest.raises(UsageError) as error:
        check_options(config(tmp_path, algorithm="mtp"), VOCABULARY)
    assert f"{', '.join(offered)}. Found: 'mtp'" in str(error.value)


def test_an_unknown_option_is_refused_with_those_known(release, tmp_path):
    release("0.5.0")
    check_options(config(tmp_path, algorithm="dflash", options={"block_size": 4}), VOCABULARY)
    with pytest.raises(UsageError, match=r"Found: block_size\. Known: .*norm_before_fc") as error:
        check_options(config(tmp_path, options={"block_size": 4}), VOCABULARY)
    assert "max_anchors" not in error.value.way_out
    release("0.4.0")
    with pytest.raises(UsageError, match="Known: none"):
        check_options(config(tmp_path, options={"log_freq": 4}), VOCABULARY)


@pytest.mark.parametrize("option", ["lr", "epochs", "seed", "draft_vocab_size", "target_layer_ids"])
def test_what_a_field_says_is_refused_with_the_field(release, tmp_path, option):
    release("0.6.0")
    with pytest.raises(UsageError, match=rf"{option} \(the field {FIELD_OF[option]}\)"):
        check_options(config(tmp_path, options={option: 1}), VOCABULARY)


@pytest.mark.parametrize(("often", "epochs"), [(0.5, 4), (3, 20), ("1", 4), (0, 4)])
def test_a_checkpoint_is_the_end_of_an_epoch_and_the_last_has_one(release, tmp_path, often, epochs):
    release("0.6.0")
    with pytest.raises(UsageError, match=r"divide train\.epochs"):
        check_options(config(tmp_path, epochs=epochs, options={"checkpoint_freq": often}), VOCABULARY)
    check_options(config(tmp_path, epochs=20, options={"checkpoint_freq": 5}), VOCABULARY)


def test_a_field_that_the_draft_does_not_read_is_refused_where_it_was_written(release, tmp_path):
    release("0.6.0")
    check_options(config(tmp_path, algorithm="dflash"), VOCABULARY)
    check_options(config(tmp_path, algorithm="peagle", draft={"norm_before_residual": True}), VOCABULARY)
    fields = {"algorithm": "dflash", "ttt_steps": 5, "draft": {"norm_before_residual": True}}
    with pytest.raises(UsageError, match=r"dflash draft\. Found: train\.ttt_steps, train\.draft\.norm_before_residual"):
        check_options(config(tmp_path, **fields), VOCABULARY)


def test_every_named_field_exists():
    for field in FIELD_OF.values():
        fields, *names = RunConfig.model_fields, *field.split(".")
        for name in names:
            assert name in fields, field
            fields = getattr(fields[name].annotation, "model_fields", {})


def test_no_option_is_both_offered_and_a_field(release):
    for version in ("0.5.0", "0.6.0"):
        release(version)
        for name in algorithms():
            assert not FIELD_OF.keys() & known_options(name).keys()


@pytest.mark.parametrize(
    ("version", "fields", "message"),
    [
        ("0.7.0", {"use_off_policy_tokens": False}, "always feeds ground-truth tokens"),
        ("0.9.0", {"noise_std": 0.1}, "adds no noise"),
    ],
)
def test_what_a_release_cannot_do_any_more_is_refused_only_where_it_was_asked_for(
    release, tmp_path, version, fields, message
):
    release(version)
    check_options(config(tmp_path), VOCABULARY)
    with pytest.raises(UsageError, match=message):
        check_options(config(tmp_path, **fields), VOCABULARY)


def test_asking_for_what_a_release_does_anyway_passes(release, tmp_path):
    release("0.9.0")
    check_options(config(tmp_path, use_off_policy_tokens=True, noise_std=0.0), VOCABULARY)
    release("0.8.1")
    check_options(config(tmp_path, noise_std=0.1), VOCABULARY)


def run_of(tmp_path, **train) -> TrainingRun:
    verifier = SimpleNamespace(layer_ids=[2, 30, 58, 60], vocab_size=VOCABULARY, hidden_size=7168)
    return TrainingRun(config(tmp_path, **train), verifier, (None, None), {}, ([0], [1]))


@pytest.fixture
def no_decoder(monkeypatch, tmp_path):
    monkeypatch.setattr(train_settings, "_write_decoder", lambda run: tmp_path / "draft")


def test_settings_carry_the_runs_own_fields(release, tmp_path, no_decoder):
    release("0.9.0")
    found = train_settings.flat_settings(run_of(tmp_path, epochs=3, lr=0.5, resume=False, options={"weight_decay": 7}))
    # The ids that vLLM serves: one more than the run's, and the target is no input.
    assert found["target_layer_ids"] == [3, 31, 59]
    assert (found["epochs"], found["lr"], found["no_resume_from_checkpoint"]) == (3, 0.5, True)
    assert (found["draft_vocab_size"], found["weight_decay"], found["on_missing"]) == (32000, 7, "raise")
    run = tmp_path / "run"
    assert found["data_path"] == str(run / "prepared" / "rows")
    assert found["hidden_states_path"] == str(run / "data" / "hidden_states")
    assert (found["d2t_path"], found["draft_config"]) == (str(run / "vocab" / "d2t.npy"), str(tmp_path / "draft"))
    assert not {"noise_std", "use_off_policy_tokens"} & found.keys()


def test_settings_of_older_releases(release, tmp_path, no_decoder):
    release("0.6.0")
    found = train_settings.flat_settings(run_of(tmp_path, noise_std=0.5))
    assert (found["noise_std"], found["use_off_policy_tokens"]) == (0.5, False)
    assert "draft_config" not in found
    release("0.8.1")
    assert train_settings.flat_settings(run_of(tmp_path, noise_std=0.5))["noise_std"] == 0.5


def test_a_draft_with_the_whole_vocabulary_takes_no_mapping(release, tmp_path, no_decoder):
    release("0.9.0")
    run = run_of(tmp_path)
    run.verifier.vocab_size = 32000
    found = train_settings.flat_settings(run)
    assert [found[name] for name in ("draft_vocab_size", "d2t_path", "t2d_path")] == [None, None, None]


def test_the_mask_token_that_was_asked_for(release, tmp_path):
    release("0.9.0")
    run = run_of(tmp_path, algorithm="dflash", options={"mask_token_id": 5})
    assert mask_token(run.config, run.verifier) == 5
    for wrong in (VOCABULARY, -1, "x"):
        run = run_of(tmp_path, algorithm="dflash", options={"mask_token_id": wrong})
        with pytest.raises(UsageError, match="must be a token of the verifier"):
            mask_token(run.config, run.verifier)


def test_layers_that_see_everything():
    found = _window(2048, [1], 2)
    assert found["layer_types"] == ["sliding_attention", "full_attention"]
    assert (found["sliding_window"], found["use_sliding_window"]) == (2048, True)
    assert _window(2048, [0], 1)["use_sliding_window"] is False
    with pytest.raises(UsageError, match="0 to 0"):
        _window(2048, [1], 1)


def test_rows_are_cut_where_the_data_set_cuts_them(release, tmp_path):
    assert split_rows(range(10), 0.75) == ([0, 1, 2, 3, 4, 5, 6], [7, 8, 9])
    with pytest.raises(UsageError, match="at least one sample each"):
        split_rows(range(3), 0.1)
    release("0.5.0")
    assert splits(config(tmp_path, train_ratio=0.75), range(10)) == split_rows(range(10), 0.75)
    release("0.4.0")
    assert splits(config(tmp_path, train_ratio=0.75), range(10)) == split(list(range(10)), 0.75, 0)


@pytest.mark.parametrize(("extra", "expected"), [({"split": "first rows"}, [7, 8, 9]), ({}, None)])
def test_serve_check_draws_from_the_rows_that_were_held_out(tmp_path, extra, expected):
    (tmp_path / "checkpoints").mkdir()
    record = {"train_ratio": 0.75, "seed": 3, **extra}
    (tmp_path / "checkpoints" / checkpoints.INPUTS).write_text(json.dumps(record))
    assert _held_out(tmp_path, 10) == (expected or sorted(split(list(range(10)), 0.75, 3)[1]))


def test_metrics_are_kept_and_a_logged_configuration_is_not(tmp_path):
    run = config(tmp_path)
    run.output.mkdir()
    logger = logging.getLogger("speculators.metrics")
    with listening(run):
        logger.info({"lr": 1.0, "data": {}}, extra={"hparams": True})
        logger.info({"train": {"loss": 3.0}, "epoch": 0}, extra={"step": 0})
        logger.info({"train": {"loss": 2.0}, "epoch": 0}, extra={"step": 1})
        logger.info({"val": {"loss_epoch": 2.5}, "epoch": 0}, extra={"step": 2})
    assert set(validations(run)) == {0}
    found = result(run)
    assert (found["steps"], found["first_loss"], found["last_loss"], found["last_validation_loss"]) == (
        2,
        3.0,
        2.0,
        2.5,
    )


def test_what_may_change_when_a_run_resumes(release, tmp_path):
    release("0.9.0")
    # A run of a few steps is not the one without that limit.
    found = checkpoints._newer_inputs(config(tmp_path, options={"log_freq": 2, "weight_decay": 0.1, "max_steps": 5}))
    assert found["options"] == {"max_steps": 5, "weight_decay": 0.1}
    assert (found["algorithm"], found["speculators"], found["split"]) == ("eagle3", "0.9.0", "first rows")
    release("0.4.0")
    assert checkpoints._newer_inputs(config(tmp_path)) == {}


def test_a_plan_shares_the_draft_only_among_processes_that_do(release, tmp_path):
    from speculators_compat.pipeline.plan import _notes_of_trainer, _shards

    eight = config(tmp_path, num_processes=8)
    for version, shards in (("0.4.0", 8), ("0.6.0", 8), ("0.7.0", 1)):
        release(version)
        assert _shards(eight) == shards
    assert _shards(config(tmp_path, num_processes=8, options={"fsdp_shard": True})) == 8
    assert len(_notes_of_trainer(config(tmp_path, algorithm="dflash"))) == 2
    release("0.4.0")
    assert _notes_of_trainer(eight) == []
