"""The in-process generator that speculators 0.5 removed, with the names and the behaviour of 0.4 under the shim.

The drift ``removed_generator`` puts this folder on the package's search path; the file is imported as speculators' own.
It puts vLLM's parts together in the order of vLLM's engine core (``vllm/v1/engine/core.py``). Their names stand in this
module and are called with the arguments of speculators 0.4.0.1, because the generator's drifts wrap these names and
adapt those arguments to the installed vLLM: one set of fixes for upstream's module and for this one.
"""

from __future__ import annotations

from typing import Any

from speculators.data_generation.logging_utils import PipelineLogger
from speculators.utils.util import is_npu_available, mem_get_info
from transformers import AutoConfig, AutoTokenizer
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    LoadConfig,
    ModelConfig,
    ParallelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.sampling_params import SamplingParams  # noqa: F401 (speculators_compat.capture.generator looks it up here)
from vllm.v1.core.kv_cache_utils import (
    _get_kv_cache_groups_uniform_spec,
    get_kv_cache_config_from_groups,
    unify_hybrid_kv_cache_specs,
)
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.executor.multiproc_executor import MultiprocExecutor
from vllm.v1.request import Request, RequestStatus  # noqa: F401 (as above)
from vllm.v1.structured_output import StructuredOutputManager

from speculators_compat.drift import UsageError

__all__ = ["VllmHiddenStatesGenerator"]

CACHE_MEMORY_FRACTION = 0.2
VLLM_BLOCK_SIZE = 128 if is_npu_available() else 16
MAX_NUM_SEQS = 32
MIN_MAX_BATCHED_TOKENS = 8192
MAX_DECODE_TOKENS = 1
SAMPLING_TEMPERATURE = 0.0
INITIAL_ARRIVAL_TIME = 0.0

EXTENSION = "speculators.data_generation.custom_worker.HiddenStatesWorkerExtension"

log = PipelineLogger(__name__)


