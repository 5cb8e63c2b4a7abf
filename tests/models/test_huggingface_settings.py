"""Every field that a transformers config has is represented here, refused when it differs from what we compute, or
without effect: enumerated from the transformers that is installed, and held against what its models compute."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from paddock.checkpoint.foreign.huggingface import load_weights, read_config, save_folder
from paddock.errors import DataError
from paddock.models import registry
from paddock.models.bert.config import BertConfig
from paddock.models.bert.model import Bert
from paddock.models.huggingface_settings import Settings
from paddock.models.layers.initialization import initialize
from paddock.models.registry import family_named

CONFIGS: dict[str, Any] = {
    "gpt2": transformers.GPT2Config,
    "bert": transformers.BertConfig,
    "resnet": transformers.ResNetConfig,
    "t5": transformers.T5Config,
}
NEEDED: dict[str, dict[str, Any]] = {
    "bert": {"architectures": ["BertForSequenceClassification"]},
    "t5": {"decoder_start_token_id": 0},
}
"""What their own config classes leave out, and published files have."""
OTHER_VALUES: dict[str, Any] = {
    "activation_function": "relu",
    "hidden_act": "relu",
    "n_head": 6,
    "num_attention_heads": 6,
    "n_inner": 100,
    "hidden_sizes": [64, 128, 256, 512],
    "depths": [3, 4, 23, 3],
    "layer_type": "basic",
    "id2label": {"0": "a", "1": "b", "2": "c"},
    "num_labels": 3,
    "architectures": ["BertForQuestionAnswering"],
    "classifier_dropout": 0.5,
    "embedding_size": 32,
    "chunk_size_feed_forward": 4,
    "summary_activation": "tanh",
    "summary_type": "mean",
    "problem_type": "regression",
    "feed_forward_proj": "gelu",
    "dense_act_fn": "gelu",
    "dtype": "float16",
    "torch_dtype": "float16",
    "label2id": {"a": 0, "b": 1, "c": 2},
}
"""By field, a value that is not the usual one; others are the usual one changed by their type."""
REFUSED_ALONE = {
    *("embd_pdrop", "resid_pdrop", "classifier_dropout", "embedding_size", "hidden_sizes", "layer_type"),
    *("feed_forward_proj", "dense_act_fn", "is_gated_act"),
}
"""Fields that our config follows together with others: two rates that are one here, sizes that follow from sizes."""
NOT_SET = {"model_type", "transformers_version", "return_dict", "out_features", "out_indices", "stage_names"}
"""What a model of theirs cannot be built with another value of, or is none of a model's."""


def settings_of(family: str) -> Settings:
    return family_named(family).huggingface().SETTINGS


def fields_of(family: str) -> set[str]:
    """All that the installed transformers can find in a `config.json` of the family."""
    kind = CONFIGS[family]
    arguments = set(inspect.signature(kind.__init__).parameters) - {"self", "args", "kwargs"}
    return {*kind().to_dict(), *arguments, *kind.attribute_map, "num_labels"}


def other_value(family: str, field: str) -> Any:
    if field in OTHER_VALUES:
        return OTHER_VALUES[field]
    usual = getattr(CONFIGS[family](), field, None)
    if isinstance(usual, bool):
        return not usual
    return usual * 2 if isinstance(usual, (int, float)) and usual else 1


def usual_values(family: str, **changes: Any) -> dict[str, Any]:
    """A `config.json` that has the model's own fields as transformers has them by itself."""
    values = {**CONFIGS[family]().to_dict(), **NEEDED.get(family, {})}
    values = {name: value for name, value in json.loads(json.dumps(values)).items() if name not in changes}
    for name, other in CONFIGS[family].attribute_map.items():
        if name in changes:
            values.pop(other, None)
    if "num_labels" in changes:
        del values["id2label"]
    return values | changes


def test_every_family_is_looked_at() -> None:
    assert {*CONFIGS, "own"} == set(registry._own())  # tests may add others; a user's own module has no such config


@pytest.mark.parametrize("family", CONFIGS)
def test_every_field_of_transformers_is_accounted_for(family: str) -> None:
    settings = settings_of(family)
    lists = {"represented": settings.names(), "fixed": {*settings.fixed}, "without_effect": {*settings.without_effect}}
    unknown = sorted(fields_of(family) - set().union(*lists.values()))
    assert not unknown, (
        f"transformers {transformers.__version__} has fields of {family} that nobody has looked at: {unknown}. Say in "
        f"SETTINGS of paddock/models/{family}/huggingface.py whether each is represented, fixed or without effect."
    )
    for one, other in (("represented", "fixed"), ("represented", "without_effect"), ("fixed", "without_effect")):
        assert not lists[one] & lists[other], f"{one} and {other}"


