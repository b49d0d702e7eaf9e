"""What vLLM's own extraction of hidden states can do, release by release, as data.

Read from the sources of every release from 0.17.1 to 0.32.0 (0.20.0, 0.20.1, 0.22.0, 0.25.0 and 0.27.0 were not read;
each range ends or begins where the last or first release that was read does, or at the minor release between two).
``since`` and ``until`` are releases as in a drift: first that has it, first that has it no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .. import versions
from .arguments import Arguments

__all__ = ["LIMITS", "NEWEST_READ", "SETTINGS", "WARNINGS", "Limit", "Setting", "Setup", "Warn"]

#: Newest release whose sources these facts were read from.
NEWEST_READ = "0.32.0"

_VLLM = "https://github.com/vllm-project/vllm/blob"
_CONNECTOR = "vllm/distributed/kv_transfer/kv_connector/v1/example_hidden_states_connector.py"
_IN_PROCESS = "`speculators-compat extract` needs no server and runs on this release."

#: Model types that the release's own list names (as parts of the type), by the release that added them.
ALLOWED_TYPES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("0.17.0", ("llama", "qwen", "minicpm", "gpt_oss", "hunyuan_vl", "hunyuan_v1_dense", "afmoe", "nemotron_h")),
    ("0.18.0", ("deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_k25")),
    ("0.19.0", ("minimax_m2", "gemma4")),
    ("0.21.0", ("laguna",)),
)
#: Model types that vLLM runs by its deepseek_v2.py.
DEEPSEEK_TYPES = frozenset({"deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "kimi_k2", "kimi_k25"})


@dataclass(frozen=True)
class Setup:
    """What is asked of which server.

    Attributes:
        version: Of the installed vLLM, as written.
        cpu: Whether it is a CPU build.
        model_type: Of the verifier's language model.
        vllm_layer_ids: Layers in vLLM's convention, ascending; the last one is the number of decoder layers.
        arguments: What the user gives to vLLM.
        environment: Variables that the server inherits.
        speculators: Version of the installed speculators, or None.
        own_layers: Whether the user chose the layers.
    """

    version: str
    model_type: str
    vllm_layer_ids: Sequence[int]
    cpu: bool = False
    arguments: Arguments = field(default_factory=Arguments)
    environment: Mapping[str, str] = field(default_factory=dict)
    speculators: str | None = None
    own_layers: bool = False

    def within(self, since: str | None, until: str | None) -> bool:
        """Whether the installed vLLM is in a range."""
        return bool(versions.in_range(self.version, since, until))


def _always(setup: Setup) -> bool:
    return True


@dataclass(frozen=True)
class Limit:
    """Something that a range of releases cannot do.

    Attributes:
        id: For tests and documentation.
        since: First release that has the limit.
        until: First release that has it no more.
        required: What had to hold, a sentence.
        found: What is so instead, put after the release.
        way_out: What the reader can do.
        upstream: Where it stands.
        when: Whether it matters to a setup.
    """

    id: str
    since: str | None
    until: str | None
    required: str
    found: str
    way_out: str
    upstream: str
    when: Callable[[Setup], bool] = _always

    def holds(self, setup: Setup) -> bool:
        """Whether it stands in the way of ``setup``."""
        return setup.within(self.since, self.until) and self.when(setup)


@dataclass(frozen=True)
class Setting:
    """A switch of ``vllm serve`` that a range of releases needs off, and why."""

    name: str
    since: str | None
    until: str | None
    why: str
    upstream: str


@dataclass(frozen=True)
class Warn:
    """Something that the command cannot prevent and the reader should know."""

    id: str
    since: str | None
    until: str | None
    text: str
    upstream: str
    when: Callable[[Setup], bool] = _always

    def holds(self, setup: Setup) -> bool:
        """Whether it concerns ``setup``."""
        return setup.within(self.since, self.until) and self.when(setup)


def _type_not_listed(setup: Setup) -> bool:
    names = [name for since, listed in ALLOWED_TYPES if setup.within(since, None) for name in listed]
    return not any(name in setup.model_type for name in names)


def _is(*model_types: str) -> Callable[[Setup], bool]:
    return lambda setup: setup.model_type in model_types


def _on_cpu(setup: Setup) -> bool:
    return setup.cpu


def _several_stages(setup: Setup) -> bool:
    return setup.arguments.number("pipeline-parallel-size", 1) > 1


def _several_ranks(setup: Setup) -> bool:
    return setup.arguments.number("tensor-parallel-size", 1) > 1


def _asks_for_v2(setup: Setup) -> bool:
    return setup.environment.get("VLLM_USE_V2_MODEL_RUNNER", "") not in {"", "0"}


def _quantised_cache(setup: Setup) -> bool:
    return setup.arguments.value("kv-cache-dtype") not in {None, "auto", "bfloat16", "float16"}


_LAST = "The server must give the state after the verifier's last layer: the trainer's targets come from it."
_CPU = "vLLM's own extraction needs a GPU."
_CPU_WAY_OUT = "Use a GPU, or `speculators-compat extract`, which runs on a CPU."

LIMITS: tuple[Limit, ...] = (
    Limit(
        "no_method",
        None,
        "0.17.0",
        "vLLM's own extraction of hidden states exists from 0.17.0 on.",
        "has no speculative method extract_hidden_states",
        f"Install a later vLLM; {_IN_PROCESS}",
        f"{_VLLM}/v0.17.1/vllm/config/speculative.py#L413",
    ),
    Limit(
        "no_last_layer",
        "0.17.0",
        "0.18.0",
        _LAST,
        "collects states before each layer, so that the one after the last layer is never collected",
        f"Install vLLM 0.18.0 or later; {_IN_PROCESS}",
        f"{_VLLM}/v0.17.1/vllm/model_executor/models/llama.py#L424",
    ),
    Limit(
        "type_not_listed",
        "0.17.0",
        "0.22.0",
        "The verifier's model type must be on the release's own list.",
        "has no such type there",
        f"Install vLLM 0.22.1 or later, which has no list; {_IN_PROCESS}",
        f"{_VLLM}/v0.21.0/vllm/config/speculative.py#L974",
        _type_not_listed,
    ),
    Limit(
        "no_last_layer_deepseek",
        "0.18.0",
        "0.25.1",
        _LAST,
        "does not collect it in deepseek_v2.py, which runs DeepSeek, Kimi and GLM-5",
        f"Install vLLM 0.25.1 or later; {_IN_PROCESS}",
        f"{_VLLM}/v0.25.1/vllm/model_executor/models/deepseek_v2.py#L1489",
        _is(*DEEPSEEK_TYPES),
    ),
    Limit(
        "no_last_layer_qwen3_next",
        "0.18.0",
        "0.20.2",
        _LAST,
        "does not collect it in qwen3_next.py",
        f"Install vLLM 0.20.2 or later; {_IN_PROCESS}",
        f"{_VLLM}/v0.19.1/vllm/model_executor/models/qwen3_next.py",
        _is("qwen3_next"),
    ),
    Limit(
        "no_last_layer_cohere2_moe",
        None,
        None,
        _LAST,
        "does not collect it in cohere2_moe.py",
        _IN_PROCESS,
        f"{_VLLM}/v0.32.0/vllm/model_executor/models/cohere2_moe.py",
        _is("cohere2_moe"),
    ),
    Limit(
        "cpu_refuses",
        None,
        "0.20.0",
        _CPU,
        "for CPUs asserts that no speculative method is set",
        _CPU_WAY_OUT,
        f"{_VLLM}/v0.19.1/vllm/v1/worker/cpu_model_runner.py#L26",
        _on_cpu,
    ),
    Limit(
        "cpu_never_asks",
        "0.20.0",
        "0.22.0",
        _CPU,
        "for CPUs loads the model without telling it which layers to collect",
        _CPU_WAY_OUT,
        f"{_VLLM}/v0.21.0/vllm/v1/worker/cpu_model_runner.py",
        _on_cpu,
    ),
    Limit(
        "cpu_streams",
        "0.22.0",
        None,
        _CPU,
        "copies states on a CUDA stream",
        _CPU_WAY_OUT,
        f"{_VLLM}/v0.22.1/{_CONNECTOR}",
        _on_cpu,
    ),
    Limit(
        "pipeline_parallel",
        None,
        "0.30.0",
        "All decoder layers must lie on one pipeline stage.",
        "collects the last stage's layers alone, and --pipeline-parallel-size is more than 1",
        "Use --tensor-parallel-size; vLLM 0.30.0 hands them on for some models.",
        f"{_VLLM}/v0.30.0/vllm/v1/worker/gpu/spec_decode/eagle/eagle3_utils.py#L44",
        _several_stages,
    ),
    Limit(
        "model_runner_v2",
        None,
        "0.29.0",
        "Extraction runs on model runner V1 before 0.29.0.",
        "is told VLLM_USE_V2_MODEL_RUNNER in the environment",
        "Unset the variable.",
        f"{_VLLM}/v0.22.1/vllm/config/vllm.py#L2002",
        _asks_for_v2,
    ),
    Limit(
        "quantised_cache",
        None,
        None,
        "States pass through the KV cache, which must hold 16 bits or more.",
        "is told another --kv-cache-dtype",
        "Leave --kv-cache-dtype out.",
        f"{_VLLM}/v0.18.1/vllm/model_executor/models/extract_hidden_states.py",
        _quantised_cache,
    ),
)

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "enable-chunked-prefill",
        "0.17.0",
        "0.24.0",
        # 0.17: an assertion; 0.18 to 0.21: silent; 0.22 and 0.23: refused.
        "of a prompt that is cut into chunks, the last chunk's states may be missing from its file",
        f"{_VLLM}/v0.18.1/{_CONNECTOR}#L289",
    ),
    Setting(
        "enable-prefix-caching",
        "0.17.0",
        "0.24.0",
        # 0.22 and 0.23 count a step's rows by whole prompts, so a cached prefix shifts the rows of all that follow.
        "rows are counted by whole prompts, and a cached prefix has none in the step",
        f"{_VLLM}/v0.22.1/{_CONNECTOR}#L344",
    ),
)

WARNINGS: tuple[Warn, ...] = (
    Warn(
        "batch_order",
        "0.22.0",
        "0.24.0",
        "This release takes a step's rows in the scheduler's order. Where the runner reorders a batch, prompts get "
        "each other's rows: run `speculators-compat check-server`, or send one request at a time.",
        f"{_VLLM}/v0.22.1/{_CONNECTOR}#L344",
    ),
    Warn(
        "every_rank_writes",
        "0.17.0",
        "0.22.0",
        "Every rank writes the same file: a client may read it while another rank writes it again.",
        f"{_VLLM}/v0.21.0/{_CONNECTOR}",
        _several_ranks,
    ),
    Warn(
        "client_without_lock",
        "0.22.0",
        None,
        "vLLM writes files after its answer, under a lock, which speculators before 0.6.0 does not wait for.",
        f"{_VLLM}/v0.22.1/{_CONNECTOR}",
        lambda setup: bool(setup.speculators and versions.in_range(setup.speculators, "0.5.0", "0.6.0")),
    ),
    Warn(
        "no_client",
        None,
        None,
        "speculators before 0.5.0 has no client for this server; a later one, in another environment, has.",
        "https://github.com/vllm-project/speculators/blob/v0.5.0/src/speculators/data_generation/vllm_client.py",
        lambda setup: bool(setup.speculators and versions.in_range(setup.speculators, None, "0.5.0")),
    ),
    Warn(
        "newer_than_read",
        NEWEST_READ,
        None,
        f"This vLLM is newer than {NEWEST_READ}, the newest whose sources were read: run `speculators-compat "
        "check-server` on the first samples.",
        f"{_VLLM}/v{NEWEST_READ}/{_CONNECTOR}",
        lambda setup: versions.release(setup.version) != NEWEST_READ,
    ),
    Warn(
        "own_layers",
        None,
        None,
        "The trainer must be told these layers: its --target-layer-ids are the ids above without the last one.",
        "https://github.com/vllm-project/speculators/blob/01a981e8b2054edf547cbf5c871d0bfd16dfe209/scripts/launch_vllm.py",
        lambda setup: setup.own_layers,
    ),
)