class VllmHiddenStatesGenerator:
    """Hidden states of a verifier's decoder layers, from prefill only.

    Args:
        model_path: Checkpoint folder or hub id.
        layer_ids: Layers to capture; id k is the state after decoder layer k, before any later norm. None for
            ``[2, N // 2, N - 3, N - 1]`` of N layers.
        max_model_len: Longest prompt in tokens, plus one.
        gpu_memory_utilization: Share of the free memory that vLLM may use.
        tensor_parallel_size: Number of workers.
        max_num_batched_tokens: Token budget of one step; None for ``max(8192, max_model_len)``.

    The options ``dtype``, ``trust_remote_code``, ``limit_mm_per_prompt`` and ``overlong``, ``close()`` and the use in a
    ``with`` block come from the drift ``generator_options``, here as on 0.3 and 0.4.

    Raises:
        ValueError: The number of layers is not known, or a layer id is out of bounds.
    """

    def __init__(
        self,
        model_path: str,
        layer_ids: list[int] | None = None,
        max_model_len: int = 2048,
        gpu_memory_utilization: float = 0.8,
        tensor_parallel_size: int = 1,
        max_num_batched_tokens: int | None = None,
    ) -> None:
        self.model_path = model_path
        self.tensor_parallel_size = tensor_parallel_size
        self._request_counter = 0
        self.tokenizer = AutoTokenizer.from_pretrained(model_path)
        self.layer_ids = _layer_ids(_num_layers(model_path), layer_ids)
        log.info(f"Capturing layers {self.layer_ids} of {model_path} on {tensor_parallel_size} workers")
        self.vllm_config = self._create_vllm_config(
            model_path=model_path,
            max_model_len=max_model_len,
            gpu_memory_utilization=gpu_memory_utilization,
            tensor_parallel_size=tensor_parallel_size,
            max_num_batched_tokens=max_num_batched_tokens,
        )
        self.executor = MultiprocExecutor(vllm_config=self.vllm_config)
        self._setup_capture()
        planned = self._plan_kv_cache(gpu_memory_utilization)
        self.vllm_config.cache_config.num_gpu_blocks = planned.num_blocks
        self.scheduler = Scheduler(
            vllm_config=self.vllm_config,
            kv_cache_config=planned,
            structured_output_manager=StructuredOutputManager(vllm_config=self.vllm_config),
            block_size=VLLM_BLOCK_SIZE,
        )
        self.executor.initialize_from_config([planned] * tensor_parallel_size)

    def _create_vllm_config(
        self,
        model_path: str,
        max_model_len: int,
        gpu_memory_utilization: float,
        tensor_parallel_size: int,
        max_num_batched_tokens: int | None = None,
    ) -> Any:
        return VllmConfig(
            model_config=ModelConfig(
                model=model_path,
                tokenizer=model_path,
                trust_remote_code=True,
                dtype="auto",
                max_model_len=max_model_len,
                enforce_eager=True,
            ),
            cache_config=CacheConfig(
                block_size=VLLM_BLOCK_SIZE,
                gpu_memory_utilization=gpu_memory_utilization,
                # A cached prefix would never run, and its states would never be captured.
                enable_prefix_caching=False,
            ),
            parallel_config=ParallelConfig(tensor_parallel_size=tensor_parallel_size, worker_extension_cls=EXTENSION),
            scheduler_config=SchedulerConfig(
                max_num_seqs=MAX_NUM_SEQS,
                max_model_len=max_model_len,
                max_num_batched_tokens=max_num_batched_tokens or max(MIN_MAX_BATCHED_TOKENS, max_model_len),
                is_encoder_decoder=False,
            ),
            device_config=DeviceConfig(),
            load_config=LoadConfig(),
        )

    def _setup_capture(self) -> None:
        self.executor.collective_rpc("_setup_hidden_states_capture", args=(self.layer_ids,))

    def _plan_kv_cache(self, gpu_memory_utilization: float) -> Any:
        """One plan for all workers: they hold the same layers."""
        specs = self.executor.collective_rpc("get_kv_cache_spec")[0]
        # Layers with a sliding window are planned like the others, so that one group holds all.
        unify_hybrid_kv_cache_specs(specs)
        free, _ = mem_get_info()
        return get_kv_cache_config_from_groups(
            vllm_config=self.vllm_config,
            kv_cache_groups=_get_kv_cache_groups_uniform_spec(specs),
            available_memory=int(free * gpu_memory_utilization * CACHE_MEMORY_FRACTION),
        )

    def generate(self, token_ids: Any) -> list[dict[str, Any]]:
        """Hidden states of each prompt; the drift ``hidden_states_capture`` supplies it.

        Raises:
            UsageError: The drift is switched off: there is no loop of upstream's to fall back to.
        """
        raise UsageError(
            "On speculators 0.5 and later generate() comes with the drift hidden_states_capture.",
            "SPECULATORS_COMPAT_DISABLE names it",
            "Leave the drift on, or install a release that has a generator of its own: speculators 0.3 or 0.4.",
        )

    def __del__(self) -> None:
        # When the interpreter ends, this module's names are gone; so nothing of it is used here.
        executor = self.__dict__.pop("executor", None)
        if executor is not None:
            try:  # noqa: SIM105
                executor.shutdown()
            except Exception:  # noqa: S110 (nobody is left to be told)
                pass


def _num_layers(model_path: str) -> int:
    config = AutoConfig.from_pretrained(model_path, trust_remote_code=True)
    for part in (config, getattr(config, "text_config", None)):
        found = getattr(part, "num_hidden_layers", None)
        if found is not None:
            return int(found)
    raise ValueError(f"the config of {model_path} has no num_hidden_layers, nor has its text_config")


def _layer_ids(num_layers: int, wanted: list[int] | None) -> list[int]:
    if wanted is None:
        return [2, num_layers // 2, num_layers - 3, num_layers - 1]
    for layer_id in wanted:
        if not 0 <= layer_id < num_layers:
            raise ValueError(f"Layer index {layer_id} out of bounds [0, {num_layers - 1}]")
    return wanted
