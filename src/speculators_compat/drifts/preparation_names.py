"""Preparing a dataset took one path up to speculators 0.4; later releases take a list, and fewer options each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..calls import accepts
from ..drift import Drift, UsageError, wrap
from ._moved import gone, old_names
from ._preparation import CACHE_DIR
from ._training import PREPROCESSING

#: The parameters of 0.4, in their order.
POSITIONAL = (
    "target_model_path",
    "train_data_path",
    "seq_length",
    "build_dataset_num_proc",
    "seed",
    "max_samples",
    "token_freq_path",
    "cache_dir",
    "assistant_pattern",
    "turn_dropout",
)
#: What became of those that a release no longer takes.
INSTEAD = {
    "assistant_pattern": "From 0.8 on a server's rendering of a turn makes its mask (render_endpoint); 0.7.0 takes it.",
    "turn_dropout": "speculators 0.6.0 is the last that has it.",
}


def _in_new_words(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    one_path = "train_data_path" in kwargs or (len(args) > 1 and isinstance(args[1], str))
    if not one_path:
        return wrapped(*args, **kwargs)
    given = {**dict(zip(POSITIONAL, args, strict=False)), **kwargs}
    given["train_data_paths"] = [given.pop("train_data_path")]
    cache_dir = given.pop("cache_dir", None)
    for name, instead in INSTEAD.items():
        if name in given and not accepts(wrapped, name) and given.pop(name):
            raise UsageError(f"This speculators cannot prepare data with {name}.", f"{name} was passed", instead)
    with _cache(cache_dir):
        return wrapped(**given)


def _load_raw(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = {**dict(zip(("train_data_path", "num_proc", "cache_dir"), args, strict=False)), **kwargs}
    if not accepts(wrapped, "num_proc"):  # since 0.6: only named data sets were mapped
        given.pop("num_proc", None)
    with _cache(given.pop("cache_dir", None)):
        return wrapped(**given)


def _load_dataset(wrapped: Any, instance: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    cache_dir = CACHE_DIR.get()
    return wrapped(*args, **({"cache_dir": cache_dir} if cache_dir else {}), **kwargs)


@contextmanager
def _cache(cache_dir: str | None) -> Iterator[None]:
    """What is loaded inside keeps its files in a folder; None: where it did."""
    token = CACHE_DIR.set(cache_dir or CACHE_DIR.get())
    try:
        yield
    finally:
        CACHE_DIR.reset(token)


DRIFT = Drift(
    id="preparation_names",
    title="load_and_preprocess_dataset takes the arguments of 0.4",
    symptom="TypeError: load_and_preprocess_dataset() got an unexpected keyword argument 'train_data_path'",
    call_site="data_generation/preprocessing.py:load_and_preprocess_dataset",
    speculators=">=0.5",
    since=None,
    until=None,
    upstream="https://github.com/vllm-project/speculators/blob/v0.5.0/src/speculators/data_generation/preprocessing.py",
    tripwire=f"{PREPROCESSING}:load_and_preprocess_dataset",
    sites=(
        wrap(f"{PREPROCESSING}:load_and_preprocess_dataset", _in_new_words),
        wrap(f"{PREPROCESSING}:load_raw_dataset", _load_raw),
        wrap(f"{PREPROCESSING}:load_dataset", _load_dataset),
        old_names(
            PREPROCESSING,
            {
                "build_eagle3_dataset": gone(
                    f"{PREPROCESSING}.build_eagle3_dataset",
                    "0.7.0",
                    "build_speculator_training_dataset replaced it; its masks come from rendered turns.",
                )
            },
        ),
    ),
)
