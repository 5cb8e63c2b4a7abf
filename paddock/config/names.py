"""What models and tasks are called elsewhere. A name here stands for a shipped recipe, wherever a recipe is named."""

from __future__ import annotations

from paddock.errors import ConfigError, did_you_mean

MODEL_ALIASES = {
    "gpt2_small": "gpt2/117m",
    "gpt2_medium": "gpt2/345m",
    "gpt2_large": "gpt2/762m",
    "gpt2_xl": "gpt2/1.5b",
    "gpt2_13b": "gpt2/13b",
    "gpt2_52b": "gpt2/52b",
    "qa_bert_base_uncased": "bert/base-uncased-squad",
    "bert_base_uncased": "bert/base-uncased",
    "bert_large": "bert/large",
    "bert_base_chinese": "bert/base-chinese",
    "bert_tiny": "bert/tiny",
    "resnet18": "resnet/18",
    "resnet34": "resnet/34",
    "resnet50": "resnet/50",
    "resnet101": "resnet/101",
    "resnet152": "resnet/152",
}

TASK_ALIASES = {
    "text_generation": "language_modeling",
    "text_classification": "sequence_classification",
    "fill_mask": "masked_language_modeling",
}


def task_called(name: str, tasks: list[str]) -> str:
    """The task's own name."""
    own = TASK_ALIASES.get(name, name)
    if own not in tasks:
        known = sorted([*tasks, *TASK_ALIASES])
        raise ConfigError(f"task = {name}", why="there is no such task", fix=did_you_mean(name, known))
    return own
