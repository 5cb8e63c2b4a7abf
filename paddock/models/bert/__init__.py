"""BERT: an encoder, and a head for one task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from paddock.models.config import ModelConfig, SampleShape
from paddock.models.family import Family

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.distributed.tensor.parallel import ParallelStyle

    from paddock.models.bert.config import BertConfig
    from paddock.models.bert.model import Bert
    from paddock.models.weight_names import HuggingFaceNames, TensorRule


class BertFamily(Family):
    name: ClassVar = "bert"

    def config_class(self) -> type[ModelConfig]:
        from paddock.models.bert.config import BertConfig

        return BertConfig

    def build(self, config: BertConfig) -> Bert:
        from paddock.models.bert.model import Bert

        return Bert(config)

    def example(
        self, config: BertConfig, samples: int, shape: SampleShape, generator: torch.Generator
    ) -> Mapping[str, Tensor]:
        """Of masked tokens it asks for as many in every row as training does."""
        import torch

        from paddock.models.bert.config import ASKED

        tokens = torch.randint(config.vocab, (samples, shape.source), generator=generator)
        if config.head == "question_answering":
            return {"tokens": tokens, "labels": torch.randint(shape.source, (samples, 2), generator=generator)}
        if config.head == "sequence_classification":
            return {"tokens": tokens, "labels": torch.randint(config.classes, (samples,), generator=generator)}
        places = torch.arange(max(1, round(ASKED * shape.source))).expand(samples, -1).contiguous()
        return {"tokens": tokens, "labels": tokens.gather(1, places), "places": places}

    def tensor_plan(self, model: Bert, sequence: bool) -> dict[str, ParallelStyle]:
        from paddock.models.bert.parallel import tensor_plan

        return tensor_plan(model, sequence)

    def tensor_rules(self, config: BertConfig) -> list[TensorRule]:
        return self.huggingface().tensors(config)

    def huggingface(self) -> HuggingFaceNames:
        from paddock.models.bert import huggingface

        return huggingface


FAMILY = BertFamily()
