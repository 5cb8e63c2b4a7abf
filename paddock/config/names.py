"""What models are called elsewhere. A name here stands for a shipped recipe, wherever a recipe is named."""

from __future__ import annotations

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
