"""GPT-2 as Hugging Face has it: config fields, names and shapes, both ways. Files are none of its business.

Two things differ beyond names. Their linear layers are stored [in, out], ours [out, in]. Their fused
projection holds all queries, then all keys, then all values; ours goes head by head.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from paddock.errors import ConfigError, DataError
from paddock.models.gpt2.config import GPT2Config
from paddock.models.weight_names import (
    THEIR_ACTIVATIONS,
    TensorRule,
    check_activation,
    check_one_rate,
    check_settings,
    fused_qkv,
    linear,
    norm,
    same,
)

TIED_NAMES: Mapping[str, str] = {"lm_head.weight": "transformer.wte.weight"}
HEADS: Sequence[str] = ()

_PREFIX = "transformer."
# Causal masks that old versions saved among the weights.
_MASK = re.compile(r"transformer\.h\.\d+\.attn\.(bias|masked_bias)")

# Settings that change what the model computes and that ours cannot follow: the only value we accept, and why.
# reorder_and_upcast_attn is not among them: it changes the rounding, not the mathematics.
_FIXED: dict[str, tuple[object, str]] = {
    "scale_attn_weights": (True, "our attention always divides by the root of the head size"),
    "scale_attn_by_inverse_layer_idx": (False, "our attention is not scaled by layer"),
    "add_cross_attention": (False, "our GPT-2 is a decoder by itself, without cross-attention"),
    "is_encoder_decoder": (False, "our GPT-2 is a decoder by itself"),
    "tie_word_embeddings": (True, "our output head is the token embedding; these are not tied"),
}


def to_huggingface_config(
    config: GPT2Config,
    *,
    dtype: str = "float32",
    bos_token_id: int | None = None,
    eos_token_id: int | None = None,
) -> dict[str, Any]:
    """The contents of a `config.json` that `GPT2LMHeadModel.from_pretrained` reads."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab,
        "n_positions": config.context,
        "n_ctx": config.context,
        "n_embd": config.hidden,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": config.feed_forward,
        "activation_function": THEIR_ACTIVATIONS[config.activation],
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout_rate,
        "layer_norm_epsilon": config.norm_eps,
        "initializer_range": config.init_std,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "tie_word_embeddings": True,
        "use_cache": True,
        # Written even when unknown: left out, they would become 50256, which a small vocabulary lacks.
        "bos_token_id": bos_token_id,
        "eos_token_id": eos_token_id,
        "torch_dtype": dtype,
    }


def from_huggingface_config(values: Mapping[str, Any]) -> GPT2Config:
    """Our config for a `config.json`, or a DataError with the reason why we have no such model."""
    check_settings(values, "gpt2", "GPT-2", _FIXED)
    activation = check_activation(values, "activation_function", "gelu_new")
    dropout = values.get("resid_pdrop", 0.1)
    check_one_rate("embd_pdrop", values.get("embd_pdrop", 0.1), "resid_pdrop", dropout)
    attention_dropout = values.get("attn_pdrop", 0.1)
    try:
        return GPT2Config(
            layers=_first(values, "n_layer", "num_hidden_layers", default=12),
            hidden=_first(values, "n_embd", "hidden_size", default=768),
            heads=_first(values, "n_head", "num_attention_heads", default=12),
            feed_forward=values.get("n_inner"),
            vocab=values.get("vocab_size", 50257),
            context=_first(values, "n_positions", "max_position_embeddings", default=1024),
            dropout=dropout,
            attention_dropout=None if attention_dropout == dropout else attention_dropout,
            activation=activation,
            norm_eps=values.get("layer_norm_epsilon", 1e-5),
            init_std=values.get("initializer_range", 0.02),
        )
    except ConfigError as error:
        raise DataError(f"config.json: {error.what}", why=error.why, fix=error.fix) from None


def _first(values: Mapping[str, Any], *names: str, default: int) -> Any:
    """transformers reads a size under its GPT-2 name or under the common one."""
    return next((values[name] for name in names if name in values), default)


def canonical_name(name: str) -> str | None:
    """Files of the bare model lack the prefix; masks are not weights."""
    if not name.startswith(_PREFIX) and name not in TIED_NAMES:
        name = _PREFIX + name
    return None if _MASK.fullmatch(name) else name


def tensors(config: GPT2Config) -> list[TensorRule]:
    """Every tensor of the model, in the order of its forward pass."""
    hidden, wide = config.hidden, config.feed_forward_width
    rules = [
        same("embedding.token.weight", "transformer.wte.weight", config.vocab, hidden),
        same("embedding.position.weight", "transformer.wpe.weight", config.context, hidden),
    ]
    for index in range(config.layers):
        ours, theirs = f"layers.{index}", f"transformer.h.{index}"
        rules += [
            *norm(f"{ours}.attention_norm", f"{theirs}.ln_1", hidden),
            *fused_qkv(f"{ours}.attention.qkv", f"{theirs}.attn.c_attn", config.heads, hidden, transposed=True),
            *linear(f"{ours}.attention.output", f"{theirs}.attn.c_proj", hidden, hidden, transposed=True),
            *norm(f"{ours}.feed_forward_norm", f"{theirs}.ln_2", hidden),
            *linear(f"{ours}.feed_forward.input", f"{theirs}.mlp.c_fc", hidden, wide, transposed=True),
            *linear(f"{ours}.feed_forward.output", f"{theirs}.mlp.c_proj", wide, hidden, transposed=True),
        ]
    return rules + norm("final_norm", "transformer.ln_f", hidden)
