"""The registry, the choice of a device, and what is said when it is not there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paddock import plugins
from paddock.devices import DeviceAdapter, adapter_named, adapter_of, all_adapters, probe, register, registry, select
from paddock.errors import ConfigError, MachineError


@pytest.fixture
def empty_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test registers is forgotten after it."""
    monkeypatch.setattr(registry, "_ADAPTERS", dict(registry._ADAPTERS))
    monkeypatch.setattr(registry, "_BY_TYPE", dict(registry._BY_TYPE))
    monkeypatch.setattr(plugins, "_modules", {})


def test_every_vendor_and_its_collective_library() -> None:
    pairs = {adapter.name: (adapter.package, adapter.backend) for adapter in all_adapters()}
    assert pairs == {
        "cpu": (None, "gloo"),
        "cuda": (None, "nccl"),
        "xpu": (None, "xccl"),
        "npu": ("torch_npu", "hccl"),
        "mlu": ("torch_mlu", "cncl"),
        "sdaa": ("torch_sdaa", "tccl"),
    }


@pytest.mark.parametrize("adapter", all_adapters(), ids=lambda adapter: adapter.name)
def test_types_and_formats_exist_in_torch(adapter: DeviceAdapter) -> None:
    import torch

    for name in adapter.autocast:
        assert isinstance(getattr(torch, name), torch.dtype)
    formats = {"channels_last": torch.channels_last, "contiguous": torch.contiguous_format}
    assert adapter.memory_format in formats
    assert hash(adapter) == hash(replace(adapter))


def test_auto_takes_the_cpu_when_there_is_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_: None)
    assert select("auto").name == "cpu"


def test_absent_device_names_the_package_and_the_reason() -> None:
    with pytest.raises(MachineError) as error:
        select("npu")
    assert error.value.exit_code == 3
    assert "torch_npu is not installed" in error.value.why
    assert "CANN" in error.value.fix and "torch_npu" in error.value.fix


def test_unknown_device_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError) as error:
        select("cdua")
    assert error.value.exit_code == 2
    assert '"cuda"' in error.value.fix


def test_registered_device_is_found_and_cannot_be_replaced(empty_slot: None) -> None:
    other = replace(adapter_named("sdaa"), name="other", package="torch_other")
    register(other)
    assert adapter_named("other") is other
    assert other in all_adapters()
    with pytest.raises(ValueError, match="other"):
        register(other)
    with pytest.raises(ValueError, match="auto"):
        register(replace(other, name="auto"))


def test_the_device_of_a_tensor_has_an_adapter(empty_slot: None) -> None:
    import torch

    assert adapter_of(torch.empty(0).device) is adapter_named("cpu")
    assert adapter_of(torch.device("cuda", 1)) is adapter_named("cuda")
    meta = adapter_of(torch.device("meta"))
    assert not (meta.computes_on_host or meta.float64 or meta.fused_optimizer or meta.pinned_memory)
    other = replace(adapter_named("sdaa"), name="other", torch_type="hpu")
    register(other)
    assert adapter_of(torch.device("hpu", 0)) is other


def test_only_the_cpu_computes_on_the_host() -> None:
    assert [adapter.name for adapter in all_adapters() if adapter.computes_on_host] == ["cpu"]


def test_a_package_that_is_no_device_is_not_one(empty_slot: None) -> None:
    # `json` imports well and gives torch nothing.
    found = probe(replace(adapter_named("sdaa"), name="other", torch_type="other", package="json"))
    assert not found.available and not found.broken
    assert found.reason
