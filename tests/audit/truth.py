"""What does not fit, by release: from reading both packages by hand and from runs, held against what the audit finds.

Each line is one mismatch of one pair: the argument, attribute or name in question, and the line of speculators' source.
"""

from __future__ import annotations

from dataclasses import dataclass

from speculators_compat.versions import in_range


@dataclass(frozen=True)
class Truth:
    """One mismatch: speculators' release, the vLLM releases [since, until) that have it, its name and line."""

    speculators: str
    name: str
    line: int
    since: str
    until: str | None = None

    def holds(self, speculators: str, vllm: str) -> bool:
        """Whether this pair has it."""
        return speculators == self.speculators and in_range(vllm, self.since, self.until) is True


IN_FORCE = [
    # SchedulerConfig requires it; get_kv_cache_config_from_groups no longer takes it; Scheduler requires it.
    Truth("0.3.0", "is_encoder_decoder", 194, "0.12.0"),
    Truth("0.3.0", "kv_cache_specs", 139, "0.12.0"),
    Truth("0.3.0", "block_size", 148, "0.11.1"),
    # LlamaModel calls it embed_input_ids now.
    Truth("0.3.0", "get_input_embeddings", 30, "0.11.1"),
    Truth("0.3.0", "eos_token_id", 241, "0.17.0"),
    Truth("0.4.0.1", "eos_token_id", 271, "0.17.0"),
    # On by default, while the requests carry no block hashes.
    Truth("0.3.0", "enable_prefix_caching", 166, "0.12.0"),
    # None instead of a result; a bare reply instead of a list of one.
    Truth("0.3.0", "execute_model", 261, "0.11.1"),
    Truth("0.3.0", "unique_reply_rank", 267, "0.11.1"),
    Truth("0.3.0", "async_scheduling", 194, "0.14.0"),
    # The layout of the KV cache must be resolved before planning.
    Truth("0.3.0", "get_kv_cache_config_from_groups", 136, "0.29.0"),
    Truth("0.4.0.1", "get_kv_cache_config_from_groups", 143, "0.29.0"),
    # An explicit block size is binding.
    Truth("0.3.0", "block_size", 166, "0.18.0"),
    Truth("0.4.0.1", "block_size", 186, "0.18.0"),
    # Model runner V2 is the default for more and more models, and has no such attribute.
    Truth("0.4.0.1", "input_batch", 106, "0.22.0"),
    # Kimi-K2.5: refused, then reached and found without .model; get_language_model() was the decoder itself.
    Truth("0.3.0", "SupportsEagle3", 102, "0.15.0", "0.18.0"),
    Truth("0.3.0", "model", 107, "0.18.0"),
    Truth("0.4.0.1", "model", 122, "0.15.0", "0.16.0"),
    # Planning moved to another module.
    *(
        Truth(speculators, name, line, "0.33.0")
        for speculators, line in (("0.3.0", 15), ("0.4.0.1", 16))
        for name in (
            "_get_kv_cache_groups_uniform_spec",
            "get_kv_cache_config_from_groups",
            "unify_hybrid_kv_cache_specs",
        )
    ),
]
# speculators 0.4 on a vLLM older than it was written for.
TOO_OLD = [
    Truth("0.4.0.1", "get_hash_fn_by_name", 15, "0.11.0", "0.11.1"),
    Truth("0.4.0.1", "kv_cache_specs", 143, "0.11.0", "0.12.0"),
    Truth("0.4.0.1", "block_size", 158, "0.11.0", "0.11.1"),
    Truth("0.4.0.1", "embed_input_ids", 38, "0.11.0", "0.11.1"),
    Truth("0.4.0.1", "sample_tokens", 315, "0.11.0", "0.11.1"),
]


def truths(speculators: str, vllm: str) -> set[tuple[str, int]]:
    """Name and line of every mismatch of a pair."""
    return {(item.name, item.line) for item in [*IN_FORCE, *TOO_OLD] if item.holds(speculators, vllm)}


# Pairs that their authors declared to fit (the extra "datagen" in speculators' metadata).
FITTING = [("0.3.0", "0.11.0"), *(("0.4.0.1", vllm) for vllm in ("0.12.0", "0.13.0", "0.14.1", "0.15.1", "0.16.0"))]
