"""A trained model that writes, in this process or over all processes of a job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch.distributed as dist

from paddock.devices.config import WeightFormat
from paddock.inference.generation.parallel_decoder import Replica, follow, leading
from paddock.inference.trained import Trained, open_trained, read_trained_config
from paddock.models.build import build_part, complete_part
from paddock.models.config import ModelConfig
from paddock.models.layers.packing import set_format
from paddock.models.model import Model
from paddock.parallel.config import Layout, ParallelConfig, derive_layout
from paddock.parallel.legality import check_pipeline, check_tensor
from paddock.parallel.mesh import build_mesh
from paddock.parallel.stage import Stage
from paddock.parallel.world import World, gather_texts


@dataclass(frozen=True)
class Writer:
    """One of the processes that lead: there is one for every replica of the model, and each writes its own prompts."""

    trained: Trained
    replica: Replica | None
    number: int = 0
    """Which of the replicas this is."""
    replicas: int = 1
    leaders: dist.ProcessGroup | None = None
    """Those that lead the replicas, where there are several."""

    def gather(self, text: str) -> list[str]:
        """What every replica's leader says, by the replica's number; called by all of them."""
        return [text] if self.leaders is None else gather_texts(text, self.leaders)


@contextmanager
def open_writer(
    source: str, parallel: ParallelConfig, world: World, format: WeightFormat = "float32"
) -> Iterator[Writer | None]:
    """The model that `source` names, with weights in a format, each process with its part of it. Gives a writer where a
    process leads; the others do what theirs says until it leaves, and get None then."""
    if world.size == 1:
        trained = open_trained(source, world.device)
        set_format(trained.model, format)
        yield Writer(trained, None)
        return
    layout = derive_layout(parallel, world.size)
    mesh = build_mesh(layout, world.rank, world.device.type, reversed_stages=True)
    assert mesh.grid is not None
    parts: list[Stage] = []

    def build(config: ModelConfig) -> Model:
        parts.append(build_part(config, parallel, mesh))
        assert isinstance(parts[0].model, Model)
        return parts[0].model

    trained = open_trained(source, world.device, build, tells=world.is_main)
    complete_part(parts[0], mesh)
    set_format(trained.model, format)
    replica = Replica(parts[0], mesh, world.device)
    leaders = dist.new_group(mesh.grid.mesh[-1, :, 0].tolist(), backend="gloo") if layout.data > 1 else None
    if not replica.leads:
        follow(replica)
        yield None
        return
    assert leaders is None or isinstance(leaders, dist.ProcessGroup)
    with leading(replica):
        yield Writer(trained, replica, mesh.data_rank, layout.data, leaders)


def check_layout(source: str, parallel: ParallelConfig, world: int) -> Layout:
    """The layout of a trained model that is to write over `world` processes, or a UserError why there is none."""
    layout = derive_layout(parallel, world)
    if layout.world > 1:
        config = read_trained_config(source)
        check_tensor(parallel, config.tensor_parts(), config.vocabulary(), {})
        check_pipeline(parallel, config.num_units())
    return layout
