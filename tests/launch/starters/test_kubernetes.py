"""Manifests for Kubeflow's operators."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from paddock.cli.main import VERBS
from paddock.errors import ConfigError
from paddock.launch.starters.command import parse_command
from paddock.launch.starters.kubernetes import KubernetesOptions, manifest

WORDS = "train", "gpt2/345m", "--nproc-per-node", "8"


def made(*words: str, **options: object) -> dict[str, Any]:
    text = manifest(KubernetesOptions(image="img:1", **options), parse_command(words or WORDS, VERBS, "kubernetes"))  # type: ignore[arg-type]
    assert "&id" not in text, "YAML's references are for machines"
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def test_a_pytorch_job() -> None:
    job = made(nodes=3, device="cuda", namespace="lab", volume_claim=("runs:/runs",), memory="64Gi", grace=60)
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    assert job["metadata"] == {"name": "gpt2-345m", "namespace": "lab"}
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert {kind: part["replicas"] for kind, part in replicas.items()} == {"Master": 1, "Worker": 2}
    for part in replicas.values():
        pod = part["template"]["spec"]
        [container] = pod["containers"]
        assert part["restartPolicy"] == "Never" and pod["terminationGracePeriodSeconds"] == 60
        assert container["name"] == "pytorch", "the operator looks for a container of this name"
        place = "--nnodes 3 --node-rank $(RANK) --master-addr $(MASTER_ADDR) --master-port $(MASTER_PORT)"
        assert container["command"] == ["paddock", *WORDS, *place.split()]
        assert container["resources"]["limits"] == {"memory": "64Gi", "nvidia.com/gpu": 8}
        assert {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]} == {
            "shm": "/dev/shm",
            "volume-0": "/runs",
        }
        assert {volume["name"] for volume in pod["volumes"]} == {"shm", "volume-0"}
        assert pod["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}


def test_one_pod_needs_no_place() -> None:
    job = made()
    assert list(job["spec"]["pytorchReplicaSpecs"]) == ["Master"]
    [container] = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    assert container["command"] == ["paddock", *WORDS]
    assert container["resources"] == {"limits": {}}


def test_a_train_job() -> None:
    job = made(nodes=2, device="mlu", trainer_v2=True, runtime="lab-torch", cpu="32")
    assert (job["apiVersion"], job["kind"]) == ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    assert job["spec"]["runtimeRef"] == {"name": "lab-torch"}
    place = "--nnodes 2 --node-rank $(PET_NODE_RANK) --master-addr $(PET_MASTER_ADDR) --master-port $(PET_MASTER_PORT)"
    assert job["spec"]["trainer"] == {
        "image": "img:1",
        "numNodes": 2,
        "command": ["paddock", *WORDS, *place.split()],
        "resourcesPerNode": {"limits": {"cpu": "32", "cambricon.com/mlu": 8}},
    }


def test_dollars_of_the_user_stay() -> None:
    [container] = made("train", "x.yaml", "--data.path", "$(HOME)/a")["spec"]["pytorchReplicaSpecs"]["Master"][
        "template"
    ]["spec"]["containers"]
    assert container["command"][-1] == "$$(HOME)/a"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "My_Job"}, "--name = My_Job"),
        ({"name": "a" * 60}, "--name = a"),
        ({"nodes": 0}, "--nodes = 0"),
        ({"device": "sdaa"}, "needs a --resource"),
        ({"device": "gpu"}, "there is no such device"),
        ({"resource": "a/b"}, "would be ignored"),
        ({"volume_claim": ("runs",)}, "--volume-claim = runs"),
        ({"volume_claim": ("runs:/r",), "trainer_v2": True}, "would be ignored"),
    ],
)
def test_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        made(**options)


def test_a_resource_that_the_cluster_calls_otherwise() -> None:
    [container] = made(device="sdaa", resource="teco/card")["spec"]["pytorchReplicaSpecs"]["Master"]["template"][
        "spec"
    ]["containers"]
    assert container["resources"]["limits"] == {"teco/card": 8}
