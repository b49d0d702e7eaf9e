"""Step 1: conversations into token ids and loss masks, by ``load_and_preprocess_dataset``.

Writes ``<output>/prepared/rows`` (a data set of the datasets library with the columns ``input_ids``
and ``loss_mask``, from speculators 0.5 on also ``seq_len``: what its trainer reads) and
``<output>/prepared/prepared.json`` (what the rows were made from, and their fingerprint).

Up to speculators 0.7 a row is a conversation. From 0.8 on it is an assistant turn with what came before it, as
inference shows it to the verifier, and the mask begins where the generation prompt ends.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .. import activation
from ..calls import accepts
from ..conversations import has_media
from ..drift import UsageError
from ..masks import without_thinking
from ..store import write_json
from ..versions import installed, matches
from .config import RunConfig
from .summary import recorded_step
from .verifier import check_run

__all__ = ["fingerprint", "load_rows", "run"]

# Loggers that say why a conversation was left out: speculators' own, and the drift's for tokenizers
# without offsets.
LOGGERS = ("speculators.data_generation.preprocessing", "speculators_compat")
THINK_TOKENS = ("<think>", "</think>")
LEFT_OUT = re.compile(
    r"^(?:Failed to process conversation \d+(?: \([^)]*\))?"
    r"|(?:Conversation(?: \d+)?|(?:A turn|Turn \d+) of conversation \d+) is dropped): (.*)"
)
# Options that releases dropped: name, last release that has it, what comes instead.
REMOVED = (
    ("assistant_pattern", "0.7.0", ": from 0.8 on the generation prompt's end marks what the assistant wrote"),
    ("turn_dropout", "0.6.0", ""),
)
CUT = re.compile(r"^Sample \d+ is cut from \d+ to (\d+) tokens")


def run(config: RunConfig) -> None:
    """Prepare the rows, unless this run folder already has them.

    Args:
        config: The run.

    Raises:
        UsageError: The folder holds rows of other inputs, or no sample is left to train on.
    """
    check_run(config)
    inputs = _inputs(config)
    if _is_done(config, inputs):
        logging.getLogger(__name__).info("%s is complete", config.prepared_dir)
        return
    with recorded_step(config, "prepare") as report:
        # Neither a token count nor a cached map of another run may be taken for this one's, so both
        # live in a folder that goes away: upstream reuses an existing token_freq.pt, and datasets
        # its caches, without a look.
        config.output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=config.output, prefix=".prepare-") as scratch:
            rows, conversations, log_lines = _preprocess(config, Path(scratch))
            rows, dropped = _clean(rows)
            missing = conversations - len(rows) - sum(dropped.values())
            reasons = _reasons(log_lines)
            if rows_are_turns() or _draws_again(config):
                # Rows and conversations do not pair, so what the log says is all that is known.
                missing = sum(reasons.values())
            _add_upstream_losses(dropped, missing, reasons)
            truncated = _truncated(log_lines)
            report.update(samples=len(rows), conversations=conversations, dropped=dropped, truncated=truncated)
            report["rows"] = "assistant turns" if rows_are_turns() else "conversations"
            if not len(rows):
                raise UsageError(
                    "At least one conversation must give a sample with a trainable token.",
                    f"none of {conversations}: {dropped}",
                    "Check prepare.data, its roles, and the model's chat template.",
                )
            report["fingerprint"] = _save(config, rows, Path(scratch), inputs)


def load_rows(config: RunConfig) -> tuple[Any, str]:
    """The prepared rows.

    Args:
        config: The run.

    Returns:
        A data set in torch format, columns ``input_ids`` and ``loss_mask`` (int64 [tokens]), and
        its fingerprint.

    Raises:
        UsageError: The prepare step has not run, or ran with other inputs.
    """
    recorded = _recorded(config)
    if recorded is None:
        raise UsageError(
            "This step needs prepared rows.",
            f"none in {config.prepared_dir}",
            "Run the prepare step.",
        )
    _refuse_other(config, recorded["inputs"], _inputs(config))
    activation.activate()  # datasets may need a drift to read its own rows
    from datasets import load_from_disk

    rows = load_from_disk(str(config.prepared_dir / "rows"))
    rows.set_format(type="torch", columns=["input_ids", "loss_mask"])
    return rows, str(recorded["fingerprint"])


def _inputs(config: RunConfig) -> dict[str, Any]:
    """Everything that decides the rows."""
    inputs = {**config.prepare.model_dump(exclude={"num_proc"}), "model": config.verifier}
    inputs |= {"seed": config.seed, "seq_length": config.seq_length}
    if _speculators_is(">=0.5"):  # their rows have a column more, and may be cut out otherwise
        inputs["rows"] = "assistant turns" if rows_are_turns() else "conversations"
    data = Path(config.prepare.data)
    files = sorted((*data.rglob("*.json"), *data.rglob("*.jsonl"))) if data.is_dir() else [data]
    if files[:1] and files[0].is_file():
        # hashlib.file_digest needs Python 3.11
        digest = hashlib.sha256()
        for path in files:
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        inputs["data_sha256"] = digest.hexdigest()
    return inputs


def _speculators_is(releases: str) -> bool:
    found = installed("speculators")
    return bool(found and matches(found.version, releases))


def rows_are_turns() -> bool:
    """Whether the installed speculators makes one sample of every assistant turn, not of every conversation."""
    return _speculators_is(">=0.8")


def _draws_again(config: RunConfig) -> bool:
    """Whether speculators prepares more conversations than are asked for, and chooses among the rows."""
    return config.prepare.max_samples is not None and _speculators_is(">=0.5")


def _recorded(config: RunConfig) -> dict[str, Any] | None:
    try:
        content = json.loads((config.prepared_dir / "prepared.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _is_done(config: RunConfig, inputs: dict[str, Any]) -> bool:
    recorded = _recorded(config)
    if recorded is None:
        return False
    _refuse_other(config, recorded["inputs"], inputs)
    return True


def _refuse_other(config: RunConfig, recorded: dict[str, Any], inputs: dict[str, Any]) -> None:
    different = sorted(key for key in recorded.keys() | inputs.keys() if recorded.get(key) != inputs.get(key))
    if different:
        raise UsageError(
            f"The rows in {config.prepared_dir} must come from this configuration.",
            "; ".join(f"{key}: {recorded.get(key)!r} there, {inputs.get(key)!r} now" for key in different),
            "Use another output folder, or delete this one. Nothing was changed.",
        )


def _preprocess(config: RunConfig, scratch: Path) -> tuple[Any, int, list[str]]:
    """Call speculators; returns rows, number of conversations, and what was logged about single ones."""
    from speculators.data_generation import preprocessing

    section = config.prepare
    _check_options(config, preprocessing)
    random.seed(config.seed)  # turn_dropout draws from the global generator
    cache_dir = str(scratch / "cache")
    load = preprocessing.load_and_preprocess_dataset
    newer = {"trust_remote_code": config.trust_remote_code, "allow_empty_output": True}
    with _warnings(scratch / "warnings.log") as log_lines:
        try:
            # In the words of 0.4; the drift preparation_names says them in the installed release's.
            rows, processor = load(
                target_model_path=config.verifier,
                train_data_path=section.data,
                seq_length=config.seq_length,
                build_dataset_num_proc=section.num_proc,
                seed=config.seed,
                max_samples=section.max_samples,
                token_freq_path=str(scratch / "token_freq.pt"),
                cache_dir=cache_dir,
                assistant_pattern=section.assistant_pattern,
                turn_dropout=section.turn_dropout,
                **{name: value for name, value in newer.items() if accepts(load, name)},
            )
        except IndexError:  # its preview of row 0 fails when no row is left, which hides what happened to them
            rows, processor = [], None
    if section.thinking == "mask" and rows:
        rows = _mask_thinking(rows, getattr(processor, "tokenizer", processor))
    raw = preprocessing.load_raw_dataset(section.data, num_proc=section.num_proc, cache_dir=cache_dir)
    conversations = len(raw[0] if isinstance(raw, tuple) else raw)  # a pair since 0.6
    return rows, min(conversations, section.max_samples or conversations), log_lines


def _trainable_form(rows: Any) -> Any:
    """Masks as numbers (truth values from 0.5 on), and no messages of multimodal rows (0.6 and later)."""
    if not len(rows):
        return rows
    if "messages" in rows.column_names:
        rows = rows.remove_columns("messages")
    from datasets import Sequence, Value

    kind = Sequence(Value("int64"))
    return rows if rows.features["loss_mask"] == kind else rows.cast_column("loss_mask", kind)


def _mask_thinking(rows: Any, tokenizer: Any) -> Any:
    """Keep thinking blocks in the samples, but train on none of their tokens."""
    import torch

    ids = [tokenizer.convert_tokens_to_ids(name) for name in THINK_TOKENS]
    if any(tokenizer.convert_ids_to_tokens(number) != name for number, name in zip(ids, THINK_TOKENS, strict=True)):
        raise UsageError(
            f"prepare.thinking: mask needs a tokenizer with the tokens {' and '.join(THINK_TOKENS)}.",
            f"{type(tokenizer).__name__} without them",
            "Set prepare.thinking: train.",
        )

    def mask(row: dict[str, Any]) -> dict[str, Any]:
        kept = without_thinking(row["input_ids"].tolist(), row["loss_mask"].tolist(), *ids)
        return {"loss_mask": torch.tensor(kept, dtype=torch.long)}

    return rows.map(mask)


def _check_options(config: RunConfig, preprocessing: Any) -> None:
    """Refuse what the installed release cannot do, before it starts."""
    section = config.prepare
    for name, last, instead in REMOVED:
        if getattr(section, name) and not accepts(preprocessing.load_and_preprocess_dataset, name):
            raise UsageError(
                f"prepare.{name} needs speculators {last} or older.",
                f"speculators {_release()}",
                f"Leave it out{instead}.",
            )
    _check_name(section.data, preprocessing)


def _check_name(data: str, preprocessing: Any) -> None:
    folders = hasattr(preprocessing, "_load_hf_dataset")  # since 0.7, and with them the hub's data sets
    known = sorted(getattr(preprocessing, "DATASET_CONFIGS", ()))  # up to 0.8
    if data.endswith((".json", ".jsonl")) or data in known or (folders and _is_open_name(data)):
        return
    raise UsageError(
        "prepare.data must be a .json or .jsonl file"
        + (", a folder of them, a data set of the hub (hf:...)" if folders else "")
        + (f", or one of {', '.join(known)}." if known else "."),
        f"{data} (speculators {_release()})",
        "Correct it.",
    )


def _is_open_name(data: str) -> bool:
    return data.startswith("hf:") or Path(data).is_dir()


def _release() -> str:
    found = installed("speculators")
    return found.version if found else "not installed"


@contextmanager
def _warnings(path: Path) -> Iterator[list[str]]:
    """Collect what is logged about single conversations, in speculators' tokenising processes too.

    The processes are forked and inherit the handler; each appends whole lines to the same file.
    """
    lines: list[str] = []
    handler = logging.FileHandler(path)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(message)s"))
    for name in LOGGERS:
        logging.getLogger(name).addHandler(handler)
    try:
        yield lines
    finally:
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(handler)
        handler.close()
        lines += path.read_text(encoding="utf-8").splitlines()


def _reasons(log_lines: list[str]) -> Counter[str]:
    """Why conversations were left out; without their numbers, so that equal reasons count together."""
    return Counter(match[1][:200] for match in map(LEFT_OUT.match, log_lines) if match)


def _truncated(log_lines: list[str]) -> dict[str, int]:
    """How many samples were cut."""
    return dict(Counter(f"longer than {match[1]} tokens" for match in map(CUT.match, log_lines) if match))


def _clean(rows: Any) -> tuple[Any, dict[str, int]]:
    """Drop what cannot train anything, and count it."""
    reasons = [_unusable(row) for row in rows]
    dropped = Counter(reason for reason in reasons if reason)
    if dropped:
        rows = rows.select([index for index, reason in enumerate(reasons) if not reason])
    return _trainable_form(rows), dict(dropped)


def _unusable(row: dict[str, Any]) -> str:
    if len(row["input_ids"]) < 2:
        return "shorter than two tokens"
    if any(map(has_media, row.get("messages") or ())):
        return "content that is not text"  # the states would be of a prompt without it
    # The trainer drops the first position: a mask that only covers it trains nothing.
    return "" if bool(row["loss_mask"][1:].any()) else "no trainable token"


def _add_upstream_losses(dropped: dict[str, int], missing: int, reasons: Counter[str]) -> None:
    """Name the conversations that speculators left out: by its own warnings as far as they go."""
    for reason, count in reasons.most_common():
        named = min(count, missing)
        if named > 0:
            dropped[reason] = dropped.get(reason, 0) + named
            missing -= named
    if missing > 0:
        dropped["left out by speculators without a reason (empty, or no known role)"] = missing


def _save(config: RunConfig, rows: Any, scratch: Path, inputs: dict[str, Any]) -> str:
    """Write the rows, then the record that makes them count as complete."""
    rows.save_to_disk(str(scratch / "rows"))
    target = config.prepared_dir / "rows"
    shutil.rmtree(target, ignore_errors=True)  # without prepared.json they are of an interrupted run
    target.parent.mkdir(parents=True, exist_ok=True)
    (scratch / "rows").rename(target)
    found = fingerprint(rows)
    write_json(config.prepared_dir / "prepared.json", {"inputs": inputs, "fingerprint": found})
    return found


def fingerprint(rows: Any) -> str:
    """SHA-256 over every row's length, ids and mask, in order.

    Args:
        rows: A data set in torch format with ``input_ids`` and ``loss_mask``.
    """
    digest = hashlib.sha256()
    for row in rows:
        digest.update(len(row["input_ids"]).to_bytes(8, "little"))
        for name in ("input_ids", "loss_mask"):
            digest.update(row[name].long().numpy().tobytes())
    return digest.hexdigest()