@pytest.mark.parametrize("family", CONFIGS)
def test_represented_fields_change_our_config(family: str) -> None:
    """Or are refused, where we have two of theirs as one, or no such value."""
    names = family_named(family).huggingface()
    base = names.from_huggingface_config(usual_values(family))
    for field in sorted(settings_of(family).names() & fields_of(family)):
        values = usual_values(family, **{field: other_value(family, field)})
        try:
            assert names.from_huggingface_config(values) != base, field
        except DataError:
            assert field in REFUSED_ALONE, field


@pytest.mark.parametrize("family", CONFIGS)
def test_fixed_fields_are_refused(family: str) -> None:
    names = family_named(family).huggingface()
    for field, rule in settings_of(family).fixed.items():
        heads = [{"architectures": [name]} for name in ("BertForMaskedLM", "BertForSequenceClassification")]
        found = 0
        for head in heads if family == "bert" else [{}]:
            for value in rule.accepted:
                names.from_huggingface_config(usual_values(family, **head, **{field: value}))
            try:
                names.from_huggingface_config(usual_values(family, **head, **{field: "something else"}))
            except DataError as error:
                found += 1
                assert field in error.what and error.why == rule.why
        assert found, field


@pytest.mark.parametrize("family", CONFIGS)
def test_fields_without_effect_change_nothing_of_ours(family: str) -> None:
    names = family_named(family).huggingface()
    base = names.from_huggingface_config(usual_values(family))
    for field in sorted({*settings_of(family).without_effect} - {"model_type"}):
        values = usual_values(family, **{field: other_value(family, field)})
        if field not in ("num_labels", "id2label"):
            values["id2label"] = usual_values(family)["id2label"]
        assert names.from_huggingface_config(values) == base, field


SMALL: dict[str, dict[str, Any]] = {
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 12, "vocab_size": 19},
    "bert": {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 20,
        "max_position_embeddings": 12,
        "vocab_size": 19,
    },
    "t5": {"d_model": 16, "num_layers": 2, "num_heads": 2, "d_kv": 6, "d_ff": 20, "vocab_size": 19},
    "resnet": {"embedding_size": 8, "hidden_sizes": [8, 16, 32, 64], "depths": [1] * 4, "layer_type": "basic"},
}
MODELS: dict[str, list[Any]] = {
    "gpt2": [transformers.GPT2LMHeadModel],
    "bert": [
        transformers.BertForMaskedLM,
        transformers.BertForQuestionAnswering,
        transformers.BertForSequenceClassification,
    ],
    "resnet": [transformers.ResNetForImageClassification],
    "t5": [transformers.T5ForConditionalGeneration],
}


def outputs_of_theirs(family: str, kind: Any, **changes: Any) -> Tensor:
    """What a model of theirs with these settings computes from weights that are always the same."""
    config = CONFIGS[family](**SMALL[family])
    for name, value in changes.items():
        setattr(config, name, value)
    model = kind(config).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
        if family == "resnet":
            found = model(torch.randn(2, 3, 32, 32, generator=generator), return_dict=True)
        else:
            tokens = torch.randint(19, (2, 12), generator=generator)
            mask = torch.arange(12) < torch.tensor([[12], [7]])
            target = {"decoder_input_ids": tokens[:, :5]} if family == "t5" else {}
            found = model(tokens, attention_mask=mask.long(), return_dict=True, **target)
    return torch.stack([found.start_logits, found.end_logits]) if "start_logits" in found else found.logits


@pytest.mark.parametrize("family", CONFIGS)
def test_fields_without_effect_have_none_in_transformers(family: str) -> None:
    for kind in MODELS[family]:
        expected = outputs_of_theirs(family, kind)
        for field in sorted({*settings_of(family).without_effect} & {*CONFIGS[family]().to_dict()} - NOT_SET):
            if field.startswith("_"):
                continue
            found = outputs_of_theirs(family, kind, **{field: other_value(family, field)})
            torch.testing.assert_close(found, expected, msg=f"{kind.__name__}: {field}", rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("gpt2", {"scale_attn_weights": False}),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
        ("bert", {"is_decoder": True}),
        ("t5", {"scale_decoder_outputs": False}),
        ("resnet", {"hidden_act": "gelu"}),
        ("resnet", {"downsample_in_first_stage": True}),
    ],
)
def test_fixed_fields_matter_in_transformers(family: str, changes: dict[str, Any]) -> None:
    """Passed over, they would give other numbers."""
    kind = MODELS[family][0]
    assert not torch.allclose(outputs_of_theirs(family, kind), outputs_of_theirs(family, kind, **changes), atol=1e-2)


