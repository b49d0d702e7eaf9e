"""Tokenizer files for the tiny models, made without a download."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from speculators_compat.testing.checkpoint import require, write_json
from speculators_compat.testing.prompts import WORDS

#: Special tokens of the fast tokenizers; the position is the id.
FAST_SPECIAL_TOKENS = ("<pad>", "<eos>", "<bos>", "<|im_start|>", "<|im_end|>", "<unk>")
CHATML_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
#: Ids kept for special tokens at the end of Kimi's vocabulary.
KIMI_SPECIAL_SLOTS = 256
#: Kimi's special tokens: offset from the first special id, as seen in public data of the K2 family.
KIMI_SPECIAL_TOKENS = {
    0: "[BOS]",
    1: "[EOS]",
    2: "<|im_end|>",
    3: "<|im_user|>",
    4: "<|im_assistant|>",
    6: "<|start_header_id|>",
    7: "<|end_header_id|>",
    9: "[EOT]",
    10: "<|im_system|>",
    11: "<|tool_calls_section_begin|>",
    12: "<|tool_calls_section_end|>",
    13: "<|tool_call_begin|>",
    14: "<|tool_call_argument_begin|>",
    15: "<|tool_call_end|>",
    17: "<|im_middle|>",
    18: "<|media_begin|>",
    19: "<|media_content|>",
    20: "<|media_end|>",
    21: "<|media_pad|>",
    22: "<think>",
    23: "</think>",
    254: "[UNK]",
    255: "[PAD]",
}
_BYTES = 256


def kimi_special_ids(vocab_size: int) -> dict[str, int]:
    """Name to id of every special slot, unused ones as ``<|reserved_token_N|>``.

    Args:
        vocab_size: The model's vocabulary; its last 256 ids are the special ones.

    Returns:
        256 entries in order of id.
    """
    first = vocab_size - KIMI_SPECIAL_SLOTS
    return {
        KIMI_SPECIAL_TOKENS.get(slot, f"<|reserved_token_{first + slot}|>"): first + slot
        for slot in range(KIMI_SPECIAL_SLOTS)
    }


def write_fast_tokenizer(directory: Path, vocab_size: int) -> None:
    """Write a byte-level BPE tokenizer (``tokenizer.json``) with a ChatML template.

    Args:
        directory: The model folder.
        vocab_size: Upper bound of the vocabulary; the tokenizer never gives an id at or above it.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(FAST_SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([" ".join(WORDS), *WORDS, *WORDS], trainer)
    tokenizer.save(str(directory / "tokenizer.json"))
    names: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<bos>",
        "eos_token": "<|im_end|>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
        "chat_template": CHATML_TEMPLATE,
    }
    write_json(directory / "tokenizer_config.json", names)


def write_kimi_vocabulary(directory: Path, vocab_size: int) -> None:
    """Write ``tiktoken.model`` and ``tokenizer_config.json`` of the tiny Kimi.

    The file format is tiktoken's (base64 of the token's bytes, a space, its rank); the remote code
    beside it is ours, see ``kimi_remote_code/tokenization_kimi.py``.

    Args:
        directory: The model folder.
        vocab_size: The model's vocabulary: 256 bytes, words, 256 special slots.
    """
    words = vocab_size - _BYTES - KIMI_SPECIAL_SLOTS
    require(words >= 0, "vocab_size of at least 512", vocab_size, "raise `vocab_size`")
    entries = [bytes([value]) for value in range(_BYTES)]
    entries += itertools.islice(_words(), words)
    lines = (f"{base64.b64encode(entry).decode()} {rank}\n" for rank, entry in enumerate(entries))
    (directory / "tiktoken.model").write_text("".join(lines), encoding="ascii")
    special = kimi_special_ids(vocab_size)
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("bos", "eos", "unk", "pad")}
    config: dict[str, Any] = {
        "tokenizer_class": "TikTokenTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
        **roles,
        "additional_special_tokens": [name for name in KIMI_SPECIAL_TOKENS.values() if name not in roles.values()],
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
        "added_tokens_decoder": {
            str(identity): {
                "content": name,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "single_word": False,
                "special": True,
            }
            for name, identity in special.items()
        },
    }
    write_json(directory / "tokenizer_config.json", config)


def _words() -> Iterator[bytes]:
    """Distinct strings of two bytes or more: words, numbers, then letter groups as filler."""
    seen = set()
    spaced = (f" {word}" for word in WORDS)
    numbers = (f" {number}" for number in range(100))
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    groups = ("".join(group) for size in (2, 3, 4) for group in itertools.product(letters, repeat=size))
    for word in itertools.chain(spaced, WORDS, numbers, groups):
        if len(word) > 1 and word not in seen:
            seen.add(word)
            yield word.encode()
