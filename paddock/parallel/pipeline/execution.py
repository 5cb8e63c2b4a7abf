"""Pipelines: torch's stages and schedules, driven with our batches.

A stage gets the whole batch (masks, lengths and labels are needed where they are needed) and, but for the
first, the carry of the stage before by place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class

from paddock.parallel.config import ScheduleName
from paddock.parallel.mesh import PIPELINE, Mesh
from paddock.parallel.pipeline.schedules import ENGINE_NAMES, FOLDED, LOOPED
from paddock.parallel.pipeline.stage import Batch, CarrySpec, Stage


class Pipeline:
    """This process's stages, and the schedule that moves micro-batches through all of them.

    In training, receive buffers have one shape for good, so every batch has the same number of micro-batches of the
    same shape.
    """

    def __init__(
        self,
        stages: dict[int, Stage],
        last_units: Sequence[str],
        carries_of: Callable[[Batch], dict[str, CarrySpec]],
        example: Batch,
        schedule: ScheduleName,
        mesh: Mesh,
        device: torch.device,
        micro_batches: int,
        entangled: Collection[int] = (),
    ) -> None:
        """`last_units` has the last unit of every stage, after which the carry goes on; `carries_of` says what that is
        for a micro-batch, and `example` is one as training has them. Stages that are `entangled` use a parameter in
        several of their parts."""
        count = len(last_units)
        carries = carries_of(example)
        self._group, self._rank, self._device = mesh.group(PIPELINE), mesh.pipeline_rank, device
        self._carries_of, self._last_units = carries_of, last_units
        loss = torch.empty((), device="meta", requires_grad=True)
        self._stages = [
            TimedStage(
                stage,
                index,
                count,
                device,
                input_args=_as_meta(carries[last_units[index - 1]]) if index else (),
                output_args=loss if index == count - 1 else _as_meta(carries[last_units[index]]),
                group=self._group,
                # torch takes the gradients of weights apart by walking the graph, and walks twice through what several
                # uses of one parameter share. Such a stage goes backward in one pass, and has nothing left to do later.
                dw_builder=_nothing_later if index in entangled else None,
            )
            for index, stage in sorted(stages.items())
        ]
        self._holds_last = count - 1 in stages
        self._factor = 1.0
        several = schedule in LOOPED or schedule in FOLDED
        self._schedule = get_schedule_class(ENGINE_NAMES[schedule])(
            self._stages if several else self._stages[0],
            n_microbatches=micro_batches,
            loss_fn=lambda output, _: output * self._factor,
            scale_grads=False,
        )

    def forward_backward(self, batch: Batch, factor: float) -> Tensor:
        """Gradients of `factor` × the summed loss of all micro-batches of a batch; returns the sum where the last
        stage is, else zero. It stays on the device."""
        self._factor = factor
        losses: list[Tensor] = []
        # A schedule wants targets where it computes losses. Our stages have theirs in the batch; any tensor will do.
        target, kept = (next(iter(batch.values())), losses) if self._holds_last else (None, None)
        self._schedule.step(target=target, losses=kept, return_outputs=False, batch=dict(batch))
        if not losses:
            return torch.zeros((), device=self._device)
        return torch.stack([loss.detach() for loss in losses]).sum() / factor

    def forward(self, batches: Sequence[Batch]) -> list[Tensor]:
        """What the last stage puts out for micro-batches of any size and length, where that stage is; no gradients.

        Stage by stage, each over all micro-batches: what a stage puts out waits at the next one.
        """
        found: list[Tensor] = []
        sent = []
        handed_over: list[tuple[Tensor, ...]] = []
        for stage in self._stages:
            waiting, handed_over = handed_over, []
            before, after = stage.stage_index - 1, stage.stage_index + 1
            for number, batch in enumerate(batches):
                if stage.is_first:
                    carried: tuple[Tensor, ...] = ()
                elif self._holder(before) == self._rank:
                    carried = waiting[number]
                else:
                    carried = self._receive(before, batch)
                output = stage.submod(*carried, batch=batch)
                if stage.is_last:
                    found.append(output)
                elif self._holder(after) == self._rank:
                    handed_over.append(output)
                else:  # a tensor must live until it is sent
                    sent += [(dist.isend(one, group=self._group, group_dst=self._holder(after)), one) for one in output]
        for work, _ in sent:
            assert work is not None
            work.wait()
        return found

    def _receive(self, stage: int, batch: Batch) -> tuple[Tensor, ...]:
        carry = self._carries_of(batch)[self._last_units[stage]]
        tensors = tuple(spec.empty(self._device) for spec in carry.values())
        for tensor in tensors:
            dist.recv(tensor, group=self._group, group_src=self._holder(stage))
        return tensors

    def take_busy_seconds(self) -> float:
        """What the stages of this process have computed since this was last asked, as the host's clock has it."""
        total = sum(stage.busy_seconds for stage in self._stages)
        for stage in self._stages:
            stage.busy_seconds = 0.0
        return total

    def _holder(self, stage: int) -> int:
        """The process of the pipeline that holds a stage."""
        return self._stages[0].stage_index_to_group_rank[stage]


class TimedStage(PipelineStage):
    """torch's stage, which adds up the time of its own forward and backward passes.

    That is what it computes where the host computes; a device that works through a queue would need to be asked.
    """

    busy_seconds = 0.0

    def forward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        return self._timed(super().forward_one_chunk, *args, **kwargs)

    def backward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        return self._timed(super().backward_one_chunk, *args, **kwargs)

    def backward_weight_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        return self._timed(super().backward_weight_one_chunk, *args, **kwargs)

    def _timed(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return work(*args, **kwargs)
        finally:
            self.busy_seconds += time.perf_counter() - started


def _nothing_later() -> Callable[[], None]:
    return lambda: None


def _as_meta(carry: CarrySpec) -> tuple[Tensor, ...]:
    """As torch's stages want to be told of what comes and goes."""
    return tuple(spec.empty("meta").requires_grad_(spec.dtype.is_floating_point) for spec in carry.values())
