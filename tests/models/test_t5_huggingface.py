"""T5 and mT5 against transformers: the same weights give the same outputs, losses and gradients, in both directions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F

from paddock.checkpoint.foreign.huggingface import load_weights, read_config, save_folder
from paddock.errors import ConfigError, DataError
from paddock.models.layers.initialization import initialize
from paddock.models.t5.config import T5Config
from paddock.models.t5.huggingface import from_huggingface_config, tensors, to_huggingface_config
from paddock.models.t5.model import T5

SIZES: dict[str, Any] = {"vocab_size": 101, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 3, "num_heads": 6}
OTHER: dict[str, Any] = {"decoder_start_token_id": 0, "relative_attention_max_distance": 40, "dropout_rate": 0.0}
KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "t5 v1.0": (transformers.T5Config, transformers.T5ForConditionalGeneration, {"feed_forward_proj": "relu"}),
    "t5 v1.1": (
        transformers.T5Config,
        transformers.T5ForConditionalGeneration,
        {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "num_decoder_layers": 2},
    ),
    "mt5": (transformers.MT5Config, transformers.MT5ForConditionalGeneration, {"tie_word_embeddings": False}),
}
LENGTHS = torch.tensor([70, 33, 1])
each = pytest.mark.parametrize("kind", KINDS)


def reference(kind: str, folder: Path) -> Any:
    """Theirs, with every number random, saved as the published ones are: what is not tied has a head of its own."""
    config, model, changes = KINDS[kind]
    theirs = model(config(**SIZES, **OTHER, **changes)).eval()
    if "tie_word_embeddings" in changes:
        theirs.lm_head.weight = nn.Parameter(torch.empty_like(theirs.lm_head.weight))
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0.02, 0.3, generator=generator)
    theirs.save_pretrained(folder)
    if "tie_word_embeddings" in changes:  # newer versions write true, whatever it was
        values = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(values | {"tie_word_embeddings": False}))
    return theirs


def imported(folder: Path) -> T5:
    config = read_config(folder)
    assert isinstance(config, T5Config)
    model = T5(config).eval()
    assert load_weights(model, folder) == []
    return model


def batch() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(101, (3, 9), generator=generator)
    labels[1, 5:] = -100
    return {
        "tokens": torch.randint(101, (3, 70), generator=generator),
        "decoder_tokens": torch.randint(101, (3, 9), generator=generator),
        "labels": labels,
        "lengths": LENGTHS,
    }


def their_logits(theirs: Any) -> Tensor:
    given = batch()
    there = torch.arange(70) < LENGTHS.unsqueeze(-1)
    found: Tensor = theirs(
        input_ids=given["tokens"], attention_mask=there.long(), decoder_input_ids=given["decoder_tokens"]
    ).logits
    return found


@each
def test_import_gives_their_outputs_losses_and_gradients(kind: str, tmp_path: Path) -> None:
    theirs, given = reference(kind, tmp_path), batch()
    ours = imported(tmp_path)
    assert ours.config.tied == ours.config.scale_head == (kind == "t5 v1.0")
    with torch.no_grad():
        logits = ours(**{name: tensor for name, tensor in given.items() if name != "labels"})
    expected = their_logits(theirs)
    assert expected.std() > 0.05
    torch.testing.assert_close(logits, expected.detach(), atol=1e-4, rtol=1e-4)
    their_loss = F.cross_entropy(expected.flatten(0, 1), given["labels"].flatten(), reduction="sum")
    loss = ours(**given)
    torch.testing.assert_close(loss, their_loss, atol=1e-4, rtol=1e-4)
    their_loss.backward()
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    own = dict(ours.named_parameters())
    for rule in tensors(ours.config):
        wanted = rule.to_ours(torch.cat([gradients[name] for name in rule.names]))
        gradient = own[rule.ours].grad
        assert gradient is not None
        assert (gradient - wanted).norm() <= 1e-4 * wanted.norm(), rule.ours


@each
def test_the_loss_is_that_which_they_compute_from_labels(kind: str, tmp_path: Path) -> None:
    """They shift the labels to the right themselves, and divide by how many count."""
    theirs, given = reference(kind, tmp_path), batch()
    there = torch.arange(70) < LENGTHS.unsqueeze(-1)
    start = torch.zeros(len(LENGTHS), 1, dtype=torch.long)
    shifted = torch.cat([start, given["labels"][:, :-1]], 1).masked_fill_(given["labels"].roll(1, 1) == -100, 0)
    their_loss = theirs(input_ids=given["tokens"], attention_mask=there.long(), labels=given["labels"]).loss
    loss = imported(tmp_path)(**{**given, "decoder_tokens": shifted}) / (given["labels"] != -100).sum()
    torch.testing.assert_close(loss, their_loss, atol=1e-5, rtol=1e-5)


@each
def test_export_is_read_by_transformers(kind: str, tmp_path: Path) -> None:
    config = from_huggingface_config(
        {**KINDS[kind][0](**SIZES, **OTHER, **KINDS[kind][2]).to_dict(), "tie_word_embeddings": kind == "t5 v1.0"}
    )
    ours = T5(config).eval()
    initialize(ours, seed=5)
    save_folder(ours.state_dict(), config, tmp_path / "export")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "export").eval()
    given = {name: tensor for name, tensor in batch().items() if name != "labels"}
    with torch.no_grad():
        torch.testing.assert_close(ours(**given), their_logits(theirs), atol=1e-4, rtol=1e-4)
    assert read_config(tmp_path / "export") == config


@each
def test_initial_weights_spread_as_theirs(kind: str) -> None:
    """The same standard deviations: attention that is not scaled would not learn from others."""
    wide = {"d_model": 256, "d_kv": 32, "d_ff": 512, "vocab_size": 997, "num_layers": 1, "num_heads": 6}
    hf, model, changes = KINDS[kind]
    torch.manual_seed(0)
    theirs = dict(model(hf(**{**wide, **OTHER, **changes})).named_parameters())
    ours = T5(from_huggingface_config({**hf(**{**wide, **OTHER, **changes}).to_dict(), "tie_word_embeddings": True}))
    initialize(ours, seed=1)
    for rule in tensors(ours.config):
        value = dict(ours.named_parameters())[rule.ours].detach()
        for name in rule.names:
            part = rule.part_of_theirs(value, name)
            expected = theirs[name].detach()
            if name == "lm_head.weight":  # begins as a product, or the first loss would be several times a guess's
                expected = expected * ours.config.hidden**-0.5
            few = 3.0 * expected.numel() ** -0.5  # of random numbers, a mean and a spread are known so well only
            assert part.mean().item() == pytest.approx(
                expected.mean().item(), abs=2 * few * expected.std().item() + 1e-6
            )
            assert part.std().item() == pytest.approx(expected.std().item(), rel=few + 0.02, abs=1e-6), name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decoder_start_token_id": None}, "decoder_start_token_id is missing"),
        ({"feed_forward_proj": "gated-swish"}, "feed_forward_proj = swish"),
        ({"feed_forward_proj": "gated-relu-relu"}, "feed_forward_proj"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder"),
        ({"model_type": "umt5"}, "model_type = umt5"),
        ({"num_heads": 0}, "heads"),
    ],
)
def test_what_we_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    values = transformers.T5Config(**SIZES, **OTHER).to_dict()
    with pytest.raises(DataError, match=message):
        from_huggingface_config({**values, **changes})


def test_two_dropouts_cannot_be_exported() -> None:
    with pytest.raises(ValueError, match="attention_dropout"):
        to_huggingface_config(T5Config(dropout=0.1, attention_dropout=0.2))


@pytest.mark.parametrize("kind", ["t5", "mt5"])
@pytest.mark.parametrize("tied", [True, False])
def test_tying_is_named_where_it_is_the_difference(kind: str, tied: bool, tmp_path: Path) -> None:
    """A folder of theirs, gated as T5 v1.1 and mT5 are, whose head is the embedding where `tied`, into the other."""
    config, model, _ = KINDS[kind if kind == "mt5" else "t5 v1.1"]
    theirs = model(config(**SIZES, **OTHER, feed_forward_proj="gated-gelu"))
    if not tied:
        theirs.lm_head.weight = nn.Parameter(torch.randn(101, 32))
    theirs.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    says = {"tie_word_embeddings": tied} | ({} if kind == "mt5" else {"scale_decoder_outputs": False})
    (tmp_path / "config.json").write_text(json.dumps(values | says))
    own = read_config(tmp_path)
    assert isinstance(own, T5Config) and own.tied == tied and not own.scale_head
    load_weights(T5(own), tmp_path)
    with pytest.raises(ConfigError) as caught:
        load_weights(T5(own.model_copy(update={"tied": not tied})), tmp_path)
    embedding, weight = "the head is the token embedding", "the head is a weight of its own"
    there, here = (embedding, weight) if tied else (weight, embedding)
    assert str(caught.value) == (
        f"model.tied = {not tied} ({here})\n"
        f"  why: the weights in {tmp_path} were trained with {tied} ({there})\n"
        f"  fix: set model.tied to {tied}"
    )


def test_a_tied_head_may_be_in_the_file_twice(tmp_path: Path) -> None:
    """As torch saves it; but not as two."""
    theirs = reference("t5 v1.0", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    state = theirs.state_dict()
    assert "lm_head.weight" in state
    torch.save(state, tmp_path / "pytorch_model.bin")
    ours = imported(tmp_path)
    given = {name: tensor for name, tensor in batch().items() if name != "labels"}
    with torch.no_grad():
        torch.testing.assert_close(ours(**given), their_logits(theirs), atol=1e-4, rtol=1e-4)
    torch.save({**state, "lm_head.weight": state["lm_head.weight"] + 1}, tmp_path / "pytorch_model.bin")
    with pytest.raises(DataError, match="lm_head.weight differs from shared.weight"):
        imported(tmp_path)


def test_a_tied_head_that_is_not_scaled_goes_there_and_back(tmp_path: Path) -> None:
    config = T5Config(vocab=101, hidden=32, heads=6, head_size=8, layers=2, feed_forward=48, tied=True, dropout=0.0)
    ours = T5(config).eval()
    initialize(ours, seed=5)
    save_folder(ours.state_dict(), config, tmp_path / "export")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "export").eval()
    given = {name: tensor for name, tensor in batch().items() if name != "labels"}
    with torch.no_grad():
        torch.testing.assert_close(ours(**given), their_logits(theirs), atol=1e-4, rtol=1e-4)
    assert read_config(tmp_path / "export") == config


def test_a_scaled_head_that_is_not_tied_cannot_be_exported() -> None:
    with pytest.raises(ConfigError, match=r"scale_head = True, model.tied = False"):
        to_huggingface_config(T5Config(scale_head=True))
