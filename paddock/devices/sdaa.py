"""Tecorigin SDAA cards, through TCCL, with the torch_sdaa plug-in. A card shows itself as four devices."""

from __future__ import annotations

from paddock.devices.adapter import ContainerAccess, DeviceAdapter

SDAA = DeviceAdapter(
    name="sdaa",
    package="torch_sdaa",
    torch_type="sdaa",
    backend="tccl",
    autocast=("float16",),  # the vendor documents mixed precision in float16 only
    float16_needs_loss_scale=True,
    memory_format="channels_last",
    parallelism="data",
    # Without the vendor's word for them: what is slower at worst, and never wrong.
    float64=False,
    fused_optimizer=False,
    pinned_memory=False,
    visible_devices="SDAA_VISIBLE_DEVICES",
    container=ContainerAccess(every=("/dev/tcaicard{n}",)),
    install="Tecorigin's TecoToolKit and torch_sdaa (from Tecorigin, in the version of your torch)",
)
