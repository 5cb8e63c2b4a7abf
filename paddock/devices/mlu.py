"""Cambricon MLUs, through CNCL, with the torch_mlu plug-in."""

from __future__ import annotations

from paddock.devices.adapter import ContainerAccess, DeviceAdapter

MLU = DeviceAdapter(
    name="mlu",
    package="torch_mlu",
    torch_type="mlu",
    backend="cncl",
    autocast=("float16", "bfloat16"),
    float16_needs_loss_scale=True,
    memory_format="channels_last",
    parallelism="data",
    # Without the vendor's word for them: what is slower at worst, and never wrong.
    float64=False,
    fused_optimizer=False,
    pinned_memory=False,
    visible_devices="MLU_VISIBLE_DEVICES",
    container=ContainerAccess(
        every=("/dev/cambricon_dev{n}",), devices=("/dev/cambricon_ctl",), mounts=("/usr/bin/cnmon",)
    ),
    kubernetes_resource="cambricon.com/mlu",
    install="Cambricon's Neuware and torch_mlu (a wheel from Cambricon, in the version of your torch)",
)
