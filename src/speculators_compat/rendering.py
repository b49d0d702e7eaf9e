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
CUT, REASONING, LOOSE_CUT = "\ufdd0", "\ufdd1", "\ufdd2"
OPEN, CLOSE = "<think>", "</think>"
# Keys of a turn's reasoning. The template may leave it out, so a cut in it (LOOSE_CUT) may be gone.
THOUGHT = ("reasoning_content", "thinking")
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
        """Ids of a whole conversation, with the reasoning of every assistant turn.

        Args:
            turns: As :func:`.conversations.read_turns` gives them.
            tools: Declarations of the tools, as the template takes them.

        Returns:
            Token ids, without anything added around the template's own text.

        Raises:
            ValueError: The conversation cannot be rendered so that every message stays what it is.
        """
        split = [_split_reasoning(turn) for turn in turns]
        return self._token_ids([_marked(*pair) for pair in split], [text for _, text in split if text], tools, False)

    def asked_ids(self, turns: list[Turn], tools: list[Any] | None = None, prompt: bool = False) -> list[int]:
        """Ids of a conversation as inference has it: of earlier reasoning, what the template keeps.

        Args:
            turns: As for :meth:`token_ids`. The reasoning of a last turn that is the assistant's is kept.
            tools: As for :meth:`token_ids`.
            prompt: Ask for the next turn: the template's generation prompt follows.

        Returns:
            As :meth:`token_ids`.

        Raises:
            ValueError: As :meth:`token_ids`.
        """
        split = [_split_reasoning(turn) for turn in turns]
        written = [] if prompt or not split else split[-1:]
        earlier = [_thinking(*pair) for pair in split[: len(split) - len(written)]]
        own = [text for _, text in written if text]
        return self._token_ids([*earlier, *(_marked(*pair) for pair in written)], own, tools, prompt)

    def _token_ids(self, turns: list[Turn], thoughts: list[str], tools: list[Any] | None, prompt: bool) -> list[int]:
        if tools and self._control.search(json.dumps(tools, ensure_ascii=False)):
            raise ValueError("its tool declarations quote a control token")
        given = json.dumps([turns, thoughts], ensure_ascii=False)
        if CUT in given or LOOSE_CUT in given or given.count(REASONING) != len(thoughts):
            raise ValueError("it contains a Unicode noncharacter")
        safe = [self._safe(turn) for turn in turns]
        reasoning = [self._spell(text, self._control) for text in thoughts]
        text = self._tokenizer.apply_chat_template(safe, tools=tools, tokenize=False, add_generation_prompt=prompt)
        text = _with_reasoning(text, reasoning)
        if text.count(CUT) != json.dumps([safe, reasoning], ensure_ascii=False).count(CUT):
            raise ValueError("it quotes a control token in a text that the chat template repeats or changes")
        return [token for piece in re.split(f"[{CUT}{LOOSE_CUT}]", text) for token in self._ids(piece)]

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _safe(self, turn: Turn) -> Turn:
        """The turn with quoted control tokens cut in two."""
        own = self._foreign if turn["role"] == "assistant" else self._control
        return {
            key: self._spell(value, own if key == "content" else self._control, LOOSE_CUT if key in THOUGHT else CUT)
            if key != "role"
            else value
            for key, value in turn.items()
        }

    def _spell(self, value: Any, names: re.Pattern[str], cut: str = CUT) -> Any:
        if isinstance(value, str):
            return names.sub(lambda found: found[0][0] + cut + found[0][1:], value)
        if isinstance(value, dict):
            return {self._spell(key, names): self._spell(item, names) for key, item in value.items()}
        return [self._spell(item, names) for item in value] if isinstance(value, list) else value


def _any_of(names: set[str]) -> re.Pattern[str]:
    """Matches any of the names, the longest first; of no names, nothing."""
    return re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or r"(?!)")


def _split_reasoning(turn: Turn) -> tuple[Turn, str]:
    """A turn without its reasoning, and the reasoning."""
    if turn["role"] != "assistant":
        return turn, ""
    content, reasoning = turn["content"], turn.get("reasoning_content", "")
    if not reasoning and content.startswith(OPEN) and CLOSE in content:
        reasoning, content = content[len(OPEN) :].split(CLOSE, 1)
    return {**{key: value for key, value in turn.items() if key not in THOUGHT}, "content": content}, reasoning


def _marked(turn: Turn, reasoning: str) -> Turn:
    """The turn with a mark where its reasoning belongs, which is put there after rendering."""
    return {**turn, "content": REASONING + turn["content"]} if reasoning else turn


def _thinking(turn: Turn, reasoning: str) -> Turn:
    """The turn with its reasoning, for the template to show or to leave out."""
    return {**turn, **dict.fromkeys(THOUGHT, reasoning)} if reasoning else turn


def _with_reasoning(text: str, reasoning: list[str]) -> str:
    """Fill the template's empty thinking blocks, or open one where it has none."""
    first, *rest = text.split(REASONING)
    if len(rest) != len(reasoning):
        raise ValueError("the chat template repeats or leaves out an assistant's content")
    filled = first
    for thought, following in zip(reasoning, rest, strict=True):
        filled = filled.removesuffix(OPEN + CLOSE) + OPEN + thought + CLOSE + following
    return filled
