"""T5 and mT5: an encoder that reads and a decoder that writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from paddock.models.config import ModelConfig, SampleShape
from paddock.models.family import Family

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.distributed.tensor.parallel import ParallelStyle

    from paddock.models.t5.config import T5Config
    from paddock.models.t5.model import T5
    from paddock.models.weight_names import HuggingFaceNames, TensorRule


class T5Family(Family):
    name: ClassVar = "t5"
    model_types: ClassVar = ("t5", "mt5")

    def config_class(self) -> type[ModelConfig]:
        from paddock.models.t5.config import T5Config

        return T5Config

    def build(self, config: T5Config) -> T5:
        from paddock.models.t5.model import T5

        return T5(config)

    def example(
        self, config: T5Config, samples: int, shape: SampleShape, generator: torch.Generator
    ) -> Mapping[str, Tensor]:
        import torch

        target = torch.randint(config.vocab, (samples, shape.target + 1), generator=generator)
        return {
            "tokens": torch.randint(config.vocab, (samples, shape.source), generator=generator),
            "labels": target[:, 1:].contiguous(),
            "decoder_tokens": target[:, :-1].contiguous(),
        }

    def tensor_plan(self, model: T5, sequence: bool) -> dict[str, ParallelStyle]:
        from paddock.models.t5.parallel import tensor_plan

        return tensor_plan(model, sequence)

    def tensor_rules(self, config: T5Config) -> list[TensorRule]:
        return self.huggingface().tensors(config)

    def vocabulary_tensors(self, config: T5Config) -> tuple[str, ...]:
        return ("embedding.token.weight",) if config.tied else ("embedding.token.weight", "output.weight")

    def huggingface(self) -> HuggingFaceNames:
        from paddock.models.t5 import huggingface

        return huggingface


FAMILY = T5Family()
