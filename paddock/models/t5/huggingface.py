"""T5 and mT5 as Hugging Face has them: config fields, names and shapes, both ways. Files are none of its business.

Their queries, keys and values are layers of their own, each of all heads; ours are one, head by head. Their position
bias lies [buckets, heads], in the first block of a stack; ours [heads, buckets], beside the blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import AliasChoices, Field
from torch import Tensor

from paddock.documents import Document
from paddock.errors import ConfigError, DataError
from paddock.models.huggingface_settings import (
    ACTIVATIONS,
    COMMON_FIXED,
    COMMON_WITHOUT_EFFECT,
    THEIR_ACTIVATIONS,
    Fixed,
    Settings,
    check_activation,
    own_config,
    read_fields,
    refuse,
)
from paddock.models.t5.config import T5Config
from paddock.models.weight_names import Shapes, TensorRule, fused, linear, same

TIED_NAMES: Mapping[str, str] = {
    "encoder.embed_tokens.weight": "shared.weight",
    "decoder.embed_tokens.weight": "shared.weight",
    "lm_head.weight": "shared.weight",
}
"""The head, too, where it is tied: files of torch have it twice."""
HEADS: Sequence[str] = ()


class T5Fields(Document):
    """What a `config.json` says of the model. T5's defaults; `_MT5` has those of mT5."""

    vocab_size: int = 32128
    d_model: int = Field(512, validation_alias=AliasChoices("d_model", "hidden_size"))
    d_kv: int = Field(64, validation_alias=AliasChoices("d_kv", "head_dim"))
    d_ff: int = 2048
    num_layers: int = Field(6, validation_alias=AliasChoices("num_layers", "num_hidden_layers"))
    num_decoder_layers: int | None = None
    num_heads: int = Field(8, validation_alias=AliasChoices("num_heads", "num_attention_heads"))
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    dropout_rate: float = 0.1
    layer_norm_epsilon: float = 1e-6
    initializer_factor: float = 1.0
    feed_forward_proj: str = "relu"
    dense_act_fn: str | None = None
    is_gated_act: bool | None = None
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None
    decoder_start_token_id: int | None = None


_MT5 = {"vocab_size": 250112, "d_ff": 1024, "num_layers": 8, "num_heads": 6, "feed_forward_proj": "gated-gelu"}

SETTINGS = Settings(
    model_type=("t5", "mt5"),
    name="T5 or mT5",
    represented=T5Fields,
    fixed={
        **COMMON_FIXED,
        "is_encoder_decoder": Fixed((True,), "our T5 is an encoder and a decoder"),
        "is_decoder": Fixed((False,), "our T5 is an encoder and a decoder"),
        "add_cross_attention": Fixed((False,), "our T5's decoder has cross-attention without being told"),
    },
    without_effect={
        **{name: why for name, why in COMMON_WITHOUT_EFFECT.items() if name != "decoder_start_token_id"},
        **dict.fromkeys(
            ("classifier_dropout", "id2label", "num_labels", "problem_type"),
            "of a classifier, whose weights are refused",
        ),
        "n_positions": "positions are relative: nothing limits them",
        "output_past": "an old name of use_cache",
    },
)


def to_huggingface_config(
    config: T5Config,
    *,
    dtype: str = "float32",
    bos_token_id: int | None = None,
    eos_token_id: int | None = None,
) -> dict[str, Any]:
    """The contents of a `config.json` that `T5ForConditionalGeneration` or its mT5 sister reads."""
    if config.attention_dropout_rate != config.dropout:
        raise ConfigError(
            f"model.attention_dropout = {config.attention_dropout}",
            why="transformers' T5 has one dropout for all, and would train otherwise",
            fix="set --model.attention-dropout None (it matters in training only)",
        )
    if config.scale_head and not config.tied:
        raise ConfigError(
            "model.scale_head = True, model.tied = False",
            why="transformers' T5 and mT5 scale what a tied head takes, and no other: they would compute otherwise",
            fix="such a model can be kept as a checkpoint of ours alone",
        )
    kind = ("T5ForConditionalGeneration", "t5") if config.scale_head else ("MT5ForConditionalGeneration", "mt5")
    return {
        "architectures": [kind[0]],
        "model_type": kind[1],
        "vocab_size": config.vocab,
        "d_model": config.hidden,
        "d_kv": config.head_size,
        "d_ff": config.feed_forward_width,
        "num_layers": config.layers,
        "num_decoder_layers": config.num_decoder_layers,
        "num_heads": config.heads,
        "relative_attention_num_buckets": config.position_buckets,
        "relative_attention_max_distance": config.max_distance,
        "dropout_rate": config.dropout,
        "layer_norm_epsilon": config.norm_eps,
        "initializer_factor": config.init_factor,
        "feed_forward_proj": ("gated-" if config.gated else "") + _their_activation(config),
        "is_encoder_decoder": True,
        # Older versions scale where this says so; newer ones tie weights that are not both in the file.
        "tie_word_embeddings": config.tied,
        "use_cache": True,
        "pad_token_id": 0,
        "decoder_start_token_id": config.decoder_start,
        "eos_token_id": 1 if eos_token_id is None else eos_token_id,
        "torch_dtype": dtype,
    }


def _their_activation(config: T5Config) -> str:
    """transformers reads `gated-gelu` as the tanh approximation, for the sake of old files."""
    if config.gated and config.activation == "gelu_tanh":
        return "gelu"
    if config.gated and config.activation == "gelu":
        return "gelu_python"
    return THEIR_ACTIVATIONS[config.activation]


