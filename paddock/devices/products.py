"""Matrix products on a CPU, each by the library that is faster here.

torch's CPU build carries two: MKL, to which it sends every product in float32, and oneDNN. Which one is faster depends
on the processor, on which operand lies transposed, on how many rows there are and on whether a layer has more outputs
or more inputs, so it is measured, once a machine.
The choice is a table; a run keeps the one it began with, since both round differently.

It is made where torch looks for a CPU's kernel, below autograd and DTensor, so that forward passes, both gradients of a
linear layer, parts of layers in tensor parallelism and split backward passes of a pipeline are all served, and no
model knows of it. torch's own kernel stays what it was for everything else.

Weights that stay as they are for many products, while a model writes, can be packed besides: oneDNN then finds them in
the order in which it reads them.
"""

from __future__ import annotations

import json
import time
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import torch
from pydantic import ValidationError
from torch import Tensor
from torch.nn import functional as F

from paddock.devices.config import ProductsSetting
from paddock.documents import Document, read_document
from paddock.errors import DataError, MachineError
from paddock.files import atomic_write, user_cache

Way = Literal["mkl", "onednn", "packed"]
"""`packed` is oneDNN with weights in its own order."""
Operation = Literal["forward", "input_gradient", "weight_gradient", "inference"]
"""Of a linear layer; `inference` is a forward pass with weights that stay as they are."""

OPERATIONS: tuple[Operation, ...] = ("forward", "input_gradient", "weight_gradient", "inference")
GRADIENTS_TOO = OPERATIONS[:3]
ROWS = (1, 8, 64, 512)
"""How many rows are measured; each stands for all numbers of rows from its own half-way mark on."""
FIRST_ROWS = (1, 2, 24, 160)
"""Where the class of each begins."""
SHAPES = {"wide": (3072, 768), "narrow": (768, 3072), "head": (12565, 768)}
"""Outputs and inputs of the layers that are measured: one stands for those with at least as many outputs as inputs, one
for the others, and one for scores of a whole vocabulary, as many and as odd a number as a quarter of GPT-2's: no cache
holds its weights, and rows of its scores begin anywhere."""
HEAD = 8
"""How many times as many outputs as inputs a layer has to have, to be taken for a head."""
CLASSES = tuple(f"{rows} {shape}" for rows in ROWS for shape in SHAPES)
MARGIN = 1.03
"""How much faster the other library must be, for products to leave torch's own way."""
ROUNDS, ENOUGH_SECONDS = 9, 0.001
"""Of turns between the two, and how long a turn takes at the least."""
FEW_ROUNDS, LONG_SECONDS = 3, 0.05
"""Where a turn takes so long, less is by chance: a head's are most of what measuring takes."""
SMALLEST_PRODUCT = 2**21
"""Multiplications below which a product is too short to be anybody's concern."""
SMALLEST_KEPT = 2**19
"""The same where the weight is given once, for many products to come: then none of them is looked at."""
SMALLEST_MODEL = 10_000_000
"""Parameters below which a model has no products that are worth measuring for."""
MAX_BYTES = 1 << 16

Product = Callable[[], Tensor]


class Products(Document):
    """What was found on a machine: for every operation and class, the way that was faster."""

    processor: str
    torch: str
    threads: int
    ways: dict[Operation, dict[str, Way]]
    """By operation and class: of rows, and of the layer's shape."""

    def fits(self, other: Products) -> bool:
        """Whether it holds where the other was made, but for the number of threads."""
        return (self.processor, self.torch) == (other.processor, other.torch)

    def complete(self) -> bool:
        """Whether it has the operations and classes of today, and no others: not if another version has made it."""
        return all(set(self.ways.get(operation, {})) == set(CLASSES) for operation in OPERATIONS)

    def table(self) -> dict[Operation, tuple[bool, ...]]:
        """Of each operation, whether each class leaves torch's own way; nothing where none does."""
        other = {name: "packed" if name == "inference" else "onednn" for name in OPERATIONS}
        ways = {name: self.ways.get(name, {}) for name in OPERATIONS}
        found = {name: tuple(ways[name].get(one) == other[name] for one in CLASSES) for name in OPERATIONS}
        return {name: chosen for name, chosen in found.items() if any(chosen)}


def choose(setting: ProductsSetting, processor: str, num_parameters: int, kept: object = None) -> Products:
    """The table for this process. What a run has `kept` of its beginning goes before what the cache knows of this
    machine, and that before measuring."""
    here = _uniform("mkl", processor)
    if setting != "auto":
        return _uniform(setting, processor)
    with suppress(ValidationError):
        known = Products.model_validate(kept)
        if known.fits(here) and known.complete():
            return known
    if num_parameters < SMALLEST_MODEL:
        return here
    path = _cache_file(here)
    found = _cached(path, here)
    if found is None:
        measured = here.model_copy(update={"ways": measure()})
        # Who measures at the same time takes what the first one found: both then compute the same.
        found = _cached(path, here) or _stored(path, measured)
    return found


