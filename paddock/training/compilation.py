"""Whether and how a model is compiled: each block by itself, so that one compilation serves all layers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Literal

from torch import Tensor, nn, ops
from torch.fx import GraphModule

from paddock.devices import DeviceAdapter
from paddock.devices.compiler import host_compiler
from paddock.errors import MachineError

SMALLEST = 50_000_000
"""Parameters from which the seconds of compiling are worth it, for `auto` on accelerators.

On a CPU they never are: matrix products take five sixths of a step, and the layers' own kernels leave a compiler
nothing to win."""

CPU_OPTIONS: dict[str, Any] = {
    "fallback_random": True,  # the seeds of dropout masks that the block draws when it is not compiled
    # A tenth of the time, for steps that are as fast without (GPT-2): patterns, which are prepared even if not sought.
    "pattern_matcher": False,
    "use_joint_graph_passes": False,
}

LEFT_WHOLE = ("native_layer_norm", "native_layer_norm_backward", "gelu", "gelu_backward")
"""What torch computes on a CPU as fast as any compiled code: its own kernels spare a sixth of the compiling."""

TRUSTED_GCC = 12
"""From this version on, g++ knows every vector instruction that torch's compiler may ask for."""


def compile_units(
    units: Sequence[nn.Module], mode: Literal["auto", "on", "off"], adapter: DeviceAdapter, num_parameters: int
) -> bool:
    """Compile each unit in place, as `mode` says; returns whether it did. The work happens in the first step."""
    if mode == "off" or (mode == "auto" and (adapter.computes_on_host or num_parameters < SMALLEST)):
        return False
    compiler = find_compiler(adapter)
    if compiler is None:
        if mode == "auto":
            return False
        raise MachineError(
            f"train.compile = on: {why_not_compiled(adapter)}",
            fix="set --train.compile off" + (f", or {host_compiler().remedy}" if adapter.computes_on_host else ""),
        )
    if _knows_all_instructions(compiler):  # spares the trial builds of every instruction set, five seconds
        import_module("torch._inductor.config").cpp.vec_isa_ok = True
    backend: Any = compile_for_cpu if adapter.computes_on_host else "inductor"
    for unit in units:
        unit.compile(backend=backend)
    return True


def compile_for_cpu(graph: GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
    """torch's compiler with our options, given fewer operations to take apart: a backend of `torch.compile`."""
    _call_kernels_of_whole_operations()
    compile_fx = import_module("torch._inductor.compile_fx").compile_fx
    return compile_fx(graph, inputs, config_patches=CPU_OPTIONS, decompositions=cpu_decompositions())


def cpu_decompositions() -> dict[Any, Callable[..., Any]]:
    """torch's rules for taking operations apart, but for those that stay whole."""
    with import_module("torch._inductor.config").patch(CPU_OPTIONS):  # the rules for random numbers depend on them
        rules = import_module("torch._inductor.decomposition").select_decomp_table()
    whole = {overload for operation in _whole_operations() for overload in operation.op_overloads()}
    return {operation: rule for operation, rule in rules.items() if operation not in whole}


def _call_kernels_of_whole_operations() -> None:
    """Tell torch's compiler that they are meant to be calls: where it has to find out, it refuses if CI is set."""
    lowering = import_module("torch._inductor.lowering")
    for operation in _whole_operations():
        lowering.make_fallback(operation, lowering.require_contiguous, warn=False, override_decomp=True)


def _whole_operations() -> list[Any]:
    return [getattr(ops.aten, name) for name in LEFT_WHOLE]


def why_not_compiled(adapter: DeviceAdapter) -> str:
    """What is missing where `find_compiler` finds nothing."""
    if adapter.computes_on_host:
        return f"it needs a C++ compiler on a CPU, and {host_compiler().problem}"
    return f"torch's compiler makes no code for {adapter.name}: its plug-in brings none"


def find_compiler(adapter: DeviceAdapter) -> str | None:
    """What turns compiled graphs into machine code: on a CPU the C++ compiler that torch calls, else what torch or the
    vendor's plug-in has registered for the device, by its name; None where there is none."""
    if not adapter.computes_on_host:
        common = import_module("torch._inductor.codegen.common")
        common.init_backend_registration()
        return adapter.name if common.get_scheduling_for_device(adapter.torch_type) is not None else None
    return host_compiler().executable


def _knows_all_instructions(compiler: str) -> bool:
    if not compiler.endswith("g++") or compiler.endswith("clang++"):
        return False
    version = subprocess.run([compiler, "-dumpversion"], capture_output=True, text=True).stdout.split(".")[0]
    return version.strip().isdigit() and int(version) >= TRUSTED_GCC
