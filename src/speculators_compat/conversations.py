"""Conversations as people store them, read into one form without losing a turn, a thought or a tool call.

Rows of chat data name their keys in a dozen ways. speculators' own normalisation keeps role and text, skips turns whose
role it does not know and forgets reasoning and tool calls, so that the verifier would be shown a conversation that
never took place. What cannot be kept is refused with a reason here; who drops a conversation counts it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "AS_GIVEN",
    "Turn",
    "are_arrow_safe",
    "has_media",
    "is_list",
    "pack",
    "read_turns",
    "role_of",
    "unpack",
]

Turn = dict[str, Any]

#: Key under which :func:`pack` keeps a whole turn as JSON.
AS_GIVEN = "as_given"
TOKENS = ("input_ids", "loss_mask")
KEPT = ("conversations", *TOKENS)
REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
ROLES = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "model"), "assistant"),
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("tool", "function", "observation", "ipython"), "tool"),
}


def read_turns(conversation: Sequence[Any], turn_dropout: bool = False, media: bool = False) -> list[Turn]:
    """Read a conversation into turns that every chat template understands.

    Args:
        conversation: Turns with ``role``/``content`` or ``from``/``value``; content is text, a list of text parts
            (OpenAI's form) or absent. An assistant's reasoning stands under ``reasoning_content``, ``reasoning`` or
            ``thinking``, or in a ``<think>`` block at the start of its content.
        turn_dropout: Keep only a random number of first turns, through the end of an assistant turn (as speculators
            does, from the global random generator).
        media: Keep content with parts that are not text as it is, for a caller that can show them to the verifier.

    Returns:
        One dictionary a turn: ``role`` (``system``, ``user``, ``assistant``, ``tool``), ``content`` (text), and where
        given ``name``, ``tool_call_id``, ``tool_calls`` (ids filled in), and the reasoning, as ``reasoning_content``
        and as ``thinking`` since templates ask for one or the other.

    Raises:
        ValueError: A turn cannot be kept as it is: unknown role, content that is not text, tool calls of another
            shape, or there are no turns.
    """
    if not conversation:
        raise ValueError("it has no turns")
    turns = [_turn(given, number, media) for number, given in enumerate(conversation, 1)]
    _name_tool_calls(turns)
    return _first_turns(turns) if turn_dropout else turns


def has_media(turn: Mapping[str, Any]) -> bool:
    """Whether a turn's content has parts that are not text.

    Args:
        turn: A turn with ``content``.
    """
    content = turn.get("content")
    return isinstance(content, list) and any(isinstance(part, dict) and _kind(part) != "text" for part in content)


def are_arrow_safe(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether an Arrow table keeps the rows of a file as they are.

    A column has one type there: tool arguments of two shapes are merged into one with nulls, and text beside lists of
    parts, or a number beside text, is an error.

    Args:
        rows: Rows of JSON files.
    """
    kinds: dict[str, type] = {}
    for row in rows:
        if row.get("tools") or any(map(_is_nested, _conversation(row))):
            return False
        for key, value in row.items():
            if value is None or (isinstance(value, list) and key in KEPT):
                continue
            if isinstance(value, dict | list) or kinds.setdefault(key, type(value)) is not type(value):
                return False
    return True


def pack(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row for an Arrow table: each turn as JSON under :data:`AS_GIVEN`, everything else but token ids as JSON.

    Args:
        row: A row of a JSON file.
    """
    packed: dict[str, Any] = {key: json.dumps(value, ensure_ascii=False) for key, value in row.items() if value}
    packed |= {key: row[key] for key in TOKENS if key in row}
    if "conversations" in row:
        packed["conversations"] = [{AS_GIVEN: json.dumps(turn, ensure_ascii=False)} for turn in _conversation(row)]
    return packed


def unpack(turn: Any) -> Any:
    """A turn as the file has it.

    Args:
        turn: A turn of a row of an Arrow table, packed or not.
    """
    return json.loads(turn[AS_GIVEN]) if isinstance(turn, dict) and turn.get(AS_GIVEN) else turn


def _conversation(row: Mapping[str, Any]) -> list[Any]:
    conversation = row.get("conversations")
    return conversation if isinstance(conversation, list) else []


def _is_nested(turn: Any) -> bool:
    return not isinstance(turn, dict) or not all(value is None or isinstance(value, str) for value in turn.values())


def role_of(turn: Mapping[str, Any]) -> str | None:
    """``system``, ``user``, ``assistant`` or ``tool``; None for a role that nobody knows.

    Args:
        turn: In either of the two usual forms.
    """
    name = turn.get("role", turn.get("from"))
    return ROLES.get(name.lower()) if isinstance(name, str) else None


def is_list(path: Path) -> bool:
    """Whether a file is one JSON list, not a row in each line.

    Args:
        path: A .json or .jsonl file.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        return file.read(4096).lstrip()[:1] == b"["


def _turn(given: Any, number: int, media: bool) -> Turn:
    given = unpack(given)
    if not isinstance(given, dict):
        raise ValueError(f"turn {number} is not a table of keys")
    # Rows of one Arrow table have the same keys: those that a turn lacks are None.
    fields = {key: value for key, value in given.items() if value is not None}
    role = role_of(fields)
    if role is None:
        raise ValueError(f"turn {number} has the role {fields.get('role', fields.get('from'))!r}")
    turn: Turn = {"role": role, "content": fields.get("content", fields.get("value", ""))}
    if not (media and has_media(turn)):
        turn["content"] = _text(turn["content"], number)
    turn |= {key: str(fields[key]) for key in ("name", "tool_call_id") if fields.get(key)}
    return turn | _assistant(fields, turn, number) if role == "assistant" else turn


def _text(content: Any, number: int) -> str:
    """Content as text; parts stand one after the other, as Kimi's template has them."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ValueError(f"turn {number} has content of type {type(content).__name__}")
    texts = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) else part
        kind = _kind(part) if isinstance(part, dict) else "text"
        if kind != "text" or not isinstance(text, str):
            # An image is not in the token ids, and states without it would be of another prompt.
            raise ValueError(f"turn {number} has a content part of type {kind!r}; only text can be prepared")
        texts.append(text)
    return "".join(texts)


def _kind(part: Mapping[str, Any]) -> Any:
    # Parts of one Arrow table have the same keys: a type that is absent is None.
    return part.get("type") or "text"


def _assistant(fields: Mapping[str, Any], turn: Turn, number: int) -> Turn:
    """Reasoning and tool calls of an assistant turn."""
    extra: Turn = {}
    reasoning = next((fields[key] for key in REASONING_KEYS if fields.get(key)), "")
    if reasoning:
        extra = dict.fromkeys(("reasoning_content", "thinking"), _text(reasoning, number))
    calls = fields.get("tool_calls")
    if isinstance(calls, str) and calls:
        calls = json.loads(calls)  # a JSONDecodeError is a ValueError
    if calls:
        extra["tool_calls"] = [_tool_call(call, number) for call in calls]
    return extra


def _tool_call(call: Any, number: int) -> Turn:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ValueError(f"turn {number} has a tool call without function.name")
    arguments = function.get("arguments")
    kept = {"name": function["name"], "arguments": {} if arguments is None else arguments}
    return {"type": "function", "id": call.get("id"), "function": kept}


def _name_tool_calls(turns: list[Turn]) -> None:
    """Give calls without an id Kimi's: function and a number that counts through the conversation."""
    calls = [call for turn in turns for call in turn.get("tool_calls", ())]
    for index, call in enumerate(calls):
        call["id"] = call["id"] or f"functions.{call['function']['name']}:{index}"


def _first_turns(turns: list[Turn]) -> list[Turn]:
    wanted = random.randint(1, len(turns))  # noqa: S311 (not for secrets)
    ends = (end for end in range(wanted, len(turns) + 1) if turns[end - 1]["role"] == "assistant")
    return turns[: next(ends, len(turns))]
