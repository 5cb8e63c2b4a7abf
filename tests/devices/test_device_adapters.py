"""What an adapter does: the CPU for real, the others as far as a machine without them allows."""

from __future__ import annotations

import subprocess
import sys

import pytest

from paddock.devices import adapter_named, cpu, measure_gemm_flops
from paddock.devices.cpu import CPU


def test_cpu_device_has_no_index() -> None:
    import torch

    adapter = adapter_named("cpu")
    adapter.activate(3)
    adapter.synchronize()
    assert adapter.torch_device(3) == torch.device("cpu")
    assert adapter_named("cuda").torch_device(3) == torch.device("cuda", 3)


def test_cpu_memory_is_in_bytes_and_grows_with_a_tensor() -> None:
    code = """
import torch
from paddock.devices import adapter_named
cpu = adapter_named("cpu")
before = cpu.memory_used()
torch.ones(64 * 2**20)  # 256 MiB
print((cpu.memory_used() - before) / 2**20)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 200 < float(done.stdout) < 400


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a dial of glibc")
def test_prepare_keeps_freed_memory_in_the_process() -> None:
    # The page faults of making the same large tensor again and again, without and with the tuning.
    code = """
import ctypes, resource, torch
from paddock.devices import adapter_named
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(16 * 2**20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
untuned = faults()
adapter_named("cpu").prepare()
print(hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), untuned, faults())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    glibc, untuned, tuned = done.stdout.split()
    assert glibc == "False" or int(tuned) < int(untuned) / 2, done.stdout


def test_peaks_are_known_for_whole_names_only() -> None:
    cuda = adapter_named("cuda")
    assert cuda.peak_flops("bfloat16", "NVIDIA A100-SXM4-80GB") == 312e12
    assert cuda.peak_flops("float32", "NVIDIA H100 PCIe") == 51.2e12
    assert cuda.peak_flops("bfloat16", "NVIDIA A100-SXM4-40GB MIG 1g.5gb") is None
    assert cuda.peak_flops("bfloat16", "Tesla T4") is None  # it has no such units
    assert cuda.peak_flops("bfloat16", "NVIDIA L400") is None
    assert adapter_named("cpu").peak_flops("float32") is None


def test_absent_accelerator_has_no_peak() -> None:
    if adapter_named("cuda").count() == 0:
        assert adapter_named("cuda").peak_flops("float32") is None


def test_measured_gemm_is_plausible_and_measured_once() -> None:
    cpu = adapter_named("cpu")
    measured = measure_gemm_flops(cpu)
    assert 1e8 < measured < 1e15
    assert measure_gemm_flops(cpu) == measured


def test_importing_the_room_does_not_import_torch() -> None:
    code = "import sys, paddock.devices; print(sorted(m for m in sys.modules if m.split('.')[0] == 'torch'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("flags", "bfloat16", "float16"),
    [
        ({"avx2", "avx512f"}, False, False),
        ({"avx512_bf16"}, True, False),
        ({"amx_bf16", "amx_fp16"}, True, True),
        ({"asimdhp", "bf16"}, True, True),
        (None, None, None),
    ],
)
def test_a_processor_says_which_types_it_has(
    flags: set[str] | None, bfloat16: bool | None, float16: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "cpu_flags", lambda: flags)
    found = [CPU.has_instructions_for(name) for name in ("float32", "bfloat16", "float16")]
    assert found == [True, bfloat16, float16]