@pytest.mark.parametrize("problem", ["regression", "multi_label_classification"])
def test_problem_type(problem: str) -> None:
    """Their loss is another one then; ours would be the cross-entropy of one class, without a word."""
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(transformers.BertConfig(**SMALL["bert"], num_labels=3)).eval()
    tokens, labels = torch.randint(19, (2, 12)), torch.tensor([0, 2])
    loss = model(tokens, labels=labels).loss
    model.config.problem_type = problem
    other = model(tokens, labels=torch.nn.functional.one_hot(labels, 3).float()).loss
    assert abs(loss.item() - other.item()) > 0.1
    for family, head in (("bert", NEEDED["bert"]), ("resnet", {})):
        with pytest.raises(DataError, match=f"problem_type = {problem}"):
            family_named(family).huggingface().from_huggingface_config(
                usual_values(family, **head, problem_type=problem)
            )
    for head in ("BertForQuestionAnswering", "BertForMaskedLM"):  # which do not look at it
        values = usual_values("bert", architectures=[head], problem_type=problem)
        assert family_named("bert").huggingface().from_huggingface_config(values).task() != "sequence_classification"


def test_a_size_under_two_names() -> None:
    names = family_named("gpt2").huggingface()
    same = names.from_huggingface_config({"model_type": "gpt2", "n_layer": 3, "num_hidden_layers": 3})
    assert same == names.from_huggingface_config({"model_type": "gpt2", "num_hidden_layers": 3})
    with pytest.raises(DataError, match="num_hidden_layers = 4"):
        names.from_huggingface_config({"model_type": "gpt2", "n_layer": 3, "num_hidden_layers": 4})


def test_labels_that_contradict_each_other() -> None:
    for family, changes in (("bert", NEEDED["bert"]), ("resnet", {})):
        with pytest.raises(DataError, match="num_labels = 5"):
            family_named(family).huggingface().from_huggingface_config(
                usual_values(family) | changes | {"id2label": {"0": "a", "1": "b", "2": "c"}, "num_labels": 5}
            )


# --- what the weights show


def folder_of(tmp_path: Path, head: str, *, classes: int = 2) -> Path:
    config = BertConfig(hidden=8, layers=1, heads=2, vocab=11, context=4, head=head, classes=classes)  # type: ignore[arg-type]
    model = Bert(config)
    initialize(model, seed=0)
    save_folder(model.state_dict(), config, tmp_path / "model")
    return tmp_path / "model"


def forget(folder: Path, *fields: str, **changes: Any) -> None:
    values = json.loads((folder / "config.json").read_text())
    values = {name: value for name, value in values.items() if name not in fields}
    (folder / "config.json").write_text(json.dumps(values | changes))


@pytest.mark.parametrize("architectures", [None, [], ["BertModel"], ["MyOwnBert"]])
@pytest.mark.parametrize("head", ["question_answering", "sequence_classification", "masked_language_modeling"])
def test_a_head_that_the_weights_show(tmp_path: Path, head: str, architectures: list[str] | None) -> None:
    classes = 3 if head == "sequence_classification" else 2
    folder = folder_of(tmp_path, head, classes=classes)
    said = {} if architectures is None else {"architectures": architectures}
    forget(folder, "architectures", "id2label", "label2id", **said)
    config = read_config(folder)
    assert isinstance(config, BertConfig) and (config.head, config.classes) == (head, classes)
    model = Bert(config)
    assert load_weights(model, folder) == []
    weights = load_file(folder / "model.safetensors")
    if head != "masked_language_modeling":
        assert torch.equal(model.head.output.weight, weights.get("qa_outputs.weight", weights.get("classifier.weight")))


def test_a_classifier_of_tokens_is_none_of_texts(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "sequence_classification")
    weights = load_file(folder / "model.safetensors")
    save_file({name: value for name, value in weights.items() if "pooler" not in name}, folder / "model.safetensors")
    forget(folder, "architectures")
    assert read_config(folder).task() == "masked_language_modeling"


def test_a_folder_that_names_its_head_is_believed(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "question_answering")
    forget(folder, architectures=["BertForMaskedLM"])
    assert read_config(folder).task() == "masked_language_modeling"
    (folder / "model.safetensors").unlink()
    assert read_config(folder).task() == "masked_language_modeling", "the weights are not needed"
