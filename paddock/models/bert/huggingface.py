"""BERT as Hugging Face has it: config fields, names and shapes, both ways. Files are none of its business.

Their queries, keys and values are three tensors, each of all heads; ours are one, head by head.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from paddock.documents import Document
from paddock.models.bert.config import BertConfig, Head
from paddock.models.huggingface_settings import (
    COMMON_FIXED,
    COMMON_WITHOUT_EFFECT,
    ONE_CLASS_EACH,
    THEIR_ACTIVATIONS,
    Fixed,
    Settings,
    check_activation,
    check_one_rate,
    count_labels,
    numbered_labels,
    own_config,
    read_fields,
)
from paddock.models.weight_names import Shapes, TensorRule, fused_qkv, linear, norm, same

TIED_NAMES: Mapping[str, str] = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
HEADS: Sequence[str] = ("bert.pooler.", "cls.predictions.", "cls.seq_relationship.", "qa_outputs.", "classifier.")

# Files of the bare encoder lack the prefix.
_BARE = re.compile(r"(embeddings|encoder|pooler)\.")
# What the norms' parameters were called before 2019.
_OLD = {".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"}

_ARCHITECTURES: dict[Head, str] = {
    "masked_language_modeling": "BertForMaskedLM",
    "question_answering": "BertForQuestionAnswering",
    "sequence_classification": "BertForSequenceClassification",
}


class BertFields(Document):
    """What a `config.json` says of the model."""

    architectures: list[str] | None = None
    num_hidden_layers: int = 12
    hidden_size: int = 768
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    vocab_size: int = 30522
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    id2label: dict[str | int, str | int] | None = None
    num_labels: int | None = Field(None, ge=0)


SETTINGS = Settings(
    model_type="bert",
    name="BERT",
    represented=BertFields,
    fixed={
        **COMMON_FIXED,
        "position_embedding_type": Fixed(("absolute",), "our positions are learned, one vector each"),
        "is_decoder": Fixed((False,), "our BERT is an encoder, which sees both directions"),
        "add_cross_attention": Fixed((False,), "our BERT is an encoder by itself, without cross-attention"),
        "tie_word_embeddings": Fixed((True,), "our masked-language head is the token embedding; these are not tied"),
        "problem_type": Fixed(ONE_CLASS_EACH, "our classifier gives one class to each text"),
    },
    without_effect={name: why for name, why in COMMON_WITHOUT_EFFECT.items() if name != "architectures"},
)
_ONLY_OF: dict[str, Head] = {
    "tie_word_embeddings": "masked_language_modeling",
    "problem_type": "sequence_classification",
}
"""Settings that matter to one head alone."""


def to_huggingface_config(
    config: BertConfig,
    *,
    dtype: str = "float32",
    bos_token_id: int | None = None,
    eos_token_id: int | None = None,
) -> dict[str, Any]:
    """The contents of a `config.json` that the class of the head reads; BERT generates nothing, so that no token
    begins or ends it."""
    classes = numbered_labels(config.classes) if config.head == "sequence_classification" else {}
    return {
        "architectures": [_ARCHITECTURES[config.head]],
        "model_type": "bert",
        "vocab_size": config.vocab,
        "hidden_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.feed_forward_width,
        "hidden_act": THEIR_ACTIVATIONS[config.activation],
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout_rate,
        "classifier_dropout": None,
        "max_position_embeddings": config.context,
        "type_vocab_size": config.token_types,
        "initializer_range": config.init_std,
        "layer_norm_eps": config.norm_eps,
        "position_embedding_type": "absolute",
        "tie_word_embeddings": True,
        "pad_token_id": 0,
        "torch_dtype": dtype,
        **classes,
    }


def from_huggingface_config(values: Mapping[str, Any], shapes: Shapes = dict) -> BertConfig:
    """Our config for a `config.json`, or a DataError with the reason why we have no such model.

    Where it names no head of ours (a bare encoder does not), the weights show it; and where they have none, it is that
    of masked-language modelling.
    """
    found = read_fields(values, BertFields)
    named = [ours for ours, theirs in _ARCHITECTURES.items() if theirs in (found.architectures or ())]
    head = named[0] if named else _head_shown_by(shapes())
    SETTINGS.check(values, without=[name for name, only in _ONLY_OF.items() if only != head])
    classes = 2
    if head == "sequence_classification":
        rows = (*shapes().get("classifier.weight", ()), 2)[0]
        classes = count_labels(found.id2label, found.num_labels, rows)
        if classes < 2:  # one label is a number to be predicted, not a class: that is no head of ours
            head, classes = "masked_language_modeling", 2
        elif found.classifier_dropout is not None:
            check_one_rate(
                "classifier_dropout", found.classifier_dropout, "hidden_dropout_prob", found.hidden_dropout_prob
            )
    dropout, attention_dropout = found.hidden_dropout_prob, found.attention_probs_dropout_prob
    return own_config(
        BertConfig,
        layers=found.num_hidden_layers,
        hidden=found.hidden_size,
        heads=found.num_attention_heads,
        feed_forward=None if found.intermediate_size == 4 * found.hidden_size else found.intermediate_size,
        vocab=found.vocab_size,
        context=found.max_position_embeddings,
        token_types=found.type_vocab_size,
        dropout=dropout,
        attention_dropout=None if attention_dropout == dropout else attention_dropout,
        activation=check_activation("hidden_act", found.hidden_act),
        norm_eps=found.layer_norm_eps,
        init_std=found.initializer_range,
        head=head,
        classes=classes,
    )


def _head_shown_by(shapes: Mapping[str, tuple[int, ...]]) -> Head:
    """The head whose weights are there. A classifier without a pooler is one of tokens, which we have not."""
    if "qa_outputs.weight" in shapes:
        return "question_answering"
    if "classifier.weight" in shapes and "bert.pooler.dense.weight" in shapes:
        return "sequence_classification"
    return "masked_language_modeling"


def canonical_name(name: str) -> str | None:
    """Files of the bare encoder lack the prefix, old ones call norms otherwise; numbers of positions are no weights."""
    if _BARE.match(name):
        name = f"bert.{name}"
    for old, new in _OLD.items():
        name = name.removesuffix(old) + new if name.endswith(old) else name
    return None if name == "bert.embeddings.position_ids" else name


def tensors(config: BertConfig) -> list[TensorRule]:
    """Every tensor of the model, in the order of its forward pass."""
    hidden, wide = config.hidden, config.feed_forward_width
    embeddings = "bert.embeddings"
    rules = [
        same("embedding.token.weight", f"{embeddings}.word_embeddings.weight", config.vocab, hidden),
        same("embedding.position.weight", f"{embeddings}.position_embeddings.weight", config.context, hidden),
        same("embedding.token_type.weight", f"{embeddings}.token_type_embeddings.weight", config.token_types, hidden),
        *norm("embedding.norm", f"{embeddings}.LayerNorm", hidden),
    ]
    for index in range(config.layers):
        ours, theirs = f"layers.{index}", f"bert.encoder.layer.{index}"
        rules += [
            *fused_qkv(f"{ours}.attention.qkv", _roles(f"{theirs}.attention.self"), config.heads, hidden),
            *linear(f"{ours}.attention.output", f"{theirs}.attention.output.dense", hidden, hidden),
            *norm(f"{ours}.attention_norm", f"{theirs}.attention.output.LayerNorm", hidden),
            *linear(f"{ours}.feed_forward.input", f"{theirs}.intermediate.dense", hidden, wide),
            *linear(f"{ours}.feed_forward.output", f"{theirs}.output.dense", wide, hidden),
            *norm(f"{ours}.feed_forward_norm", f"{theirs}.output.LayerNorm", hidden),
        ]
    return rules + _head(config)


def _roles(owner: str) -> list[str]:
    return [f"{owner}.{role}" for role in ("query", "key", "value")]


def _head(config: BertConfig) -> list[TensorRule]:
    hidden = config.hidden
    if config.head == "question_answering":
        return linear("head.output", "qa_outputs", hidden, 2, head="answers")
    if config.head == "sequence_classification":
        return [
            *linear("head.pooler", "bert.pooler.dense", hidden, hidden, head="pooler"),
            *linear("head.output", "classifier", hidden, config.classes, head="classifier"),
        ]
    transform = "cls.predictions.transform"
    return [
        *linear("head.dense", f"{transform}.dense", hidden, hidden, head="predictions"),
        *norm("head.norm", f"{transform}.LayerNorm", hidden, head="predictions"),
        same("head.decoder.bias", "cls.predictions.bias", config.vocab, head="predictions"),
    ]
