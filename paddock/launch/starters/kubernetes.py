"""Manifests for Kubernetes: a PyTorchJob of Kubeflow's training operator, or a TrainJob of Kubeflow's trainer v2."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from paddock.errors import ConfigError, bad_value
from paddock.launch.starters.command import Command

NAME = re.compile(r"[a-z]([-a-z0-9]{0,40}[a-z0-9])?")
"""Of a job: the names of pods and services are made of it, and the API refuses those that are not such."""


@dataclass(frozen=True)
class KubernetesOptions:
    """Write a manifest for `kubectl apply -f`: a PyTorchJob, or with --trainer-v2 a TrainJob.

        paddock launch kubernetes --nodes 4 --image IMAGE --device cuda --volume-claim runs:/runs \\
            -- train gpt2/345m --nproc-per-node 8 --run-dir /runs/big"""

    image: str
    """An image in which `paddock` is installed; docker/ has files for some."""
    nodes: int = 1
    """Pods, each on a node of its own choice."""
    name: str | None = None
    """Default: that of the recipe."""
    namespace: str | None = None
    """Default: that of the context of kubectl."""
    device: str = "cpu"
    """The kind of device that the pods ask for, one for each process; a name that `paddock doctor` lists."""
    resource: str | None = None
    """What the cluster calls this device, if it is not what its vendor's plug-in does: nvidia.com/gpu, …"""
    cpu: str | None = None
    """Cores of each pod."""
    memory: str | None = None
    """Memory of each pod, as 64Gi."""
    shared_memory: str = "16Gi"
    """What /dev/shm may grow to; 64 MB otherwise, too little for loaders of data."""
    volume_claim: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="CLAIM:PATH")] = ()
    """Persistent volumes that hold data and run directories; one that all pods share makes it one run directory. May be
    repeated."""
    grace: int = 120
    """Seconds that a pod has to save a checkpoint when it is told to end."""
    trainer_v2: bool = False
    """A TrainJob for Kubeflow's trainer v2."""
    runtime: str = "torch-distributed"
    """With --trainer-v2: the training runtime, which says what pods are like."""
    output: str | None = None
    """Write to this file; default: standard output."""


def manifest(options: KubernetesOptions, command: Command) -> str:
    """The manifest as YAML."""
    import yaml

    if options.nodes < 1:
        raise bad_value("--nodes", options.nodes, "a job has at least one pod", "--nodes 1 or more")
    name = options.name or command.name
    if not NAME.fullmatch(name):
        fix = "up to 42 small letters, digits and dashes, a letter first: --name my-job"
        raise bad_value("--name", name, "the names of pods are made of it", fix)
    metadata = {"name": name} | ({"namespace": options.namespace} if options.namespace else {})
    job = _train_job(options, command) if options.trainer_v2 else _pytorch_job(options, command)
    return yaml.safe_dump({**job[0], "metadata": metadata, "spec": job[1]}, sort_keys=False, allow_unicode=True)


Part = dict[str, Any]


def _pytorch_job(options: KubernetesOptions, command: Command) -> tuple[Part, Part]:
    """The operator tells a pod RANK, its number among the pods, and where the first one is; the cluster puts them in
    place of $(RANK) before the command starts."""
    place = {"--node-rank": "$(RANK)", "--master-addr": "$(MASTER_ADDR)", "--master-port": "$(MASTER_PORT)"}
    volumes, mounts = _volumes(options)
    container = {
        "name": "pytorch",
        "image": options.image,
        "command": ["paddock", *_escaped(command), *_flags(options.nodes, place)],
        "resources": _resources(options, command),
        "volumeMounts": mounts,
    }
    pod = {"terminationGracePeriodSeconds": options.grace, "containers": [container], "volumes": volumes}
    replicas = {"Master": 1} | ({"Worker": options.nodes - 1} if options.nodes > 1 else {})
    # A pod that is started anew alone would find a job without a place for it.
    specs = {
        kind: {"replicas": count, "restartPolicy": "Never", "template": {"spec": deepcopy(pod)}}
        for kind, count in replicas.items()
    }
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}, {
        "runPolicy": {"cleanPodPolicy": "Running"},
        "pytorchReplicaSpecs": specs,
    }


def _train_job(options: KubernetesOptions, command: Command) -> tuple[Part, Part]:
    if options.volume_claim:
        why = f"the volumes of a TrainJob's pods are those of its runtime, {options.runtime}"
        fix = "name a runtime that has them: --runtime NAME"
        raise ConfigError(f"--volume-claim {options.volume_claim[0]} would be ignored", why=why, fix=fix)
    names = {"--node-rank": "NODE_RANK", "--master-addr": "MASTER_ADDR", "--master-port": "MASTER_PORT"}
    place = {flag: f"$(PET_{name})" for flag, name in names.items()}
    trainer = {
        "image": options.image,
        "numNodes": options.nodes,
        "command": ["paddock", *_escaped(command), *_flags(options.nodes, place)],
        "resourcesPerNode": _resources(options, command),
    }
    kind = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    return kind, {"runtimeRef": {"name": options.runtime}, "trainer": trainer}


def _flags(nodes: int, place: dict[str, str]) -> list[str]:
    return [word for pair in {"--nnodes": str(nodes), **place}.items() for word in pair] if nodes > 1 else []


def _escaped(command: Command) -> list[str]:
    """$(…) in the user's own words stays what it is."""
    return [word.replace("$(", "$$(") for word in command.words]


def _resources(options: KubernetesOptions, command: Command) -> Part:
    from paddock.devices import adapter_named

    adapter = adapter_named(options.device)
    limits: Part = {"cpu": options.cpu, "memory": options.memory}
    if not adapter.computes_on_host:
        resource = options.resource or adapter.kubernetes_resource
        if resource is None:
            why = f"nothing is published of how pods ask for {adapter.name} devices"
            fix = "ask the cluster (kubectl describe node), and name it: --resource VENDOR/NAME"
            raise ConfigError(f"--device {adapter.name} needs a --resource", why=why, fix=fix)
        limits[resource] = command.processes or 1
    elif options.resource:
        raise ConfigError(
            f"--resource {options.resource} would be ignored", why="--device is cpu", fix="name the device"
        )
    return {"limits": {name: value for name, value in limits.items() if value is not None}}


def _volumes(options: KubernetesOptions) -> tuple[list[Part], list[Part]]:
    volumes: list[Part] = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": options.shared_memory}}]
    mounts: list[Part] = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 - where POSIX has shared memory
    for number, text in enumerate(options.volume_claim):
        claim, separator, path = text.partition(":")
        if not (claim and separator and path.startswith("/")):
            raise bad_value("--volume-claim", text, "it is a claim and a place in the pod", "--volume-claim runs:/runs")
        volumes.append({"name": f"volume-{number}", "persistentVolumeClaim": {"claimName": claim}})
        mounts.append({"name": f"volume-{number}", "mountPath": path})
    return volumes, mounts