def from_huggingface_config(values: Mapping[str, Any], shapes: Shapes = dict) -> T5Config:
    """Our config for a `config.json`, or a DataError with the reason why we have no such model."""
    SETTINGS.check(values)
    kind = values["model_type"]
    found = read_fields(values if kind == "t5" else {**_MT5, **values}, T5Fields)
    gated, activation = _feed_forward(found.feed_forward_proj)
    if found.is_gated_act not in (None, gated):
        raise refuse("is_gated_act", found.is_gated_act, f"feed_forward_proj = {found.feed_forward_proj}")
    if found.dense_act_fn is not None and ACTIVATIONS.get(found.dense_act_fn) != activation:
        raise refuse("dense_act_fn", found.dense_act_fn, f"feed_forward_proj = {found.feed_forward_proj}")
    scaled = found.scale_decoder_outputs
    if scaled is None:
        scaled = found.tie_word_embeddings and kind == "t5"
    # Newer versions always say that weights are tied, and tie those that the file does not have.
    tied = found.tie_word_embeddings and (scaled or "lm_head.weight" not in shapes())
    decoder_layers = found.num_decoder_layers or found.num_layers
    return own_config(
        T5Config,
        layers=found.num_layers,
        decoder_layers=None if decoder_layers == found.num_layers else decoder_layers,
        hidden=found.d_model,
        heads=found.num_heads,
        head_size=found.d_kv,
        feed_forward=found.d_ff,
        vocab=found.vocab_size,
        dropout=found.dropout_rate,
        activation=activation,
        gated=gated,
        tied=tied,
        scale_head=scaled,
        position_buckets=found.relative_attention_num_buckets,
        max_distance=found.relative_attention_max_distance,
        norm_eps=found.layer_norm_epsilon,
        decoder_start=_decoder_start(found),
        init_factor=found.initializer_factor,
    )


def _decoder_start(found: T5Fields) -> int:
    if found.decoder_start_token_id is None:
        raise DataError(
            "config.json: decoder_start_token_id is missing",
            why="the decoder begins with that token",
            fix='add "decoder_start_token_id": 0 (the padding, where a T5 begins) to config.json',
        )
    return found.decoder_start_token_id


def _feed_forward(word: str) -> tuple[bool, str]:
    """Whether the feed-forward layer is gated, and its non-linearity, from a word such as `gated-gelu`."""
    gated = word.startswith("gated-")
    if word == "gated-gelu":
        return True, "gelu_tanh"
    if word.count("-") > gated:
        raise refuse("feed_forward_proj", word, "it is a non-linearity, or gated- and one")
    return gated, check_activation("feed_forward_proj", word.removeprefix("gated-"))


def canonical_name(name: str) -> str | None:
    """Old files have a position bias in cross-attention, which nobody ever read."""
    return None if name == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight" else name


def tensors(config: T5Config) -> list[TensorRule]:
    """Every tensor of the model, in the order of its forward pass."""
    rules = [
        same("embedding.token.weight", "shared.weight", config.vocab, config.hidden),
        _position_bias("encoder", config),
    ]
    for index in range(config.layers):
        rules += _block(config, "encoder", index)
    rules += [_norm("encoder_norm", "encoder.final_layer_norm", config), _position_bias("decoder", config)]
    for index in range(config.num_decoder_layers):
        rules += _block(config, "decoder", index)
    rules.append(_norm("decoder_norm", "decoder.final_layer_norm", config))
    return rules if config.tied else [*rules, same("output.weight", "lm_head.weight", config.vocab, config.hidden)]


def _block(config: T5Config, stack: str, index: int) -> list[TensorRule]:
    ours, theirs = f"{stack}.{index}", f"{stack}.block.{index}.layer"
    hidden, inner, wide = config.hidden, config.inner, config.feed_forward_width
    own, last = f"{theirs}.0.SelfAttention", 1 if stack == "encoder" else 2
    rules = [
        _norm(f"{ours}.attention_norm", f"{theirs}.0.layer_norm", config),
        fused(f"{ours}.attention.qkv", [f"{own}.{role}" for role in "qkv"], config.heads, inner, hidden),
        *linear(f"{ours}.attention.output", f"{own}.o", inner, hidden, bias=False),
    ]
    if stack == "decoder":
        cross, name = f"{theirs}.1.EncDecAttention", f"{ours}.cross_attention"
        rules += [
            _norm(f"{name}_norm", f"{theirs}.1.layer_norm", config),
            fused(f"{name}.query", [f"{cross}.q"], config.heads, inner, hidden),
            fused(f"{name}.key_value", [f"{cross}.{role}" for role in "kv"], config.heads, inner, hidden),
            *linear(f"{name}.output", f"{cross}.o", inner, hidden, bias=False),
        ]
    feed, dense = f"{ours}.feed_forward", f"{theirs}.{last}.DenseReluDense"
    rules.append(_norm(f"{feed}_norm", f"{theirs}.{last}.layer_norm", config))
    if config.gated:
        rules += linear(f"{feed}.gate", f"{dense}.wi_0", hidden, wide, bias=False)
    rules += linear(f"{feed}.input", f"{dense}.wi_1" if config.gated else f"{dense}.wi", hidden, wide, bias=False)
    return rules + linear(f"{feed}.output", f"{dense}.wo", wide, hidden, bias=False)


def _norm(ours: str, theirs: str, config: T5Config) -> TensorRule:
    return same(f"{ours}.weight", f"{theirs}.weight", config.hidden)


def _position_bias(stack: str, config: T5Config) -> TensorRule:
    theirs = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    shape = (config.heads, config.position_buckets)
    return TensorRule(f"position_bias.{stack}.weight", theirs, shape, shape[::-1], Tensor.t, Tensor.t)
