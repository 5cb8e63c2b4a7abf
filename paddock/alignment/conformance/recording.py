"""The operators of small models, as they are called where a device computes: in training, and in writing text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from paddock.alignment.conformance.operators import Call, OperatorRecorder
from paddock.alignment.conformance.small import SmallModel, open_small
from paddock.devices import DeviceAdapter
from paddock.devices.registry import treated_as
from paddock.inference.generation.decoder import Decoder, Moves, Pass, Room
from paddock.inference.generation.generate import generate
from paddock.inference.generation.options import GenerationOptions
from paddock.models.model import Model, evaluating
from paddock.parallel.world import World

OPTIMIZERS = ("adamw", "sgd", "adafactor")
PROMPTS: Sequence[Sequence[int]] = ([5, 7, 9], [11, 3, 4, 8, 2])


def record(small: SmallModel, adapter: DeviceAdapter) -> list[Call]:
    """The calls of two training steps and of writing a few tokens, on the host in place of the adapter's device."""
    recorder = OperatorRecorder()
    with host_in_place_of(adapter) as host:
        for optimizer in OPTIMIZERS if small.name == small.config.family else OPTIMIZERS[:1]:
            run = open_small(small, host, optimizer=optimizer)
            with recorder:
                run.step.launch(0, run.batches[:1], terms=100.0)
                with recorder.during("update"):
                    run.step.complete()
        with recorder, recorder.during("writing"):
            decode(run.engine.models[0])
    return list(recorder.calls.values())


@contextmanager
def host_in_place_of(adapter: DeviceAdapter) -> Iterator[World]:
    """The host, where layers and optimizers take the ways that they take on the adapter's device. Attention is made of
    plain operators: a fused kernel is each device's own."""
    with treated_as(adapter) as playing, sdpa_kernel(SDPBackend.MATH):
        yield World(0, 1, playing, torch.device("cpu"))


def write(model: torch.nn.Module) -> list[list[int]]:
    """A few tokens behind each prompt, for a model that writes: greedily, drawn, and by beams."""
    assert isinstance(model, Model)
    found = generate(model, PROMPTS, GenerationOptions(max_new_tokens=4, temperature=0.0))
    found += generate(model, PROMPTS, GenerationOptions(max_new_tokens=4, temperature=1.0, top_k=5, seed=1))
    return found + generate(model, PROMPTS, GenerationOptions(max_new_tokens=4, temperature=0.0, num_beams=2))


def decode(model: torch.nn.Module) -> list[Tensor]:
    """What a device computes where a model writes: passes of prompts of other and of equal lengths, then of one token
    each, and the cache copied as a beam search does. What is made of logits, the host does. Gives the logits."""
    assert isinstance(model, Model)
    found: list[Tensor] = []
    if model.writes is None:
        return found
    reads = model.writes != "tokens"
    decoder = Decoder(model, Room(slots=2, capacity=12, source=8 if reads else 0))
    with evaluating(model), torch.inference_mode():
        for prompts in (PROMPTS, [PROMPTS[0], PROMPTS[0]]):
            begins = Pass(0, 0, [[1], [1]], prompts) if reads else Pass(0, 0, prompts)
            for work in (begins, Pass(0, 0, [[2], [3]]), Pass(0, 0, [[4], [6]])):
                logits = decoder.compute(work)
                logits[[0, 1]].argmax(dim=-1)
                found.append(logits)
                decoder.move(Moves(0, 2, [(0, 1)], [(0, 1)] if reads else []))
            decoder.move(Moves(0, 0))
    return found
