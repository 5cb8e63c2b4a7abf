"""Matrix products by the faster library: both agree, the choice is kept, and can be told otherwise."""

from __future__ import annotations

import json
from itertools import count, cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from paddock.config.load import load_recipe
from paddock.config.recipe import recipe_from_dict
from paddock.config.rules import check_recipe
from paddock.devices import products, select
from paddock.devices.products import CLASSES, OPERATIONS, Products
from paddock.errors import ConfigError

PROCESSOR = "a processor"


def table(*ways: str, **named: str) -> dict[str, Any]:
    """One way for each operation, `mkl` where none is given."""
    words = dict.fromkeys(OPERATIONS, "mkl") | dict(zip(OPERATIONS, ways, strict=False)) | named
    return {operation: dict.fromkeys(CLASSES, way) for operation, way in words.items()}


def made(**ways: str) -> Products:
    plain = products.choose("mkl", PROCESSOR, 0)
    return plain.model_copy(update={"ways": table(**ways)})


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "paddock"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of what goes to oneDNN."""
    found: list[tuple[int, ...]] = []
    multiply = products._by_onednn

    def counted(left: torch.Tensor, right: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        found.append((*left.shape, right.shape[1]))
        return multiply(left, right, added)

    monkeypatch.setattr(products, "_by_onednn", counted)
    return found


def gradients(rows: int, bias: bool, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    """A linear layer's outputs and gradients, for inputs of three dimensions."""
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(2, rows // 2 or 1, 2048, generator=draw).to(dtype).requires_grad_()
    weight = torch.randn(1536, 2048, generator=draw).to(dtype).requires_grad_()
    added = torch.randn(1536, generator=draw).to(dtype).requires_grad_() if bias else None
    y = F.linear(x, weight, added)
    y.square().sum().backward()
    return [
        y.detach(),
        *(tensor.grad for tensor in (x, weight, added) if tensor is not None and tensor.grad is not None),
    ]


@pytest.mark.parametrize("rows", [2, 16, 96, 600])
@pytest.mark.parametrize("bias", [True, False])
def test_both_libraries_agree_to_rounding(rows: int, bias: bool, seen: list[tuple[int, ...]]) -> None:
    exact = gradients(rows, bias, torch.float64)
    with products.using(made(forward="onednn", input_gradient="onednn", weight_gradient="onednn")):
        found = gradients(rows, bias)
    assert sorted(seen) == sorted([(rows, 2048, 1536), (rows, 1536, 2048), (1536, rows, 2048)])
    for ours, theirs in zip(found, exact, strict=True):
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm()


@pytest.mark.parametrize("operation", OPERATIONS[:3])
def test_each_operation_goes_its_own_way(operation: str, seen: list[tuple[int, ...]]) -> None:
    shapes = {"forward": (600, 2048, 1536), "input_gradient": (600, 1536, 2048), "weight_gradient": (1536, 600, 2048)}
    with products.using(made(**{operation: "onednn"})):
        gradients(600, bias=True)
    assert seen == [shapes[operation]]


def test_the_number_of_rows_decides(seen: list[tuple[int, ...]]) -> None:
    chosen = made()
    chosen.ways["forward"]["8 narrow"] = "onednn"
    with products.using(chosen), torch.no_grad():
        for rows in (1, 2, 23, 24, 600):
            F.linear(torch.ones(rows, 2048), torch.ones(1536, 2048))
    assert [rows for rows, *_ in seen] == [2, 23]


@pytest.mark.parametrize("operation", OPERATIONS[:3])
@pytest.mark.parametrize("shape", ["wide", "narrow", "head"])
def test_the_shape_of_the_layer_decides(operation: str, shape: str, seen: list[tuple[int, ...]]) -> None:
    """Whatever the product looks like: what counts is whether the layer has more inputs than outputs, or far fewer."""
    chosen = made()
    chosen.ways[operation][f"512 {shape}"] = "onednn"  # type: ignore[index]
    sizes = {(512, 512): "wide", (512, 1024): "narrow", (1024, 512): "wide", (2044, 256): "wide", (2048, 256): "head"}
    for (outputs, inputs), found in sizes.items():
        seen.clear()
        x, weight = torch.ones(600, inputs, requires_grad=True), torch.ones(outputs, inputs, requires_grad=True)
        with products.using(chosen):
            F.linear(x, weight).square().sum().backward()
        assert bool(seen) == (found == shape)


def test_what_is_small_odd_or_of_another_type_is_left_alone(seen: list[tuple[int, ...]]) -> None:
    x, weight = torch.randn(64, 2048), torch.randn(1536, 2048)
    with products.using(made(forward="onednn", input_gradient="onednn", weight_gradient="onednn")):
        assert torch.mm(x[:, :8], weight[:, :8].T).shape == (64, 1536)
        F.linear(x.bfloat16(), weight.bfloat16())
        F.linear(x.double(), weight.double())
        torch.mm(x[:, ::2], weight[:, ::2].T)
        torch.addmm(torch.ones(1536), x, weight.T, beta=2)
        torch.addmm(torch.ones(64, 1536), x, weight.T)
    assert seen == []


def test_outside_torch_multiplies_as_ever(seen: list[tuple[int, ...]]) -> None:
    before = gradients(600, bias=True)
    with products.using(made(forward="onednn")):
        pass
    with products.using(products.choose("mkl", PROCESSOR, 0)):
        inside = gradients(600, bias=True)
    after = gradients(600, bias=True)
    assert seen == []
    assert all(torch.equal(one, other) for found in (inside, after) for one, other in zip(before, found, strict=True))


# Packed weights


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("bias", [True, False])
def test_packed_weights_agree_to_rounding(rows: int, bias: bool) -> None:
    draw = torch.Generator().manual_seed(5)
    weight, x = torch.randn(1536, 2048, generator=draw), torch.randn(rows, 1, 2048, generator=draw)
    added = torch.randn(1536, generator=draw) if bias else None
    with products.using(made(inference="packed")):
        packed = products.pack(weight, 8)
    assert packed is not None
    found, exact = (
        packed.multiply(x, added),
        F.linear(x.double(), weight.double(), added if added is None else added.double()),
    )
    assert found.shape == exact.shape
    assert (found - exact).norm() <= 1e-5 * exact.norm()


def test_nothing_is_packed_that_gains_nothing() -> None:
    weight = torch.ones(1536, 2048)
    assert products.pack(weight, 8) is None
    with products.using(made(inference="packed")):
        assert products.pack(weight[:8, :8].contiguous(), 8) is None
        assert products.pack(weight.bfloat16(), 8) is None
        with torch.autocast("cpu", torch.bfloat16):
            assert products.pack(weight, 8) is None


@pytest.mark.parametrize("bias", [True, False])
def test_a_weight_as_it_is_goes_straight_to_the_library(bias: bool, seen: list[tuple[int, ...]]) -> None:
    """With the numbers that it gives on the usual way, and for as many rows as it was asked for alone."""
    draw = torch.Generator().manual_seed(5)
    weight, added = torch.randn(1536, 2048, generator=draw), torch.randn(1536, generator=draw) if bias else None
    with products.using(made(forward="onednn")), torch.inference_mode():
        plain = products.pack(weight, 1)
        assert isinstance(plain, products.PlainWeight) and plain.num_bytes == 0
        for rows, passes in ((1, 0), (300, 1)):
            x = torch.randn(rows, 1, 2048, generator=draw)
            found, before = plain.multiply(x, added), len(seen)
            assert before == passes
            assert torch.equal(found, F.linear(x, weight, added))
            seen.clear()


# The choice


def test_measuring_gives_a_whole_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "SHAPES", {"wide": (96, 64), "narrow": (64, 96), "head": (640, 64)})
    monkeypatch.setattr(products, "ROUNDS", 1)
    monkeypatch.setattr(products, "ENOUGH_SECONDS", 0.0)
    found = products.measure()
    assert {operation: set(by_rows) for operation, by_rows in found.items()} == {
        operation: set(CLASSES) for operation in OPERATIONS
    }
    dense = [way for operation in OPERATIONS[:3] for way in found[operation].values()]
    assert set(dense) <= {"mkl", "onednn"}


