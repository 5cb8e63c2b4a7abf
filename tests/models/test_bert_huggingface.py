"""BERT against transformers: the same weights give the same outputs, losses and gradients, in both directions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F
from transformers.activations import ACT2FN

from paddock.checkpoint.foreign.huggingface import load_weights, read_config, save_folder
from paddock.inference.trained import open_trained
from paddock.jobs.convert import convert
from paddock.models.bert.config import BertConfig, Head
from paddock.models.bert.huggingface import from_huggingface_config, tensors, to_huggingface_config
from paddock.models.bert.model import Bert
from paddock.models.layers.basic import ACTIVATIONS
from paddock.models.layers.initialization import initialize

CLASSES: dict[Head, Any] = {
    "masked_language_modeling": transformers.BertForMaskedLM,
    "question_answering": transformers.BertForQuestionAnswering,
    "sequence_classification": transformers.BertForSequenceClassification,
}
SHAPES: list[dict[str, Any]] = [
    {},
    {"num_attention_heads": 2, "intermediate_size": 50, "hidden_act": "gelu_new", "layer_norm_eps": 1e-3},
    {"num_attention_heads": 8, "num_hidden_layers": 3, "hidden_act": "relu", "vocab_size": 61, "type_vocab_size": 3},
    {"num_attention_heads": 1, "num_hidden_layers": 1, "hidden_size": 20, "vocab_size": 7},
]
SMALL: dict[str, Any] = {"hidden": 32, "layers": 2, "heads": 4, "vocab": 97, "context": 24}
LENGTHS = torch.tensor([24, 5, 17])


def reference(kind: Any, **changes: Any) -> Any:
    """Theirs, with every number random: biases of zero and norms of one would hide a mistake."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 97}
    other = {"max_position_embeddings": 24, "intermediate_size": 40}
    model = kind(transformers.BertConfig(**{**sizes, **other, **changes})).eval()
    return scatter(model, 7)


def scatter(model: Any, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.02, 0.5, generator=generator)
    return model


def imported(folder: Path) -> Bert:
    config = read_config(folder)
    assert isinstance(config, BertConfig)
    model = Bert(config).eval()
    assert load_weights(model, folder) == []
    return model


def inputs_for(config: BertConfig) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, their types and which of them are there."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(config.vocab, (3, 24), generator=generator)
    types = torch.randint(config.token_types, (3, 24), generator=generator)
    return tokens, types, torch.arange(24) < LENGTHS.unsqueeze(-1)


def labels_for(config: BertConfig) -> Tensor:
    if config.head == "question_answering":
        return torch.tensor([[3, 20], [2, 4], [0, 16]])
    if config.head == "sequence_classification":
        return torch.tensor([0, 1, config.classes - 1])
    tokens, _, there = inputs_for(config)
    asked = torch.rand(3, 24, generator=torch.Generator().manual_seed(5)) < 0.3
    return torch.where(asked & there, tokens, -100)


def their_loss(theirs: Any, config: BertConfig) -> Tensor:
    """The mean that they would train on; of answers, over what is there only, which theirs does not look at."""
    tokens, types, there = inputs_for(config)
    batch = {"input_ids": tokens, "token_type_ids": types, "attention_mask": there.long()}
    labels = labels_for(config)
    if config.head != "question_answering":
        loss: Tensor = theirs(**batch, labels=labels).loss
        return loss
    found = theirs(**batch)
    ends = [logits.masked_fill(~there, -torch.inf) for logits in (found.start_logits, found.end_logits)]
    return sum((F.cross_entropy(ends[at], labels[:, at]) for at in (0, 1)), torch.zeros(())) / 2


