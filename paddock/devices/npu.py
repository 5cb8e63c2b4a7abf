"""Huawei Ascend NPUs, through HCCL, with the torch_npu plug-in."""

from __future__ import annotations

from paddock.devices.adapter import ContainerAccess, DeviceAdapter

# No peaks: published figures for the 910B (280 to 376 TFLOP/s) disagree on which bin each belongs to.
NPU = DeviceAdapter(
    name="npu",
    package="torch_npu",
    torch_type="npu",
    backend="hccl",
    autocast=("bfloat16", "float16"),
    float16_needs_loss_scale=True,
    memory_format="contiguous",  # the plug-in chooses its own blocked layout from NCHW
    parallelism="full",
    float64=False,  # the plug-in computes in float32 instead, and warns
    fused_optimizer=False,  # recent plug-ins have AdamW's kernel, and no version is known to have SGD's
    pinned_memory=True,
    visible_devices="ASCEND_RT_VISIBLE_DEVICES",
    container=ContainerAccess(
        every=("/dev/davinci{n}",),
        devices=("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"),
        mounts=("/usr/local/Ascend/driver", "/usr/local/dcmi", "/usr/local/bin/npu-smi", "/etc/ascend_install.info"),
    ),
    kubernetes_resource="huawei.com/Ascend910",
    install="Huawei's CANN toolkit and torch_npu (pip install torch_npu, in the version of your torch)",
)