def measure() -> dict[Operation, dict[str, Way]]:
    """Which way is faster for each operation and class, with this process's threads; some ten seconds."""
    found: dict[Operation, dict[str, Way]] = {operation: {} for operation in OPERATIONS}
    with torch.inference_mode(), using(None):
        for one in CLASSES:
            rows, shape = int(one.split()[0]), SHAPES[one.split()[1]]
            for operation in GRADIENTS_TOO:
                faster = _speedup(*_dense(operation, rows, *shape))
                found[operation][one] = "onednn" if faster >= MARGIN else "mkl"
            dense = found["forward"][one]
            found["inference"][one] = "packed" if _speedup(*_packed(dense, rows, *shape)) >= MARGIN else dense
    return found


def _dense(operation: Operation, rows: int, outputs: int, inputs: int) -> tuple[Product, Product]:
    """An operation by both libraries."""
    x, weight, gradient = torch.rand(rows, inputs), torch.rand(outputs, inputs), torch.rand(rows, outputs)
    operands = {"forward": (x, weight.T), "input_gradient": (gradient, weight), "weight_gradient": (gradient.T, x)}
    left, right = operands[operation]
    return partial(multiply_by, "mkl", left, right), partial(multiply_by, "onednn", left, right)


def _packed(dense: Way, rows: int, outputs: int, inputs: int) -> tuple[Product, Product]:
    """A forward pass by the better of both libraries, and with packed weights."""
    x, weight = torch.rand(rows, inputs), torch.rand(outputs, inputs)
    packed = PackedWeight(weight, rows)
    return partial(multiply_by, dense, x, weight.T), partial(packed.multiply, x)


def _speedup(own: Product, other: Product) -> float:
    """How many times faster the second is, by the best turn of each: what else runs here only ever costs time."""
    own(), other()
    once = max(_seconds(own, 1), 1e-6)
    repeats = max(1, round(ENOUGH_SECONDS / once))
    rounds = ROUNDS if once < LONG_SECONDS else FEW_ROUNDS
    turns = [(_seconds(own, repeats), _seconds(other, repeats)) for _ in range(rounds)]
    return min(one for one, _ in turns) / min(two for _, two in turns)


def _seconds(product: Product, repeats: int) -> float:
    started = time.perf_counter()
    for _ in range(repeats):
        product()
    return time.perf_counter() - started


# What a machine remembers


def _cache_file(here: Products) -> Path:
    return user_cache() / f"products-{here.threads}-{here.torch}.json"


def _cached(path: Path, here: Products) -> Products | None:
    """What was measured here before; None if nothing was, or if it is of another machine, or damaged."""
    try:
        found = read_document(path, Products, max_bytes=MAX_BYTES)
    except DataError:
        return None
    return found if found.complete() and found.fits(here) and found.threads == here.threads else None


