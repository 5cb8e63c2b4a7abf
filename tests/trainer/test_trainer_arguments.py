"""Arguments of wrong types are refused at once, by their names."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from paddock import Callback, Trainer
from paddock.errors import ConfigError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": 7}, "model is 7, of type int"),
        ({"model": [nn.Linear(2, 2)]}, "model is .*of type list"),
        ({"model": nn.Linear(2, 2)}, "there are no samples"),
        ({"task": 1}, "task is 1"),
        ({"recipe": ["gpt2"]}, "recipe is"),
        ({"overrides": [("train.steps", 1)]}, "overrides is"),
        ({"overrides": {1: 2}}, "the name of a field is 1"),
        ({"parallel": 2}, "parallel is 2"),
        ({"nproc_per_node": "2"}, "nproc_per_node is '2'"),
        ({"nproc_per_node": True}, "nproc_per_node is True"),
        ({"nproc_per_node": 0}, "--nproc-per-node = 0"),
        ({"run_dir": 3}, "run_dir is 3"),
        ({"callbacks": print}, "callbacks is"),
        ({"callbacks": [Callback]}, r"callbacks\[0\] is the class Callback"),
        ({"callbacks": [7]}, r"callbacks\[0\] is 7"),
        ({"task": "gpt2/tiny", "model": None}, r'first argument(.|\n)*Trainer\(model="gpt2/tiny"\)'),
        ({"task": "gpt3/tiny", "model": None}, "there is no such task"),
        ({"task": "text_generation", "model": None}, "no model is named"),
        ({"steps": 3}, r'steps: (.|\n)*overrides=\{"train\.steps": 3\}'),
        ({"modle": 3}, r'modle: (.|\n)*did you mean "model"\?'),
        ({"batch_size": 3}, r"batch_size: (.|\n)*go into overrides"),
    ],
)
def test_of_the_trainer(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Trainer(**{"model": "gpt2/tiny"} | arguments)


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("train", {"do_finetune": "yes"}, "do_finetune is 'yes'"),
        ("train", {"resume_or_finetune_from_checkpoint": 4}, "resume_or_finetune_from_checkpoint is 4"),
        ("evaluate", {"eval_checkpoint": 4}, "eval_checkpoint is 4"),
        ("predict", {"input_data": "x", "top_k": "3"}, "top_k is '3'"),
        ("convert", {"destination": 4}, "destination is 4"),
        ("benchmark", {"train": 1}, "train is 1"),
        ("benchmark", {"iterations": "3"}, "iterations is '3'"),
    ],
)
def test_of_its_methods(method: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        getattr(Trainer(model="gpt2/tiny"), method)(**arguments)