def assert_same(ours: Bert, theirs: Any) -> None:
    config = ours.config
    tokens, types, there = inputs_for(config)
    labels = labels_for(config)
    count = (labels != -100).sum() if config.head == "masked_language_modeling" else len(tokens)
    with torch.no_grad():
        found = theirs(input_ids=tokens, token_type_ids=types, attention_mask=there.long())
        outputs = ours(tokens, token_types=types, lengths=LENGTHS)
        loss = ours(tokens, labels, types, LENGTHS) / count
        whole = ours(tokens[:1], token_types=types[:1])
    if config.head == "question_answering":
        expected = torch.stack([found.start_logits, found.end_logits], dim=-1)
        assert bool((outputs[~there] == torch.finfo(torch.float32).min).all())
    else:
        expected = found.logits
    if config.head != "sequence_classification":
        outputs, expected, whole = outputs[there], expected[there], whole[0]
    assert expected.std() > 0.1
    torch.testing.assert_close(outputs, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(whole, expected[: len(whole)], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(loss, their_loss(theirs, config), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("head", CLASSES)
@pytest.mark.parametrize("changes", SHAPES)
def test_import_gives_their_outputs(head: Head, changes: dict[str, Any], tmp_path: Path) -> None:
    labels = {"num_labels": 5} if head == "sequence_classification" else {}
    theirs = reference(CLASSES[head], **changes, **labels)
    theirs.save_pretrained(tmp_path)
    ours = imported(tmp_path)
    assert (ours.config.head, ours.config.classes) == (head, 5 if labels else 2)
    assert_same(ours, theirs)


@pytest.mark.parametrize("head", CLASSES)
def test_gradients_are_theirs(head: Head, tmp_path: Path) -> None:
    theirs = reference(CLASSES[head])
    theirs.save_pretrained(tmp_path)
    ours = imported(tmp_path)
    tokens, types, _ = inputs_for(ours.config)
    labels = labels_for(ours.config)
    count = (labels != -100).sum() if head == "masked_language_modeling" else len(tokens)
    (ours(tokens, labels, types, LENGTHS) / count).backward()
    their_loss(theirs, ours.config).backward()
    expected = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for rule in tensors(ours.config):
        gradient = ours.get_parameter(rule.ours).grad
        assert gradient is not None
        wanted = torch.cat([expected[name] for name in rule.names])
        torch.testing.assert_close(rule.to_theirs(gradient), wanted, atol=1e-4, rtol=1e-3, msg=rule.ours)


@pytest.mark.parametrize("shards", [False, True])
def test_import_of_torch_files(tmp_path: Path, shards: bool) -> None:
    theirs = reference(transformers.BertForQuestionAnswering)
    theirs.config.architectures = ["BertForQuestionAnswering"]
    theirs.config.save_pretrained(tmp_path)
    weights = dict(theirs.state_dict())
    if not shards:
        torch.save(weights, tmp_path / "pytorch_model.bin")
    else:
        files = {name: f"pytorch_model-{number % 3}.bin" for number, name in enumerate(weights)}
        for file in set(files.values()):
            torch.save({name: weights[name] for name in weights if files[name] == file}, tmp_path / file)
        (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": files}))
    assert_same(imported(tmp_path), theirs)


def test_import_of_old_names(tmp_path: Path) -> None:
    """The files of 2018: gamma and beta, numbered positions, and the head's matrix and bias repeated."""
    theirs = reference(transformers.BertForMaskedLM)
    theirs.config.architectures = ["BertForMaskedLM"]
    theirs.config.save_pretrained(tmp_path)
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
        for name, value in theirs.state_dict().items()
    }
    assert "cls.predictions.decoder.weight" in old and "cls.predictions.decoder.bias" in old
    old["bert.embeddings.position_ids"] = torch.arange(24).unsqueeze(0)
    torch.save(old, tmp_path / "pytorch_model.bin")
    assert_same(imported(tmp_path), theirs)


def fresh(head: Head, folder: Path, **changes: Any) -> tuple[Bert, list[str]]:
    """A model with initial weights, as training begins it from a folder, and what is said about that."""
    config = read_config(folder)
    assert isinstance(config, BertConfig)
    model = Bert(BertConfig(**{**config.model_dump(), "head": head, "classes": 2, **changes}))
    initialize(model, seed=5)
    return model, load_weights(model, folder, new_heads=True)


@pytest.mark.parametrize("prefix", ["", "bert."])
@pytest.mark.parametrize("head", CLASSES)
def test_an_encoder_gets_a_new_head(head: Head, prefix: str, tmp_path: Path) -> None:
    encoder = reference(transformers.BertModel)
    encoder.config.save_pretrained(tmp_path)
    weights = {f"{prefix}{name}": value for name, value in encoder.state_dict().items()}
    save_file(weights, tmp_path / "model.safetensors")
    model, remarks = fresh(head, tmp_path)
    begun = Bert(model.config)
    initialize(begun, seed=5)
    pooler = {"head.pooler.weight", "head.pooler.bias"}
    new = {name for name, _ in model.named_parameters() if name.startswith("head.")} - pooler
    for name, parameter in model.named_parameters():
        alike = torch.equal(parameter, begun.get_parameter(name))
        assert alike == (name in new), name
    pooler_is_left_out = "left out: bert.pooler.dense.bias, bert.pooler.dense.weight" in " ".join(remarks)
    assert "begun from initial values" in remarks[0] and all(name in remarks[0] for name in new)
    assert pooler_is_left_out == (head != "sequence_classification")
    tokens, types, there = inputs_for(model.config)
    x = model.eval().embedding(tokens, types)
    for block in model.unit_modules():
        x = block(x, LENGTHS)
    expected = encoder(tokens, token_type_ids=types, attention_mask=there.long()).last_hidden_state
    torch.testing.assert_close(x[there], expected[there], atol=1e-4, rtol=1e-4)


def test_heads_of_other_tasks_are_left_out(tmp_path: Path) -> None:
    theirs = reference(transformers.BertForPreTraining)
    theirs.save_pretrained(tmp_path)
    model, remarks = fresh("masked_language_modeling", tmp_path)
    (remark,) = remarks
    assert "left out: bert.pooler.dense.bias" in remark and "cls.seq_relationship.weight" in remark
    tokens, types, there = inputs_for(model.config)
    found = theirs(tokens, token_type_ids=types, attention_mask=there.long()).prediction_logits
    ours = model.eval()(tokens, token_types=types, lengths=LENGTHS)
    torch.testing.assert_close(ours[there], found[there], atol=1e-4, rtol=1e-4)
    _, remarks = fresh("question_answering", tmp_path)
    assert "head.output.weight" in remarks[0] and "cls.predictions.transform.dense.weight" in remarks[1]


def test_a_head_for_other_classes_is_reset_on_request(tmp_path: Path) -> None:
    reference(transformers.BertForSequenceClassification, num_labels=3).save_pretrained(tmp_path)
    model, remarks = fresh("sequence_classification", tmp_path, reset_head=True)
    assert model.head.output.weight.shape == (2, 32)  # type: ignore[union-attr]
    assert "head.output.weight" in remarks[0] and "head.pooler.weight" in remarks[0]
    assert "left out: bert.pooler.dense.bias" in remarks[1] and "classifier.weight" in remarks[1]


@pytest.mark.parametrize("head", CLASSES)
@pytest.mark.parametrize("changes", [{}, {"heads": 8, "feed_forward": 50, "activation": "relu", "norm_eps": 1e-3}])
@pytest.mark.parametrize("max_shard_bytes", [10**9, 20_000])
def test_export_is_what_transformers_loads(
    head: Head, changes: dict[str, Any], max_shard_bytes: int, tmp_path: Path
) -> None:
    classes = {"classes": 4} if head == "sequence_classification" else {}
    ours = scatter(Bert(BertConfig(**{**SMALL, **changes, **classes, "head": head})).eval(), 11)
    place = tmp_path / "export"
    save_folder(ours.state_dict(), ours.config, place, max_shard_bytes=max_shard_bytes, eos_token_id=3)
    assert not (place / "generation_config.json").exists()
    theirs, report = CLASSES[head].from_pretrained(place, output_loading_info=True)
    assert not any(report.values()), report
    assert_same(ours, theirs.eval())
    again = imported(place)
    assert again.config == ours.config
    for name, value in ours.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


def test_export_in_half_precision(tmp_path: Path) -> None:
    ours = scatter(Bert(BertConfig(**SMALL, head="question_answering")).eval(), 11)
    save_folder(ours.state_dict(), ours.config, tmp_path / "export", dtype="bfloat16")
    theirs = transformers.BertForQuestionAnswering.from_pretrained(tmp_path / "export")
    assert theirs.dtype == torch.bfloat16
    assert_same(ours.to(theirs.dtype).float(), theirs.float().eval())


@pytest.mark.parametrize("head", CLASSES)
def test_rules_cover_the_model_and_invert(head: Head) -> None:
    model = scatter(Bert(BertConfig(hidden=12, layers=2, heads=3, vocab=11, context=4, feed_forward=7, head=head)), 1)
    state = model.state_dict()
    rules = {rule.ours: rule for rule in tensors(model.config)}
    assert set(rules) == set(state)
    for name, value in state.items():
        rule = rules[name]
        parts = [rule.part_of_theirs(value, theirs) for theirs in rule.names]
        assert [part.shape for part in parts] == list(rule.shapes.values())
        assert torch.equal(rule.to_ours(torch.cat(parts)), value), name


def test_a_part_of_the_model_takes_its_part(tmp_path: Path) -> None:
    """As a pipeline stage does, which holds some blocks under their names."""
    reference(transformers.BertForQuestionAnswering).save_pretrained(tmp_path)
    whole = imported(tmp_path)
    stage = Bert(whole.config)
    del stage.layers["0"], stage.embedding
    load_weights(stage, tmp_path)
    for name, parameter in stage.named_parameters():
        assert torch.equal(parameter, whole.get_parameter(name)), name


@pytest.mark.parametrize("name", ["gelu_new", "gelu_fast", "gelu_python", "relu"])
def test_activations_by_other_names(name: str) -> None:
    config = from_huggingface_config({"model_type": "bert", "hidden_act": name})
    x = torch.linspace(-6, 6, 500, dtype=torch.float64)
    torch.testing.assert_close(ACTIVATIONS[config.activation](x), ACT2FN[name](x), atol=1e-9, rtol=0)


@pytest.mark.parametrize("changes", [{}, {"attention_dropout": 0.0}, {"head": "sequence_classification", "classes": 5}])
def test_config_survives_the_round_trip(changes: dict[str, Any]) -> None:
    config = BertConfig(
        **{
            **{"layers": 3, "hidden": 20, "heads": 5, "feed_forward": 17, "vocab": 13, "context": 9, "dropout": 0.2},
            **{"token_types": 3, "activation": "gelu_tanh", "norm_eps": 1e-6, "init_std": 0.01},
            **changes,
        }
    )
    values = to_huggingface_config(config)
    assert from_huggingface_config(json.loads(json.dumps(values))) == config
    theirs = transformers.BertConfig(**values)
    assert theirs.num_labels == (config.classes if config.head == "sequence_classification" else 2)
    assert from_huggingface_config(transformers.BertConfig().to_dict()) == BertConfig()


def test_safetensors_hold_every_weight_once(tmp_path: Path) -> None:
    model = scatter(Bert(BertConfig(**SMALL)), 3)
    save_folder(model.state_dict(), model.config, tmp_path / "export")
    stored = load_file(tmp_path / "export" / "model.safetensors")
    assert sum(value.numel() for value in stored.values()) == model.config.num_parameters()


@pytest.mark.parametrize("head", CLASSES)
def test_the_command_converts_both_ways(head: Head, tmp_path: Path) -> None:
    """A checkpoint made of a folder knows its task, and gives the folder back."""
    reference(CLASSES[head]).save_pretrained(tmp_path / "theirs")
    convert(str(tmp_path / "theirs"), tmp_path / "ours", "paddock", "float32")
    assert open_trained(str(tmp_path / "ours"), torch.device("cpu")).model.config.task() == head
    convert(str(tmp_path / "ours"), tmp_path / "again", "huggingface", "float32")
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("theirs", "again"))
    assert set(before) == set(after) and all(torch.equal(before[name], after[name]) for name in before)


def test_padding_has_no_part_in_the_loss_of_answers(tmp_path: Path) -> None:
    """As the guide says: theirs grows with what a row is filled up to, ours does not; without padding they agree."""
    theirs = reference(transformers.BertForQuestionAnswering)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = imported(tmp_path / "theirs")
    tokens = torch.randint(97, (1, 24), generator=torch.Generator().manual_seed(3))
    labels, real = torch.tensor([[2, 4]]), 6
    found: dict[int, tuple[float, float]] = {}
    for length in (real, 12, 24):
        mask = (torch.arange(length) < real).long().unsqueeze(0)
        row = tokens[:, :length]
        with torch.no_grad():
            expected = theirs(row, attention_mask=mask, start_positions=labels[:, 0], end_positions=labels[:, 1]).loss
            loss = ours(row, labels, lengths=torch.tensor([real]))
        found[length] = (loss.item(), expected.item())
    assert found[real][0] == pytest.approx(found[real][1], rel=1e-4)
    assert found[12][0] == pytest.approx(found[real][0], rel=1e-4)
    assert found[24][0] == pytest.approx(found[real][0], rel=1e-4)
    assert found[real][1] + 0.01 < found[12][1] < found[24][1] - 0.01
