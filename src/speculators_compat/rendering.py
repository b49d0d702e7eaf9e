"""Token ids of a conversation, by the model's own chat template and slow tokenizer.

Two things that a plain ``apply_chat_template`` would do are mended. Templates of the Kimi family blank the reasoning of
earlier turns, so it is put back where the template leaves its empty block. And a message that quotes a control token
(``<|im_end|>`` in a question about chat formats) is spelled in ordinary tokens: as a control token it would end or
open a turn, and the loss mask would train on somebody else's words.
"""

from __future__ import annotations

import json
import re
from typing import Any

from .conversations import Turn

__all__ = ["Renderer"]

# Unicode noncharacters: no text contains them, no template takes them for space, and JSON keeps them.
CUT, REASONING = "\ufdd0", "\ufdd1"
OPEN, CLOSE = "<think>", "</think>"
# What an assistant writes itself stays a control token in its own content.
SPOKEN = re.compile("think|tool_call")


class Renderer:
    """Renders conversations for one tokenizer.

    Args:
        tokenizer: A transformers tokenizer with a chat template.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        added = (str(token) for token in getattr(tokenizer, "added_tokens_decoder", {}).values())
        names = {name for name in (*tokenizer.all_special_tokens, *added) if len(name) > 1}
        self._control = _any_of(names)
        self._foreign = _any_of({name for name in names if not SPOKEN.search(name)})

    def token_ids(self, turns: list[Turn], tools: list[Any] | None = None) -> list[int]:
        """Ids of a whole conversation.

        Args:
            turns: As :func:`.conversations.read_turns` gives them.
            tools: Declarations of the tools, as the template takes them.

        Returns:
            Token ids, without anything added around the template's own text.

        Raises:
            ValueError: The conversation cannot be rendered so that every message stays what it is.
        """
        if tools and self._control.search(json.dumps(tools, ensure_ascii=False)):
            raise ValueError("its tool declarations quote a control token")
        if any(mark in json.dumps(turns, ensure_ascii=False) for mark in (CUT, REASONING)):
            raise ValueError("it contains a Unicode noncharacter")
        split = [_split_reasoning(turn) for turn in turns]
        safe = [self._safe(turn) for turn, _ in split]
        reasoning = [self._spell(text, self._control) for _, text in split if text]
        text = self._tokenizer.apply_chat_template(safe, tools=tools, tokenize=False, add_generation_prompt=False)
        text = _with_reasoning(text, reasoning)
        pieces = text.split(CUT)
        if len(pieces) - 1 != json.dumps([safe, reasoning], ensure_ascii=False).count(CUT):
            raise ValueError("it quotes a control token in a text that the chat template repeats or changes")
        return [token for piece in pieces for token in self._ids(piece)]

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _safe(self, turn: Turn) -> Turn:
        """The turn with quoted control tokens cut in two."""
        own = self._foreign if turn["role"] == "assistant" else self._control
        return {
            key: self._spell(value, own if key == "content" else self._control) if key != "role" else value
            for key, value in turn.items()
        }

    def _spell(self, value: Any, names: re.Pattern[str]) -> Any:
        if isinstance(value, str):
            return names.sub(lambda found: found[0][0] + CUT + found[0][1:], value)
        if isinstance(value, dict):
            return {self._spell(key, names): self._spell(item, names) for key, item in value.items()}
        return [self._spell(item, names) for item in value] if isinstance(value, list) else value


def _any_of(names: set[str]) -> re.Pattern[str]:
    """Matches any of the names, the longest first; of no names, nothing."""
    return re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or r"(?!)")


def _split_reasoning(turn: Turn) -> tuple[Turn, str]:
    """A turn whose content begins with a mark where its reasoning belongs, and the reasoning."""
    if turn["role"] != "assistant":
        return turn, ""
    content, reasoning = turn["content"], turn.get("reasoning_content", "")
    if not reasoning and content.startswith(OPEN) and CLOSE in content:
        reasoning, content = content[len(OPEN) :].split(CLOSE, 1)
    kept = {key: value for key, value in turn.items() if key not in ("reasoning_content", "thinking")}
    return {**kept, "content": (REASONING if reasoning else "") + content}, reasoning


def _with_reasoning(text: str, reasoning: list[str]) -> str:
    """Fill the template's empty thinking blocks, or open one where it has none."""
    first, *rest = text.split(REASONING)
    if len(rest) != len(reasoning):
        raise ValueError("the chat template repeats or leaves out an assistant's content")
    filled = first
    for thought, following in zip(reasoning, rest, strict=True):
        filled = filled.removesuffix(OPEN + CLOSE) + OPEN + thought + CLOSE + following
    return filled
