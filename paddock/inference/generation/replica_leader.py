"""A trained model that writes, in this process or over all processes of a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch.distributed as dist

from paddock.devices.config import WeightFormat
from paddock.inference.generation.parallel_decoder import Replica, follow, leading
from paddock.inference.trained import Trained, open_trained, read_trained_config
from paddock.models.build import build_part, complete_part
from paddock.models.config import ModelConfig
from paddock.models.layers.packing import set_format
from paddock.models.model import Model, allocate
from paddock.parallel.config import Layout, ParallelConfig, derive_layout
from paddock.parallel.legality import check_pipeline, check_tensor
from paddock.parallel.mesh import Mesh, build_mesh
from paddock.parallel.pipeline.stage import Stage
from paddock.parallel.world import World, gather_texts


@dataclass(frozen=True)
class ReplicaLeader:
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
def lead_replica(
    source: str, parallel: ParallelConfig, world: World, format: WeightFormat = "float32"
) -> Iterator[ReplicaLeader | None]:
    """The model that `source` names, with weights in a format, each process with its part of it. Gives a leader where a
    process leads; the others do what theirs says until it leaves, and get None then."""
    if world.size == 1:
        trained = open_trained(source, world.device)
        set_format(trained.model, format)
        yield ReplicaLeader(trained, None)
        return
    mesh = build_mesh(derive_layout(parallel, world.size), world.rank, world.device.type, reversed_stages=True)
    parts: list[Stage] = []

    def build(config: ModelConfig) -> Model:
        parts.append(build_part(config, parallel, mesh))
        assert isinstance(parts[0].model, Model)
        return parts[0].model

    trained = open_trained(source, world.device, build, tells=world.is_main)
    leaders = _leaders(mesh)
    with _joined(parts[0], mesh, world, format) as replica:
        yield None if replica is None else ReplicaLeader(trained, replica, mesh.data_rank, mesh.layout.data, leaders)


@contextmanager
def lead_replica_of(
    config: ModelConfig, fill: Callable[[Model], object], layout: Layout, world: World
) -> Iterator[Replica | None]:
    """The same for a model that is known by its config, of whose weights each process has its part filled."""
    mesh = build_mesh(layout, world.rank, world.device.type, reversed_stages=True)
    stage = build_part(config, ParallelConfig(tensor=layout.tensor, pipeline=layout.pipeline), mesh)
    assert isinstance(stage.model, Model)
    allocate(stage, world.device)
    fill(stage.model)
    with _joined(stage, mesh, world) as replica:
        yield replica


@contextmanager
def _joined(stage: Stage, mesh: Mesh, world: World, format: WeightFormat = "float32") -> Iterator[Replica | None]:
    """Put a part that has its weights to use: gives the replica to the process that leads it, and None to the others,
    once they have done what it said."""
    complete_part(stage, mesh)
    assert isinstance(stage.model, Model)
    set_format(stage.model, format)
    replica = Replica(stage, mesh, world.device)
    if not replica.leads:
        follow(replica)
        yield None
        return
    with leading(replica):
        yield replica


def _leaders(mesh: Mesh) -> dist.ProcessGroup | None:
    """Those that lead the replicas, where there are several. Called by all processes of the job."""
    if mesh.layout.data == 1:
        return None
    assert mesh.grid is not None
    made = dist.new_group(mesh.grid.mesh[-1, :, 0].tolist(), backend="gloo")
    return made if isinstance(made, dist.ProcessGroup) else None


def check_layout(source: str, parallel: ParallelConfig, world: int) -> Layout:
    """The layout of a trained model that is to write over `world` processes, or a UserError why there is none."""
    layout = derive_layout(parallel, world)
    if layout.world > 1:
        config = read_trained_config(source)
        check_tensor(parallel, config.tensor_parts(), config.vocabulary(), {})
        check_pipeline(parallel, config.num_units())
    return layout
