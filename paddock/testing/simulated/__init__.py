"""A device that does not exist, written in Python on torch's hooks for plug-ins.

    with simulated_device("npu", lacks=("aten.gelu",), injections=[Injection("aten.mm", "layers.1")]) as device:
        …                                    # `--device npu` goes through the real adapter, and comes out here
        device.host_reads, device.memory.peak, device.injections.applied

or, for a command and the processes that it starts:

    python -m paddock.testing.simulated FOLDER --name npu
    PYTHONPATH=FOLDER paddock train gpt2/tiny --device npu --nproc-per-node 2
"""

from paddock.testing.simulated.device import Settings, SimulatedDevice
from paddock.testing.simulated.injection import Injection, name_modules
from paddock.testing.simulated.install import simulated_device, write_package

__all__ = ["Injection", "Settings", "SimulatedDevice", "name_modules", "simulated_device", "write_package"]
