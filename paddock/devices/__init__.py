"""The devices: one small description per vendor, a registry, and the choice among them.

This is the only room that names a vendor or calls a vendor's module. It knows nothing of models, layouts or
recipes. Importing it does not import torch.
"""

from paddock.devices.adapter import DeviceAdapter, Packed
from paddock.devices.availability import Availability, probe
from paddock.devices.peak import measure_gemm_flops
from paddock.devices.registry import adapter_named, adapter_of, all_adapters, device_names, prepare, register, select

__all__ = [
    "Availability",
    "DeviceAdapter",
    "Packed",
    "adapter_named",
    "adapter_of",
    "all_adapters",
    "device_names",
    "measure_gemm_flops",
    "prepare",
    "probe",
    "register",
    "select",
]
