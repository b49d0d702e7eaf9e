"""Drafts, samples and training runs for the tests, through speculators' own classes."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

# torch and speculators are imported by the functions: the environment without them must collect the
# tests.


def draft_model(verifier: Path, config, draft_vocab: int | None = None):
    """An untrained one-layer EAGLE-3 draft for a verifier whose language model has ``config``."""
    import torch
    from speculators.config import SpeculatorsConfig, VerifierConfig
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
    from speculators.proposals.greedy import GreedyTokenProposalConfig
    from transformers import LlamaConfig

    vocab = config.vocab_size
    chosen = torch.arange(draft_vocab or vocab) * (vocab // (draft_vocab or vocab))
    t2d = torch.zeros(vocab, dtype=torch.bool)
    t2d[chosen] = True
    layer = LlamaConfig(
        hidden_size=config.hidden_size,
        intermediate_size=2 * config.hidden_size,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=32,
        num_hidden_layers=1,
        vocab_size=vocab,
        rms_norm_eps=1e-5,
    )
    layer._attn_implementation = "simple_flex_attention"
    torch.manual_seed(0)
    return Eagle3DraftModel(
        config=Eagle3SpeculatorConfig(
            transformer_layer_config=layer,
            draft_vocab_size=len(chosen),
            speculators_config=SpeculatorsConfig(
                algorithm="eagle3",
                proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=3)],
                default_proposal_method="greedy",
                verifier=VerifierConfig(name_or_path=str(verifier), architectures=["LlamaForCausalLM"]),
            ),
        ),
        t2d=t2d,
        d2t=chosen - torch.arange(len(chosen)),
    )


def untrained(verifier: Path, algorithm: str = "eagle3"):
    """A draft of speculators 0.5 or later, with its verifier's weights loaded."""
    from speculators.models.dflash import DFlashDraftModel
    from speculators.models.eagle3 import Eagle3DraftModel
    from transformers import LlamaConfig, Qwen3Config

    from speculators_compat.verifier import text_config

    config = text_config(str(verifier))
    layer, model = {"eagle3": (LlamaConfig, Eagle3DraftModel), "dflash": (Qwen3Config, DFlashDraftModel)}[algorithm]
    size = {"hidden_size": config.hidden_size, "intermediate_size": 64, "vocab_size": config.vocab_size}
    return model.from_training_args(
        layer(num_attention_heads=4, num_hidden_layers=1, **size),
        draft_vocab_size=config.vocab_size,
        norm_before_residual=False,
        ttt_steps=1,
        target_layer_ids=[2, 3, 4],
        mask_token_id=1,
        verifier_name_or_path=str(verifier),
    )


def write_samples(folder: Path, config, count: int = 12, tokens: int = 48, vary: bool = True) -> Path:
    """Write ``data_{i}.pt`` files: ids count up, states are a function of the id; ``vary``: of unequal lengths."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(1)
    table = torch.randn(config.vocab_size, 4, config.hidden_size, generator=generator)
    for index in range(count):
        start = int(torch.randint(32, (1,), generator=generator))
        ids = (start + torch.arange(tokens - index % 5 * vary)) % 32
        states = [table[ids, layer].to(torch.bfloat16) for layer in range(4)]
        mask = (torch.arange(len(ids)) >= 4).long()
        sample = {"input_ids": ids, "hidden_states": states, "loss_mask": mask}
        torch.save(sample, folder / f"data_{index}.pt")
    return folder


def loader(files: list, length: int = 128, world_size: int = 1, rank: int = 0):
    """Batches of one packed row of ``length`` tokens, as upstream's training script makes them."""
    from speculators.train.data import Eagle3SampleFileDataset, create_collate_fn
    from speculators.train.distributed_batch_sampler import MultipackDistributedBatchSamplerV2
    from torch.utils.data import DataLoader

    dataset = Eagle3SampleFileDataset(max_len=length, file_list=files)
    sampler = MultipackDistributedBatchSamplerV2(
        batch_max_length=length, lengths=dataset.approx_lengths, num_replicas=world_size, rank=rank
    )
    return DataLoader(dataset, batch_sampler=sampler, collate_fn=create_collate_fn(length))


def trainer(
    model, samples: Path, save_path: Path, epochs: int, resume: bool = False, length: int = 128, world_size: int = 1,
    rank: int = 0,
):  # fmt: skip
    """Upstream's trainer over the samples of a folder; more than one process if torchrun started this one."""
    from speculators.train.data import list_files
    from speculators.train.trainer import Trainer, TrainerConfig

    steps = {"ttt_steps": 2, "ttt_step_loss_decay": 1.0}
    config = TrainerConfig(
        lr=3e-3,
        num_epochs=epochs,
        save_path=str(save_path),
        resume_from_checkpoint=resume,
        is_distributed="LOCAL_RANK" in os.environ,
        local_rank=rank,
        train_call_kwargs={"use_off_policy_tokens": True, **steps},
        val_call_kwargs={"use_off_policy_tokens": False, **steps},
        scheduler_type="none",
    )
    return Trainer(model, config, loader(sorted(list_files(samples)), length, world_size, rank))


