"""NVIDIA GPUs, through NCCL, with a CUDA build of torch. A ROCm build answers to the same name."""

from __future__ import annotations

from paddock.devices.adapter import ContainerAccess, DeviceAdapter


def _peaks(half: float, single: float, brain: bool = True) -> dict[str, float]:
    """Teraflops from a data sheet, without sparsity; float32 without TF32, as torch multiplies by default."""
    return {"float16": half * 1e12, "float32": single * 1e12} | ({"bfloat16": half * 1e12} if brain else {})


CUDA = DeviceAdapter(
    name="cuda",
    package=None,
    torch_type="cuda",
    backend="nccl",
    autocast=("bfloat16", "float16"),
    float16_needs_loss_scale=True,
    memory_format="channels_last",
    parallelism="full",
    float64=True,
    fused_optimizer=True,
    pinned_memory=True,
    install="a CUDA build of torch (https://pytorch.org/get-started/locally) and NVIDIA's driver",
    visible_devices="CUDA_VISIBLE_DEVICES",
    container=ContainerAccess(docker=("--gpus", "all"), podman=("--device", "nvidia.com/gpu=all")),  # podman knows CDI
    kubernetes_resource="nvidia.com/gpu",
    # Whole names, so that a slice of a card (… MIG 1g.5gb) or a weaker sister is unknown rather than wrong.
    peaks={
        r"Tesla V100-SXM2-(16|32)GB": _peaks(125, 15.7, brain=False),
        r"Tesla V100-PCIE-(16|32)GB": _peaks(112, 14, brain=False),
        r"Tesla T4": _peaks(65, 8.1, brain=False),
        r"(NVIDIA )?A100-(SXM4|PCIE)-(40|80)GB|NVIDIA A100 80GB PCIe": _peaks(312, 19.5),
        r"(NVIDIA )?A800-SXM4-80GB|NVIDIA A800 80GB PCIe": _peaks(312, 19.5),
        r"NVIDIA A30": _peaks(165, 10.3),
        r"NVIDIA L4": _peaks(121, 30.3),
        r"NVIDIA L40S": _peaks(362, 91.6),
        r"NVIDIA H100 80GB HBM3|NVIDIA H800": _peaks(989, 66.9),
        r"NVIDIA H100 PCIe": _peaks(756, 51.2),
        r"NVIDIA H100 NVL": _peaks(835, 60),
        r"NVIDIA H200": _peaks(989, 66.9),
        r"NVIDIA H20": _peaks(148, 44),
    },
)
