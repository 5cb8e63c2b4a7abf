"""Intel GPUs, through XCCL, with an XPU build of torch."""

from __future__ import annotations

from paddock.devices.adapter import ContainerAccess, DeviceAdapter

XPU = DeviceAdapter(
    name="xpu",
    package=None,
    torch_type="xpu",
    backend="xccl",
    autocast=("bfloat16", "float16"),
    float16_needs_loss_scale=True,
    memory_format="channels_last",
    parallelism="full",
    float64=False,  # Intel's list of known issues: Arc A-Series has none, and a kernel that needs it stops the program
    fused_optimizer=True,  # torch itself brings the kernels
    pinned_memory=True,
    visible_devices="ZE_AFFINITY_MASK",
    container=ContainerAccess(devices=("/dev/dri",)),
    install="an XPU build of torch (https://pytorch.org/get-started/locally) and Intel's GPU driver",
)