OF_THREE = {"forward": (0, 2, 1), "input_gradient": (0, 1, 2), "weight_gradient": (1, 0, 2)}
"""What an operation multiplies, of rows, outputs and inputs: m × k by k × n."""


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, tuple[int, ...]], float]:
    """Libraries and packed weights that compute nothing and take, by a clock of their own, a millisecond, or what is
    put in here by way and shape. Whatever else runs on the machine disturbs every fifth product."""
    seconds: dict[tuple[str, tuple[int, ...]], float] = {}
    now, calls = [0.0], count(1)

    def take(way: str, *shape: int) -> None:
        assert products._table is None, "a way is measured, and another one computes"
        now[0] += seconds.get((way, shape), 1e-3) * (30 if next(calls) % 5 == 0 else 1)

    class Packed:
        def __init__(self, weight: torch.Tensor, rows: int) -> None:
            self.shape = (rows, *weight.T.shape)

        def multiply(self, x: torch.Tensor) -> None:
            take("packed", *self.shape)

    monkeypatch.setattr(products, "_by_onednn", lambda left, right: take("onednn", *left.shape, right.shape[1]))
    monkeypatch.setattr(torch, "mm", lambda left, right: take("mkl", *left.shape, right.shape[1]))
    monkeypatch.setattr(products, "PackedWeight", Packed)
    monkeypatch.setattr(products, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    return seconds


def test_what_was_faster_is_chosen(
    planted: dict[tuple[str, tuple[int, ...]], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every operation and class by itself, and torch's own way unless the other one is faster by a margin."""
    sizes = {"wide": (96, 64), "narrow": (32, 80), "head": (480, 48)}
    monkeypatch.setattr(products, "SHAPES", sizes)
    expected: dict[str, dict[str, str]] = {operation: {} for operation in OPERATIONS}
    speeds, packed_speeds = cycle([2.0, 0.5, 1.05, 1.01, 1.0]), cycle([1.5, 3.0, 0.7])
    for one in CLASSES:
        three = (int(one.split()[0]), *sizes[one.split()[1]])
        for operation, places in OF_THREE.items():
            shape, speed = tuple(three[place] for place in places), next(speeds)
            planted["onednn", shape] = 1e-3 / speed
            expected[operation][one] = "onednn" if speed > 1.03 else "mkl"
            if operation == "forward":
                packed, dense = next(packed_speeds), max(speed, 1.0)
                planted["packed", shape] = 1e-3 / packed
                expected["inference"][one] = "packed" if packed > 1.1 * dense else expected["forward"][one]
    with products.using(made(forward="onednn")):
        assert products.measure() == expected
    assert {way for by_class in expected.values() for way in by_class.values()} == {"mkl", "onednn", "packed"}


@pytest.fixture
def measured(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Measurements to come, each of which is taken once."""
    waiting = [table("onednn", "mkl", "mkl"), table("mkl", "onednn", "mkl")]
    monkeypatch.setattr(products, "measure", lambda: waiting.pop(0))
    return waiting


def test_a_machine_is_measured_once(measured: list[dict[str, Any]]) -> None:
    first = products.choose("auto", PROCESSOR, 10**9)
    assert first.ways == table("onednn", "mkl", "mkl")
    assert products.choose("auto", PROCESSOR, 10**9) == first
    assert len(measured) == 1


def test_small_models_are_not_worth_measuring_for(measured: list[dict[str, Any]], cache: Path) -> None:
    assert products.choose("auto", PROCESSOR, 10**6).ways == table()
    assert len(measured) == 2
    assert not cache.exists()


@pytest.mark.parametrize("way", ["mkl", "onednn"])
def test_it_can_be_told(way: Any, measured: list[dict[str, Any]]) -> None:
    chosen = products.choose(way, PROCESSOR, 10**9, kept=made().model_dump())
    assert {operation: chosen.ways[operation] for operation in OPERATIONS[:3]} == {
        operation: dict.fromkeys(CLASSES, way) for operation in OPERATIONS[:3]
    }
    assert set(chosen.ways["inference"].values()) == ({"mkl"} if way == "mkl" else {"onednn", "packed"})
    assert len(measured) == 2


def of_another_version() -> dict[str, Any]:
    """What a version kept that told heads and other layers not apart."""
    kept = made(forward="onednn").model_dump()
    return kept | {
        "ways": {
            operation: {one: way for one, way in by_class.items() if not one.endswith("head")}
            for operation, by_class in kept["ways"].items()
        }
    }


def damages(good: dict[str, Any]) -> dict[str, str]:
    return {
        "empty": "",
        "cut": json.dumps(good)[:-20],
        "not an object": "[1]",
        "another processor": json.dumps({**good, "processor": "another"}),
        "another torch": json.dumps({**good, "torch": "1.0"}),
        "other threads": json.dumps({**good, "threads": 999}),
        "an unknown way": json.dumps({**good, "ways": table("abacus")}),
        "an operation is missing": json.dumps({**good, "ways": {"forward": good["ways"]["forward"]}}),
        "another version": json.dumps(of_another_version()),
        "rows are missing": json.dumps({**good, "ways": {**good["ways"], "forward": {"1 wide": "mkl"}}}),
        "too long": json.dumps({**good, "more": "x" * products.MAX_BYTES}),
    }


@pytest.mark.parametrize("kind", sorted(damages(made().model_dump())))
def test_a_wrong_cache_file_is_ignored_and_replaced(kind: str, measured: list[dict[str, Any]], cache: Path) -> None:
    products.choose("auto", PROCESSOR, 10**9)
    (file,) = cache.iterdir()
    file.write_text(damages(made().model_dump())[kind])
    again = products.choose("auto", PROCESSOR, 10**9)
    assert again.ways == table("mkl", "onednn", "mkl")
    assert Products.model_validate_json(file.read_text()) == again


def test_a_cache_that_cannot_be_written_is_no_error(
    measured: list[dict[str, Any]], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.write_text("a file where the folder should be")
    assert products.choose("auto", PROCESSOR, 10**9).ways == table("onednn", "mkl", "mkl")


def test_what_a_run_has_kept_goes_before(measured: list[dict[str, Any]]) -> None:
    kept = made(weight_gradient="onednn")
    assert products.choose("auto", PROCESSOR, 10**9, kept.model_dump()) == kept
    other_threads = kept.model_copy(update={"threads": 999})
    assert products.choose("auto", PROCESSOR, 10**9, other_threads.model_dump()) == other_threads
    assert len(measured) == 2


@pytest.mark.parametrize(
    "kept", [None, "words", {"ways": 3}, made().model_dump() | {"processor": "another"}, of_another_version()]
)
def test_what_was_kept_elsewhere_is_not_taken(kept: object, measured: list[dict[str, Any]]) -> None:
    assert products.choose("auto", PROCESSOR, 10**9, kept).ways == table("onednn", "mkl", "mkl")


def test_other_devices_have_no_choice() -> None:
    values = load_recipe("gpt2/tiny").to_dict()
    values["train"]["device"], values["device"]["products"] = "cuda", "onednn"
    with pytest.raises(ConfigError, match=r"device\.products"):
        check_recipe(recipe_from_dict(values), 1)
    assert select("cpu").choose_products("onednn", 0)["ways"]["forward"] == table("onednn")["forward"]
