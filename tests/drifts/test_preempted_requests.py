"""vLLM's scheduler alone, with a KV cache that runs out; what an engine makes of it is in tests/e2e/test_faults.py."""

import pytest

from tests.support import run_python

pytestmark = pytest.mark.engine

CODE = """
import speculators_compat
if __name__ == "__main__":
    import torch
    from speculators.data_generation import vllm_hidden_states_generator as upstream
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

    config = upstream.VllmConfig(
        model_config=upstream.ModelConfig(
            model={model!r}, tokenizer={model!r}, dtype="float32", max_model_len=128, enforce_eager=True
        ),
        cache_config=upstream.CacheConfig(enable_prefix_caching=False),
        scheduler_config=upstream.SchedulerConfig(
            max_num_seqs=32, max_model_len=128, max_num_batched_tokens=128, is_encoder_decoder=False
        ),
    )
    config.cache_config.num_gpu_blocks, config.cache_config.block_size = 5, 32
    spec = FullAttentionSpec(block_size=32, num_kv_heads=2, head_size=32, dtype=torch.float32)
    group = KVCacheGroupSpec(["layer"], spec)
    scheduler = upstream.Scheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(num_blocks=5, kv_cache_tensors=[], kv_cache_groups=[group]),
        structured_output_manager=upstream.StructuredOutputManager(vllm_config=config),
        block_size=32,
    )
    scheduler.scheduler_config.long_prefill_token_threshold = 16
    lengths = {{f"r{{i}}": 60 + 5 * i for i in range(8)}}
    for name, length in lengths.items():
        scheduler.add_request(upstream.Request(
            request_id=name, prompt_token_ids=[1] * length, pooling_params=None, arrival_time=0.0,
            sampling_params=upstream.SamplingParams(max_tokens=1, temperature=0.0), eos_token_id=None,
        ))
    steps = 0
    while lengths:
        scheduled = scheduler.schedule()
        if not scheduled.num_scheduled_tokens or steps > 1000:
            break
        steps += 1
        cached = scheduled.scheduled_cached_reqs
        starts = dict(zip(cached.req_ids, cached.num_computed_tokens))
        starts |= {{new.req_id: new.num_computed_tokens for new in scheduled.scheduled_new_reqs}}
        counts = scheduled.num_scheduled_tokens
        done = [name for name in counts if starts[name] + counts[name] == lengths[name]]
        for name in done:
            del lengths[name]
        if done:
            scheduler.finish_requests(done, upstream.RequestStatus.FINISHED_ABORTED)
    print("LEFT", len(lengths))
"""


def left(model, disable: str = "") -> int:
    done = run_python(CODE.format(model=str(model)), {"SPECULATORS_COMPAT_DISABLE": disable})
    line = next((line for line in done.stdout.splitlines() if line.startswith("LEFT ")), None)
    assert line, done.stderr[-3000:]
    return int(line.split()[1])


def test_symptom_and_fix(needed, tiny_llama):
    if needed("preempted_requests"):
        assert left(tiny_llama, "preempted_requests") > 0, "preempted requests are not resumed"
        assert left(tiny_llama) == 0
