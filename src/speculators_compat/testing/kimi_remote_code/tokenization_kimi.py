"""Slow tokenizer of the tiny Kimi-K2.5 checkpoint, loaded as remote code.

Like Kimi's own it reads a tiktoken file and knows neither offsets nor assistant masks. Text is cut
by the longest match, since the vocabulary is a list of bytes and words without merges.
"""

from __future__ import annotations

import base64
import shutil
from pathlib import Path
from typing import Any, ClassVar

from transformers import PreTrainedTokenizer


def _printable_bytes() -> dict[int, str]:
    """One visible character for every byte, so that any byte string is a valid token string."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return {value: chr(value if value in visible else next(spare)) for value in range(256)}


BYTE_TO_CHARACTER = _printable_bytes()
CHARACTER_TO_BYTE = {character: value for value, character in BYTE_TO_CHARACTER.items()}


class TikTokenTokenizer(PreTrainedTokenizer):
    """Byte-level tokenizer over ``tiktoken.model``."""

    vocab_files_names: ClassVar[dict[str, str]] = {"vocab_file": "tiktoken.model"}
    model_input_names: ClassVar[list[str]] = ["input_ids", "attention_mask"]

    def __init__(self, vocab_file: str, **kwargs: Any) -> None:
        self.vocab_file = vocab_file
        pairs = [line.split() for line in Path(vocab_file).read_text(encoding="ascii").splitlines()]
        self._ids = {base64.b64decode(token): int(rank) for token, rank in pairs}
        self._bytes = {identity: token for token, identity in self._ids.items()}
        self._longest = max(map(len, self._ids))
        super().__init__(**kwargs)

    @property
    def vocab_size(self) -> int:
        """Number of ordinary tokens, special ones excluded."""
        return len(self._ids)

    def get_vocab(self) -> dict[str, int]:
        """Every token, special ones included, with its id."""
        vocabulary = {self._to_string(token): identity for token, identity in self._ids.items()}
        vocabulary.update(self.get_added_vocab())
        return vocabulary

    def _tokenize(self, text: str, **kwargs: Any) -> list[str]:
        raw = text.encode("utf-8")
        tokens = []
        start = 0
        while start < len(raw):
            end = min(start + self._longest, len(raw))
            while raw[start:end] not in self._ids:
                end -= 1
            tokens.append(self._to_string(raw[start:end]))
            start = end
        return tokens

    def _convert_token_to_id(self, token: str) -> int | None:
        raw = bytes(CHARACTER_TO_BYTE.get(character, 0) for character in token)
        return self._ids.get(raw, self.unk_token_id)

    def _convert_id_to_token(self, index: int) -> str:
        return self._to_string(self._bytes[index]) if index in self._bytes else self.unk_token

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """Text of the tokens; an incomplete UTF-8 sequence becomes the replacement character."""
        raw = bytearray()
        for character in "".join(tokens):
            byte = CHARACTER_TO_BYTE.get(character)
            raw += character.encode("utf-8") if byte is None else bytes([byte])
        return raw.decode("utf-8", errors="replace")

    def _decode(self, token_ids: Any, skip_special_tokens: bool = False, **kwargs: Any) -> str:
        # The base class may put spaces around special tokens; Kimi's format has none.
        ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        tokens = self.convert_ids_to_tokens(ids, skip_special_tokens=skip_special_tokens)
        return self.convert_tokens_to_string(tokens)

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        """Copy the vocabulary file into ``save_directory`` and return its path."""
        prefix = f"{filename_prefix}-" if filename_prefix else ""
        target = Path(save_directory) / f"{prefix}{self.vocab_files_names['vocab_file']}"
        if target.resolve() != Path(self.vocab_file).resolve():
            shutil.copyfile(self.vocab_file, target)
        return (str(target),)

    @staticmethod
    def _to_string(token: bytes) -> str:
        return "".join(BYTE_TO_CHARACTER[byte] for byte in token)
