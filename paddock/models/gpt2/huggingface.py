"""GPT-2 as Hugging Face has it: config fields, names and shapes, both ways. Files are none of its business.

Two things differ beyond names. Their linear layers are stored [in, out], ours [out, in]. Their fused
projection holds all queries, then all keys, then all values; ours goes head by head.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import AliasChoices, Field

from paddock.documents import Document
from paddock.models.gpt2.config import GPT2Config
from paddock.models.huggingface_settings import (
    COMMON_FIXED,
    COMMON_WITHOUT_EFFECT,
    THEIR_ACTIVATIONS,
    Fixed,
    Settings,
    check_activation,
    check_one_rate,
    own_config,
    read_fields,
)
from paddock.models.weight_names import Shapes, TensorRule, fused_qkv, linear, norm, same

TIED_NAMES: Mapping[str, str] = {"lm_head.weight": "transformer.wte.weight"}
HEADS: Sequence[str] = ()

_PREFIX = "transformer."
# Causal masks that old versions saved among the weights.
_MASK = re.compile(r"transformer\.h\.\d+\.attn\.(bias|masked_bias)")


class GPT2Fields(Document):
    """What a `config.json` says of the model; transformers takes a size by its GPT-2 name or by the common one."""

    n_layer: int = Field(12, validation_alias=AliasChoices("n_layer", "num_hidden_layers"))
    n_embd: int = Field(768, validation_alias=AliasChoices("n_embd", "hidden_size"))
    n_head: int = Field(12, validation_alias=AliasChoices("n_head", "num_attention_heads"))
    n_positions: int = Field(1024, validation_alias=AliasChoices("n_positions", "max_position_embeddings"))
    n_inner: int | None = None
    vocab_size: int = 50257
    activation_function: str = "gelu_new"
    resid_pdrop: float = 0.1
    embd_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02


_ONLY_OF_OTHER_HEADS = "summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout"

SETTINGS = Settings(
    model_type="gpt2",
    name="GPT-2",
    represented=GPT2Fields,
    fixed={
        **COMMON_FIXED,
        "scale_attn_weights": Fixed((True,), "our attention always divides by the root of the head size"),
        "scale_attn_by_inverse_layer_idx": Fixed((False,), "our attention is not scaled by layer"),
        "add_cross_attention": Fixed((False,), "our GPT-2 is a decoder by itself, without cross-attention"),
        "tie_word_embeddings": Fixed((True,), "our output head is the token embedding; these are not tied"),
    },
    without_effect={
        **COMMON_WITHOUT_EFFECT,
        **dict.fromkeys(_ONLY_OF_OTHER_HEADS.split(), "of a head that chooses among texts, whose weights are refused"),
        **dict.fromkeys(("id2label", "num_labels", "problem_type"), "of a classifier, whose weights are refused"),
        "reorder_and_upcast_attn": "it changes the rounding, not the mathematics",
        "is_decoder": "GPT-2 is one without being told; what it adds, cross-attention, is refused",
        "n_ctx": "an old second name of n_positions, which transformers does not read",
    },
)


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


def from_huggingface_config(values: Mapping[str, Any], shapes: Shapes = dict) -> GPT2Config:
    """Our config for a `config.json`, or a DataError with the reason why we have no such model."""
    SETTINGS.check(values)
    found = read_fields(values, GPT2Fields)
    check_one_rate("embd_pdrop", found.embd_pdrop, "resid_pdrop", found.resid_pdrop)
    return own_config(
        GPT2Config,
        layers=found.n_layer,
        hidden=found.n_embd,
        heads=found.n_head,
        feed_forward=found.n_inner,
        vocab=found.vocab_size,
        context=found.n_positions,
        dropout=found.resid_pdrop,
        attention_dropout=None if found.attn_pdrop == found.resid_pdrop else found.attn_pdrop,
        activation=check_activation("activation_function", found.activation_function),
        norm_eps=found.layer_norm_epsilon,
        init_std=found.initializer_range,
    )


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
