import pytest

from speculators_compat import UsageError, versions
from speculators_compat.drifts.draft_verifier_weights import DRIFT
from speculators_compat.testing import make_gemma3, make_kimi_k25, make_llama
from speculators_compat.verifier import text_config
from tests.drafts import draft_model
from tests.support import shim

pytestmark = pytest.mark.engine


def rewrite(verifier, change) -> None:
    """Replace a single-file checkpoint by ``change`` of its tensors."""
    from safetensors.torch import load_file, save_file

    path = verifier / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


def tensors_of(verifier) -> dict:
    from safetensors.torch import load_file

    return {name: value for file in verifier.glob("*.safetensors") for name, value in load_file(file).items()}


def assert_verifier_weights(draft, tensors, prefix, head) -> None:
    chosen = draft.t2d.nonzero().squeeze(1)
    assert draft.embed_tokens.weight.equal(tensors[f"{prefix}embed_tokens.weight"].float())
    assert draft.verifier_lm_head.weight.equal(tensors[head].float()[chosen])


def test_symptom_without_and_wrapper_names_with(tmp_path):
    verifier = make_kimi_k25(tmp_path / "kimi")
    config = text_config(str(verifier))
    if versions.installed("speculators").release == "0.3.0":
        with (
            shim(without=f"{DRIFT.id},draft_final_norm"),
            pytest.raises(ValueError, match="None of the") as error,
        ):
            draft_model(verifier, config)
        assert f"ValueError: {error.value}" == DRIFT.symptom
    with shim():
        draft = draft_model(verifier, config, config.vocab_size // 2)
    prefix = "language_model.model."
    assert_verifier_weights(draft, tensors_of(verifier), prefix, "language_model.lm_head.weight")


def test_a_vision_tower_is_never_taken_for_the_language_model(tmp_path):
    """speculators 0.4 takes the first name that ends alike."""
    import torch

    verifier = make_llama(tmp_path / "llama")
    config = text_config(str(verifier))

    def wrapped(tensors):
        vision = {
            "a_vision_model.norm.weight": torch.full((config.hidden_size,), 9.0),
            "a_vision_model.embed_tokens.weight": torch.full((config.vocab_size, config.hidden_size), 9.0),
            "a_vision.lm_head.weight": torch.full((config.vocab_size, config.hidden_size), 9.0),
        }
        return vision | {f"language_model.{name}": value for name, value in tensors.items()}

    rewrite(verifier, wrapped)
    with shim():
        draft = draft_model(verifier, config)
    tensors = tensors_of(verifier)
    assert_verifier_weights(draft, tensors, "language_model.model.", "language_model.lm_head.weight")
    norm = getattr(draft, "verifier_norm", None)
    weight = norm.weight if norm is not None else draft.verifier_lm_head.final_norm_weight
    assert weight.equal(tensors["language_model.model.norm.weight"].float())
    if norm is not None:
        with shim(without=DRIFT.id):
            assert (draft_model(verifier, config).verifier_norm.weight == 9).all()


def test_tied_embeddings_serve_as_head(tmp_path):
    verifier = make_gemma3(tmp_path / "gemma")
    with shim():
        draft = draft_model(verifier, text_config(str(verifier)))
    assert_verifier_weights(draft, tensors_of(verifier), "model.", "model.embed_tokens.weight")


def test_missing_head_of_an_untied_model_is_refused(tmp_path):
    verifier = make_llama(tmp_path / "llama")
    rewrite(
        verifier,
        lambda tensors: {name: value for name, value in tensors.items() if "lm_head" not in name},
    )
    with shim(), pytest.raises(UsageError, match=r"must hold lm_head\.weight"):
        draft_model(verifier, text_config(str(verifier)))


def test_quantised_embeddings_are_refused(tmp_path):
    import torch

    verifier = make_llama(tmp_path / "llama")
    name = "model.embed_tokens.weight"
    rewrite(verifier, lambda tensors: {**tensors, name: tensors[name].to(torch.float8_e4m3fn)})
    with shim(), pytest.raises(UsageError, match=r"unquantised.*float8_e4m3fn"):
        draft_model(verifier, text_config(str(verifier)))
