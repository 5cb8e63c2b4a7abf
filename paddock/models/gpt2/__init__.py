"""GPT-2: a decoder that writes text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from paddock.models.config import ModelConfig, SampleShape
from paddock.models.family import Family

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.distributed.tensor.parallel import ParallelStyle

    from paddock.models.gpt2.config import GPT2Config
    from paddock.models.gpt2.model import GPT2
    from paddock.models.weight_names import HuggingFaceNames, TensorRule


class GPT2Family(Family):
    name: ClassVar = "gpt2"

    def config_class(self) -> type[ModelConfig]:
        from paddock.models.gpt2.config import GPT2Config

        return GPT2Config

    def build(self, config: GPT2Config) -> GPT2:
        from paddock.models.gpt2.model import GPT2

        return GPT2(config)

    def example(
        self, config: GPT2Config, samples: int, shape: SampleShape, generator: torch.Generator
    ) -> Mapping[str, Tensor]:
        import torch

        tokens = torch.randint(config.vocab, (samples, shape.source + 1), generator=generator)
        return {"tokens": tokens[:, :-1].contiguous(), "labels": tokens[:, 1:].contiguous()}

    def tensor_plan(self, model: GPT2, sequence: bool) -> dict[str, ParallelStyle]:
        from paddock.models.gpt2.parallel import tensor_plan

        return tensor_plan(model, sequence)

    def tensor_rules(self, config: GPT2Config) -> list[TensorRule]:
        return self.huggingface().tensors(config)

    def huggingface(self) -> HuggingFaceNames:
        from paddock.models.gpt2 import huggingface

        return huggingface


FAMILY = GPT2Family()
