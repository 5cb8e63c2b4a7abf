"""What a model takes of a checkpoint of ours that was trained for another task: the encoder, and nothing by chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from paddock.checkpoint.loading import load_models, load_weights_only
from paddock.checkpoint.storage import write_checkpoint
from paddock.checkpoint.tensors import EMA, MODEL
from paddock.config.recipe import recipe_from_dict
from paddock.errors import ConfigError, DataError, UserError
from paddock.models.bert.config import BertConfig, Head
from paddock.models.bert.model import Bert
from paddock.models.gpt2.config import GPT2Config
from paddock.models.gpt2.model import GPT2
from paddock.models.layers.initialization import initialize

HEADS: tuple[Head, ...] = get_args(Head)
SMALL: dict[str, Any] = {"hidden": 8, "layers": 2, "heads": 2, "vocab": 11, "context": 8}


def drawn(seed: int, head: Head, **changes: Any) -> Bert:
    """Every number random: zero biases would hide a mistake."""
    model = Bert(BertConfig(**{**SMALL, "head": head, **changes}))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
    return model


def saved(folder: Path, model: Bert, prefix: str = MODEL) -> Path:
    """A checkpoint of it, with its recipe, as training writes one."""
    config = model.config
    recipe = recipe_from_dict({"task": config.task(), "model": config.model_dump(), "data": {"source": "synthetic"}})
    tensors = {MODEL + name: torch.zeros_like(value) for name, value in model.state_dict().items()}
    tensors |= {prefix + name: value for name, value in model.state_dict().items()}
    write_checkpoint(folder / "checkpoint", tensors, {"step": 3, "recipe": recipe.to_dict()})
    return folder / "checkpoint"


def changed(before: Bert, after: Bert) -> set[str]:
    """The names of the weights in which two models differ."""
    state = after.state_dict()
    return {name for name, value in before.state_dict().items() if not torch.equal(value, state[name])}


@pytest.mark.parametrize("prefix", [MODEL, EMA])
@pytest.mark.parametrize("ours", HEADS)
@pytest.mark.parametrize("theirs", HEADS)
def test_heads_of_other_tasks_begin_anew(theirs: Head, ours: Head, prefix: str, tmp_path: Path) -> None:
    """Also where both have a weight of the same name and shape, which mean different things."""
    trained, model, untouched = drawn(1, theirs), drawn(2, ours), drawn(2, ours)
    remarks = load_weights_only(saved(tmp_path, trained, prefix), [model])
    encoder = {name for name, _ in model.named_parameters() if not name.startswith("head.")}
    state = trained.state_dict()
    assert all(torch.equal(model.get_parameter(name), state[name]) for name in encoder)
    own_head, their_head = (
        [name for name, _ in each.named_parameters() if name.startswith("head.")] for each in (model, trained)
    )
    if theirs == ours:
        assert remarks == [] and changed(trained, model) == set()
        return
    assert changed(untouched, model) == encoder
    first, second = remarks
    assert first == f"begun from initial values: {', '.join(own_head)}"
    assert second == f"in it and left out: {', '.join(their_head)}"


def refused(
    path: Path, model: Any, *words: str, use: Any = load_weights_only, kind: type[UserError] = DataError
) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(kind) as caught:
        use(path, [model])
    for word in words:
        assert word in str(caught.value)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_missing_tensor_of_the_encoder(tmp_path: Path) -> None:
    path = saved(tmp_path, drawn(1, "masked_language_modeling"))
    for name, there, here in (("layers", 2, 3), ("layers", 2, 1), ("context", 8, 9)):
        other = drawn(2, "question_answering", **{name: here})
        refused(path, other, f"{name}: {there} in the checkpoint, {here} here", kind=ConfigError)
    with pytest.raises(ConfigError, match=r"model\.vocab = 12(.|\n)*--model\.vocab 11"):
        load_weights_only(path, [drawn(2, "question_answering", vocab=12)])


@pytest.mark.parametrize("use", [load_weights_only, load_models])
def test_settings_that_no_shape_shows(use: Any, tmp_path: Path) -> None:
    path = saved(tmp_path, drawn(1, "question_answering"))
    for field, value in (("heads", 4), ("activation", "relu"), ("norm_eps", 1e-6)):
        refused(path, drawn(2, "question_answering", **{field: value}), f"model.{field} = ", use=use, kind=ConfigError)
    other = GPT2(GPT2Config(hidden=8, layers=2, heads=2, vocab=11, context=8))
    initialize(other, 1)
    refused(path, other, "holds a bert", use=use)


def test_a_head_that_is_not_there_is_not_used(tmp_path: Path) -> None:
    """An evaluation, or going on with a run, wants the head that was trained."""
    path = saved(tmp_path, drawn(1, "masked_language_modeling"))
    words = ("has no head for question_answering", "head.output.weight", "--checkpoint.load")
    refused(path, drawn(2, "question_answering"), *words, use=load_models)


def test_a_head_for_other_classes(tmp_path: Path) -> None:
    path = saved(tmp_path, drawn(1, "sequence_classification", classes=3))
    for use in (load_weights_only, load_models):
        two = drawn(2, "sequence_classification")
        refused(path, two, "head.output.weight [3, 8], not [2, 8]", "--model.reset-head", use=use)
    for classes in (2, 3):
        model, untouched = (drawn(2, "sequence_classification", classes=classes, reset_head=True) for _ in range(2))
        (begun, left_out) = load_weights_only(path, [model])
        assert not any(name.startswith("head.") for name in changed(untouched, model))
        assert "head.pooler.weight" in begun and "head.output.bias" in left_out
    whole = drawn(2, "sequence_classification", classes=3, reset_head=True)
    load_models(path, [whole])  # a run that is used, or goes on: its head was begun anew long ago
    assert changed(drawn(1, "sequence_classification", classes=3), whole) == set()
