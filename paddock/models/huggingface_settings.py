"""What a Hugging Face `config.json` says, and what becomes of it here: nothing that changes a result is passed over.

Each field that transformers has is represented by one of ours, or fixed (refused when it differs from what our model
computes), or known to be without effect. A family's `huggingface.py` has the table; a test enumerates the fields from
transformers itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import AliasChoices

from paddock.documents import Document, shape_json
from paddock.errors import ConfigError, DataError
from paddock.models.config import ModelConfig

Read = TypeVar("Read", bound=Document)
Own = TypeVar("Own", bound=ModelConfig)

ACTIVATIONS = {
    # The tanh approximation under all its names: they differ in the order of rounding only.
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "relu": "relu",
}
"""Our names of non-linearities, by transformers'."""
THEIR_ACTIVATIONS = {"gelu_tanh": "gelu_new", "gelu": "gelu", "relu": "relu"}
"""The name to write, by ours."""


@dataclass(frozen=True)
class Fixed:
    """A setting that changes what a model computes, and that ours cannot follow."""

    accepted: tuple[object, ...]
    """The values that it may have."""
    why: str


# What the configs of all families have from their common base, and how little it says of the numbers.
_SAID_BESIDE = (
    "architectures model_type transformers_version _name_or_path name_or_path _commit_hash tokenizer_class prefix "
    "task_specific_params finetuning_task label2id output_hidden_states output_attentions output_scores return_dict "
    "use_return_dict return_dict_in_generate"
)
_WAY_OF_COMPUTING = (
    "dtype torch_dtype use_bfloat16 torchscript tf_legacy_loss chunk_size_feed_forward use_cache "
    "gradient_checkpointing attn_implementation _attn_implementation _attn_implementation_internal "
    "_attn_implementation_autoset"
)
_WITHOUT_AN_ENCODER = "cross_attention_hidden_size tie_encoder_decoder"
_GENERATION = (
    "max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k "
    "top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids "
    "num_return_sequences forced_bos_token_id forced_eos_token_id remove_invalid_values suppress_tokens "
    "begin_suppress_tokens exponential_decay_length_penalty bos_token_id eos_token_id pad_token_id sep_token_id "
    "decoder_start_token_id"
)
COMMON_WITHOUT_EFFECT: dict[str, str] = {
    **dict.fromkeys(_SAID_BESIDE.split(), "a note, or what is returned beside the result"),
    **dict.fromkeys(_WAY_OF_COMPUTING.split(), "how it is computed, not what: the recipe says that here"),
    **dict.fromkeys(_WITHOUT_AN_ENCODER.split(), "only of a decoder with an encoder, which is refused"),
    **dict.fromkeys(_GENERATION.split(), "the tokenizer and the command say how text is padded, begun and written"),
}
"""Settings that no result depends on, by why."""
ONE_CLASS_EACH = (None, "single_label_classification")
"""What problem_type may be: elsewhere the loss, and what outputs mean, are others."""
COMMON_FIXED: dict[str, Fixed] = {
    "is_encoder_decoder": Fixed((False,), "this family is one stack by itself"),
    "pruned_heads": Fixed((None, {}, []), "only whole weights in floating point can be read"),
    "quantization_config": Fixed((None, {}), "only whole weights in floating point can be read"),
}


@dataclass(frozen=True)
class Settings:
    """What becomes of each field of a family's `config.json`: it is represented, fixed, or without effect. A test
    holds this against the fields that transformers has."""

    model_type: str | tuple[str, ...]
    name: str
    """In words."""
    represented: type[Document]
    """The fields that our config follows, with what they are where a file does not say."""
    fixed: Mapping[str, Fixed]
    without_effect: Mapping[str, str]
    """By why."""

    def names(self) -> frozenset[str]:
        """What the represented fields are called, each by all of its names."""
        return frozenset(name for field in _names_of(self.represented) for name in field)

    def check(self, values: Mapping[str, Any], without: Collection[str] = ()) -> None:
        """Refuse a `config.json` of another model, or with a setting that ours cannot follow; those named in `without`
        belong to a part that this model does not have."""
        types = (self.model_type,) if isinstance(self.model_type, str) else self.model_type
        if values.get("model_type") not in types:
            raise DataError(
                f"config.json: model_type = {shown(values.get('model_type'))}",
                why=f"this is not a {self.name}",
                fix=f"give a folder whose config.json says {' or '.join(types)}",
            )
        for field, rule in self.fixed.items():
            if field in values and field not in without and values[field] not in rule.accepted:
                raise refuse(field, values[field], rule.why)
        for names in _names_of(self.represented):
            first, *others = [name for name in names if name in values] or names
            for name in others:
                if values.get(name) != values.get(first):
                    raise refuse(name, values[name], f"it is {first} = {shown(values[first])} by another name")


def read_fields(values: Mapping[str, Any], shape: type[Read]) -> Read:
    """What a `config.json` says of the fields that a family represents."""
    return shape_json(dict(values), shape, "config.json", fix="this is not how transformers writes it: copy it again")


def own_config(kind: type[Own], **fields: Any) -> Own:
    """Our config of a model whose `config.json` says so."""
    try:
        return kind(**fields)
    except ConfigError as error:
        raise DataError(f"config.json: {error.what}", why=error.why, fix=error.fix) from None


def check_activation(field: str, found: str) -> str:
    """Our name of the non-linearity that a `config.json` names."""
    if found not in ACTIVATIONS:
        known = ", ".join(sorted(ACTIVATIONS))
        raise refuse(field, found, f"we have no such non-linearity, only {known}")
    return ACTIVATIONS[found]


def check_one_rate(field: str, rate: float, other: str, other_rate: float) -> None:
    """Refuse two dropout rates where our model has one."""
    if rate != other_rate:
        raise DataError(
            f"config.json: {field} = {rate}, {other} = {other_rate}",
            why="we have one dropout for both, and would train otherwise than the file says",
            fix="write the rate you want under both in config.json (they matter in training only)",
        )


def refuse(field: str, value: object, why: str) -> DataError:
    """The error of a setting that we cannot follow."""
    fix = "this model cannot be represented here; use one without this setting"
    return DataError(f"config.json: {field} = {shown(value)}", why=why, fix=fix)


def shown(value: object) -> str:
    """A value as an error shows it, however long it is."""
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def numbered_labels(classes: int) -> dict[str, Any]:
    """Classes without names, as a `config.json` has them."""
    return {
        "id2label": {str(number): f"LABEL_{number}" for number in range(classes)},
        "label2id": {f"LABEL_{number}": number for number in range(classes)},
    }


def count_labels(id2label: Mapping[Any, object] | None, num_labels: int | None, otherwise: int = 2) -> int:
    """How many classes a `config.json` speaks of, by their names or by their number."""
    if id2label and num_labels is not None and len(id2label) != num_labels:
        raise refuse("num_labels", num_labels, f"id2label names {len(id2label)}")
    return len(id2label) if id2label else otherwise if num_labels is None else num_labels


def _names_of(document: type[Document]) -> list[tuple[str, ...]]:
    """The names of each field of a document."""
    aliases = {name: field.validation_alias for name, field in document.model_fields.items()}
    return [
        tuple(map(str, alias.choices)) if isinstance(alias, AliasChoices) else (name,)
        for name, alias in aliases.items()
    ]
