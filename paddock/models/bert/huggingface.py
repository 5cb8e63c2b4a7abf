"""BERT as Hugging Face has it: config fields, names and shapes, both ways. Files are none of its business.

Their queries, keys and values are three tensors, each of all heads; ours are one, head by head.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from paddock.errors import ConfigError, DataError
from paddock.models.bert.config import BertConfig, Head
from paddock.models.weight_names import (
    THEIR_ACTIVATIONS,
    TensorRule,
    check_activation,
    check_one_rate,
    check_settings,
    fused_qkv,
    linear,
    norm,
    numbered_labels,
    same,
)

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

# Settings that change what the model computes and that ours cannot follow: the only value we accept, and why.
_FIXED: dict[str, tuple[object, str]] = {
    "position_embedding_type": ("absolute", "our positions are learned, one vector each"),
    "is_decoder": (False, "our BERT is an encoder, which sees both directions"),
    "add_cross_attention": (False, "our BERT is an encoder by itself, without cross-attention"),
    "is_encoder_decoder": (False, "our BERT is an encoder by itself"),
}


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


def from_huggingface_config(values: Mapping[str, Any]) -> BertConfig:
    """Our config for a `config.json`, or a DataError with the reason why we have no such model.

    Where it names no head of ours (a bare encoder does not), it is that of masked-language modelling.
    """
    head, classes = _head_of(values)
    tied = (True, "our masked-language head is the token embedding; these are not tied")
    is_tied = head == "masked_language_modeling"
    check_settings(values, "bert", "BERT", _FIXED | ({"tie_word_embeddings": tied} if is_tied else {}))
    activation = check_activation(values, "hidden_act", "gelu")
    hidden, wide = values.get("hidden_size", 768), values.get("intermediate_size", 3072)
    dropout = values.get("hidden_dropout_prob", 0.1)
    attention_dropout = values.get("attention_probs_dropout_prob", 0.1)
    classifier = values.get("classifier_dropout")
    if head == "sequence_classification" and classifier is not None:
        check_one_rate("classifier_dropout", classifier, "hidden_dropout_prob", dropout)
    try:
        return BertConfig(
            layers=values.get("num_hidden_layers", 12),
            hidden=hidden,
            heads=values.get("num_attention_heads", 12),
            feed_forward=None if wide == 4 * hidden else wide,
            vocab=values.get("vocab_size", 30522),
            context=values.get("max_position_embeddings", 512),
            token_types=values.get("type_vocab_size", 2),
            dropout=dropout,
            attention_dropout=None if attention_dropout == dropout else attention_dropout,
            activation=activation,
            norm_eps=values.get("layer_norm_eps", 1e-12),
            init_std=values.get("initializer_range", 0.02),
            head=head,
            classes=classes,
        )
    except ConfigError as error:
        raise DataError(f"config.json: {error.what}", why=error.why, fix=error.fix) from None


def _head_of(values: Mapping[str, Any]) -> tuple[Head, int]:
    """The head that the folder's class has, and how many classes it tells apart."""
    architectures = values.get("architectures") or []
    head = next((ours for ours, theirs in _ARCHITECTURES.items() if theirs in architectures), None)
    if head != "sequence_classification":
        return head or "masked_language_modeling", 2
    labels = values.get("id2label")
    classes = len(labels) if labels else values.get("num_labels", 2)
    # One label is a number to be predicted, not a class: that is no head of ours.
    return (head, classes) if classes > 1 else ("masked_language_modeling", 2)


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
