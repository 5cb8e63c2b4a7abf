"""Intel GPUs, through XCCL, with an XPU build of torch."""

from __future__ import annotations

from paddock.devices.adapter import DeviceAdapter

XPU = DeviceAdapter(
    name="xpu",
    package=None,
    torch_type="xpu",
    backend="xccl",
    autocast=("bfloat16", "float16"),
    float16_needs_loss_scale=True,
    memory_format="channels_last",
    parallelism="full",
    install="an XPU build of torch (https://pytorch.org/get-started/locally) and Intel's GPU driver",
)
