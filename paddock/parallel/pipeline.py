"""Pipelines: torch's stages and schedules, driven with our batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining.schedules import get_schedule_class

from paddock.parallel.busy import TimedStage, take_busy_seconds
from paddock.parallel.config import ScheduleName
from paddock.parallel.mesh import PIPELINE, Mesh
from paddock.parallel.stages import ENGINE_NAMES, FOLDED, LOOPED


class Pipeline:
    """This process's stages, and the schedule that moves micro-batches through all of them.

    In training, receive buffers have one shape for good, so every batch has the same number of micro-batches of the
    same shape.
    """

    def __init__(
        self,
        parts: dict[int, nn.Module],
        count: int,
        schedule: ScheduleName,
        mesh: Mesh,
        device: torch.device,
        micro_batches: int,
        boundary: torch.Size,
        boundary_of: Callable[[int, int], torch.Size],
    ) -> None:
        """`boundary` is what stages hand on in training; `boundary_of` says it for other batches and lengths."""
        group = mesh.group(PIPELINE)
        hidden = torch.empty(boundary, device="meta", requires_grad=True)
        tokens = torch.empty(boundary[:2], dtype=torch.int64, device="meta")
        self._group, self._rank, self._boundary_of = group, mesh.pipeline_rank, boundary_of
        for module in parts.values():
            module.register_forward_hook(_hand_over)
        self._stages = stages = [
            TimedStage(
                module,
                index,
                count,
                device,
                input_args=tokens if index == 0 else hidden,
                output_args=torch.empty((), device="meta", requires_grad=True) if index == count - 1 else hidden,
                group=group,
            )
            for index, module in sorted(parts.items())
        ]
        self.holds_first, self.holds_last = 0 in parts, count - 1 in parts
        self._factor = 1.0
        several = schedule in LOOPED or schedule in FOLDED
        self._schedule = get_schedule_class(ENGINE_NAMES[schedule])(
            stages if several else stages[0],
            n_microbatches=micro_batches,
            loss_fn=lambda output, _: output * self._factor,
            scale_grads=False,
        )

    def forward_backward(self, inputs: Tensor, others: Mapping[str, Tensor], factor: float) -> float:
        """Gradients of `factor` × the summed loss of all micro-batches; returns the sum where the last stage is."""
        self._factor = factor
        losses: list[Tensor] = []
        arguments = (inputs,) if self.holds_first else ()
        target, kept = (others["labels"], losses) if self.holds_last else (None, None)
        self._schedule.step(*arguments, target=target, losses=kept, return_outputs=False, **others)
        return float(sum(losses)) / factor if losses else 0.0

    def forward(self, batches: Sequence[tuple[Tensor, Mapping[str, Tensor]]]) -> list[Tensor]:
        """What the last stage puts out for micro-batches of any size and length, where that stage is; no gradients.

        Stage by stage, each over all micro-batches: what a stage puts out waits at the next one.
        """
        found: list[Tensor] = []
        sent = []
        handed_over: list[Tensor] = []
        for stage in self._stages:
            waiting, handed_over = handed_over, []
            before, after = stage.stage_index - 1, stage.stage_index + 1
            for number, (inputs, others) in enumerate(batches):
                if stage.is_first:
                    hidden = inputs
                elif self._holder(before) == self._rank:
                    hidden = waiting[number]
                else:
                    hidden = torch.empty(self._boundary_of(*inputs.shape[:2]), device=stage.device)
                    dist.recv(hidden, group=self._group, group_src=self._holder(before))
                output = stage.submod(hidden, **others)
                if stage.is_last:
                    found.append(output)
                elif self._holder(after) == self._rank:
                    handed_over.append(output)
                else:
                    work = dist.isend(output, group=self._group, group_dst=self._holder(after))
                    sent.append((work, output))  # the tensor must live until it is sent
        for work, _ in sent:
            assert work is not None
            work.wait()
        return found

    def take_busy_seconds(self) -> float | None:
        """What this process computed since the last call; None where the host cannot know."""
        return take_busy_seconds(self._stages, self._stages[0].device)

    def _holder(self, stage: int) -> int:
        """The process of the pipeline that holds a stage."""
        return self._stages[0].stage_index_to_group_rank[stage]


def _hand_over(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    """What a stage puts out, never as a view of something else: schedules that go backward in two passes detach it
    in place. (A norm whose sequence is shared puts out a view.)"""
    return output.clone() if output._is_view() else output