class Losses(logging.Handler):
    """Collects the training loss of every step from upstream's metric logger."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[float] = []

    def __enter__(self) -> list[float]:
        logger = logging.getLogger("speculators.metrics")
        self._level = logger.level
        logger.setLevel(logging.INFO)
        logger.addHandler(self)
        return self.values

    def __exit__(self, *exc: object) -> None:
        logger = logging.getLogger("speculators.metrics")
        logger.removeHandler(self)
        logger.setLevel(self._level)

    def emit(self, record: logging.LogRecord) -> None:
        message = record.msg
        if isinstance(message, dict) and "train" in message:
            self.values.append(message["train"]["loss"])


def prepare(verifier: Path, conversations: list, folder: Path, *, column: str = "conversations", **options):
    """Upstream's preparation of some conversations; gives the rows and the tokenizer."""
    return prepare_rows(verifier, [{column: turns} for turns in conversations], folder, **options)


def prepare_rows(
    verifier: Path, given: list, folder: Path, *, length: int = 256, processes: int | None = None, **options
):
    """Upstream's preparation of the rows of a file; gives the prepared ones and the tokenizer."""
    from speculators.data_generation.preprocessing import load_and_preprocess_dataset

    from speculators_compat.calls import accepts

    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in given))
    # What later releases ask for: remote code from 0.6 on, the count of tokens from 0.9 on.
    newer = {"trust_remote_code": True, "skip_token_freq": False}
    options |= {name: value for name, value in newer.items() if accepts(load_and_preprocess_dataset, name)}
    dataset, tokenizer = load_and_preprocess_dataset(
        str(verifier),
        str(data),
        length,
        build_dataset_num_proc=processes,
        token_freq_path=str(folder / "token_freq.pt"),
        cache_dir=str(folder / "cache"),
        **options,
    )
    return list(dataset), tokenizer  # read here: a caller may have left the shim by the time it looks at a row


def verifier_states(verifier: Path):
    """States before the final norm, and logits, of the verifier itself (float32) for some ids."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(verifier, dtype=torch.float32).eval()
    seen = []
    model.model.norm.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        logits = model(torch.arange(10, 40).unsqueeze(0)).logits
    return seen[0], logits


def check_targets(make_draft, verifier: Path, drift_id: str, *, wrong_without: bool) -> None:
    """Hold a draft's targets against the verifier's own logits, with a drift off and with it on.

    Args:
        make_draft: From the verifier's folder.
        verifier: That folder.
        drift_id: The drift of its final norm.
        wrong_without: Whether the targets are wrong with the drift off.
    """
    from tests.support import shim

    with shim(without=drift_id):
        assert (_error_of_targets(make_draft(verifier), verifier) > 0.1) is wrong_without
    with shim():
        assert _error_of_targets(make_draft(verifier), verifier) < 2e-5


def _error_of_targets(draft, verifier: Path) -> float:
    """Relative L2 error."""
    states, logits = verifier_states(verifier)
    targets = draft.verifier_lm_head(draft.verifier_norm(states))
    expected = logits if targets.shape == logits.shape else logits[..., draft.t2d]
    return float((targets - expected).norm() / expected.norm())


def assert_resumes(folder: Path) -> None:
    """Train one epoch, resume for a second one, and compare what was loaded with what was saved."""
    from safetensors.torch import load_file

    from speculators_compat.testing import make_llama
    from speculators_compat.verifier import text_config

    verifier = make_llama(folder / "llama")
    config = text_config(str(verifier))
    samples = write_samples(folder / "samples", config)
    trainer(draft_model(verifier, config), samples, folder / "out", epochs=1).run_training()
    resumed = trainer(draft_model(verifier, config), samples, folder / "out", epochs=2, resume=True)
    assert resumed.current_epoch == 1
    saved = load_file(folder / "out" / "0" / "model.safetensors")
    state = resumed.model.state_dict()
    for name in ("fc.weight", "lm_head.weight", "layers.0.hidden_norm.weight"):
        assert state[name].equal(saved[name].to(state[name].dtype))
    steps = {int(slot["step"]) for slot in resumed.opt.state.values()}
    assert steps == {len(resumed.train_loader)}
    resumed.run_training()
    assert (folder / "out" / "1" / "model.safetensors").is_file()