def _stored(path: Path, measured: Products) -> Products:
    """The same, kept if that can be: a machine that has no place for it measures again the next time."""
    with suppress(OSError, MachineError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as stream:
            json.dump(measured.model_dump(), stream, indent=2)
    return measured


def _uniform(way: Literal["mkl", "onednn"], processor: str) -> Products:
    """One library for everything; oneDNN's with packed weights where several rows share them."""
    ways: Any = {operation: dict.fromkeys(CLASSES, way) for operation in OPERATIONS}
    if way == "onednn":
        ways["inference"] = {one: "onednn" if one.startswith("1 ") else "packed" for one in CLASSES}
    return Products(
        processor=processor, torch=torch.__version__.partition("+")[0], threads=torch.get_num_threads(), ways=ways
    )


# Where torch looks for a kernel

_table: Mapping[Operation, tuple[bool, ...]] | None = None
"""What `using` set, for all threads of this process: a backward pass may have one of its own."""
_library: torch.library.Library | None = None
"""Our registration, which lasts as long as this object."""


@contextmanager
def using(products: Products | None) -> Iterator[None]:
    """Multiply by this table inside; None is torch's own way."""
    global _table
    before, _table = _table, None if products is None else products.table() or None
    if _table is not None:
        _register()
    try:
        yield
    finally:
        _table = before


def _register() -> None:
    """Put our choice before torch's own kernels, which it calls for all that it leaves alone."""
    global _library
    if _library is not None:
        return
    own_mm, own_addmm = (torch.library.get_kernel(f"aten::{name}", "CPU") for name in ("mm", "addmm"))

    def mm(keys: Any, left: Tensor, right: Tensor) -> Tensor:
        if _goes_to_onednn(left, right):
            return _by_onednn(left, right)
        return own_mm.call_boxed(keys, left, right)

    def addmm(keys: Any, added: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        if added.dim() == 1 and beta == alpha == 1 and added.is_contiguous() and _goes_to_onednn(left, right):
            return _by_onednn(left, right, added)
        return own_addmm.call_boxed(keys, added, left, right, beta=beta, alpha=alpha)

    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*[Oo]verriding a previously registered kernel")
        library.impl("mm", mm, "CPU", with_keyset=True)
        library.impl("addmm", addmm, "CPU", with_keyset=True)
    _library = library


def multiply_by(way: Way, left: Tensor, right: Tensor) -> Tensor:
    """left @ right by a library of one's choice."""
    return _by_onednn(left, right) if way == "onednn" else torch.mm(left, right)


class PackedWeight:
    """A weight [outputs, inputs] in the order in which oneDNN reads it for about so many rows; another copy of it."""

    def __init__(self, weight: Tensor, rows: int) -> None:
        self._weight, self._rows = weight.detach(), rows
        self._packed = torch.ops.mkldnn._reorder_linear_weight(self._weight, rows)
        self.num_bytes = self._weight.nbytes

    def multiply(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x [..., inputs] times the weight, which no gradient flows through."""
        if x.numel() == x.shape[-1] and self._rows > 1:  # a single row reads the weight once, in any order
            return F.linear(x, self._weight, bias)
        found: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self._packed, bias, "none", [], "")
        return found


class PlainWeight:
    """A weight as it is, for products of about so many rows that the table leaves to oneDNN: they go there straight,
    while a model that writes has some fifty for every token."""

    num_bytes = 0

    def __init__(self, weight: Tensor, rows: int) -> None:
        self._weight, self._rows = weight.detach(), bisect_right(FIRST_ROWS, rows)

    def multiply(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """x [..., inputs] times the weight, which no gradient flows through."""
        if bisect_right(FIRST_ROWS, x.numel() // x.shape[-1]) != self._rows:  # such as a prompt
            return F.linear(x, self._weight, bias)
        found: Tensor = torch.ops.mkldnn._linear_pointwise.default(x, self._weight, bias, "none", [], "")
        return found


def pack(weight: Tensor, rows: int) -> PackedWeight | PlainWeight | None:
    """The weight as products of so many rows with it are fastest; None if that is torch's own way."""
    in_float32 = weight.dtype is torch.float32 and not torch.is_autocast_enabled(weight.device.type)
    if _table is None or not in_float32 or rows * weight.numel() < SMALLEST_KEPT:
        return None
    for operation, kind in (("inference", PackedWeight), ("forward", PlainWeight)):
        chosen = _table.get(cast(Operation, operation))
        if chosen is not None and chosen[_class_of(rows, *weight.shape)]:
            return kind(weight, rows)
    return None


def _class_of(rows: int, outputs: int, inputs: int) -> int:
    """The place in CLASSES."""
    shape = 2 if outputs >= HEAD * inputs else int(outputs < inputs)  # in the order of SHAPES
    return len(SHAPES) * (bisect_right(FIRST_ROWS, rows) - 1) + shape


def _goes_to_onednn(left: Tensor, right: Tensor) -> bool:
    if _table is None or left.dtype is not torch.float32 or right.dtype is not left.dtype:
        return False
    (first, inner), last = left.shape, right.shape[1]
    if first * inner * last < SMALLEST_PRODUCT:
        return False
    operation: Operation
    if _lies_in_rows(left) and _lies_in_rows(right):
        operation, kind = "input_gradient", _class_of(first, inner, last)
    elif _lies_in_rows(left) and _lies_in_rows(right.T):
        operation, kind = "forward", _class_of(first, last, inner)
    elif _lies_in_rows(left.T) and _lies_in_rows(right):
        operation, kind = "weight_gradient", _class_of(inner, first, last)
    else:
        return False
    chosen = _table.get(operation)
    return chosen is not None and chosen[kind]


def _lies_in_rows(matrix: Tensor) -> bool:
    return matrix.stride(1) == 1 and matrix.stride(0) >= matrix.shape[1]


def _by_onednn(left: Tensor, right: Tensor, added: Tensor | None = None) -> Tensor:
    found: Tensor = torch.ops.mkldnn._linear_pointwise.default(left, right.T, added, "none", [], "")
    return found
