"""The parts of a step: optimizer groups, loss scale, culprits, compilation and recomputation."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from paddock.checkpoint.description import LossScaleState
from paddock.devices import adapter_named
from paddock.errors import ConfigError, MachineError
from paddock.jobs import doctor
from paddock.models.gpt2.config import GPT2Config
from paddock.models.gpt2.model import GPT2
from paddock.models.layers import basic
from paddock.models.layers.initialization import initialize
from paddock.parallel import gradient_norm as gradient_norm_module
from paddock.parallel.config import Layout, RecomputeMode
from paddock.parallel.gradient_norm import scale_gradients, squared_norm
from paddock.parallel.mesh import Mesh
from paddock.parallel.pipeline.stage import Stage
from paddock.parallel.seeds import seed_step
from paddock.parallel.world import World
from paddock.training import compilation
from paddock.training.compilation import compile_units
from paddock.training.config import OptimizerConfig, PrecisionConfig
from paddock.training.numerics import explain, first_bad_module
from paddock.training.optimization import optimizer as optimizer_module
from paddock.training.optimization.optimizer import build_optimizer
from paddock.training.precision import LossScale, autocast_for

CPU = adapter_named("cpu")


def small(dropout: float = 0.0) -> GPT2:
    model = GPT2(GPT2Config(layers=2, hidden=32, heads=2, vocab=50, context=16, dropout=dropout))
    initialize(model, seed=0)
    return model.train()


def tokens() -> torch.Tensor:
    return torch.randint(0, 50, (2, 16), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
def test_norms_and_biases_do_not_decay(name: str) -> None:
    model = small()
    optimizer = build_optimizer(list(model.parameters()), OptimizerConfig(name=name, lr=0.1, weight_decay=0.5))
    decays = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    for parameter_name, parameter in model.named_parameters():
        plain = parameter_name.endswith("bias") or "norm" in parameter_name
        assert decays[id(parameter)] == (0.0 if plain else 0.5), parameter_name


def test_decoupled_decay_of_adamw() -> None:
    """With a zero gradient AdamW only shrinks the matrices; Adam's decay goes through its averages instead."""
    for name, shrinks in (("adamw", True), ("adam", False)):
        model = nn.Linear(3, 3)
        before = model.weight.detach().clone()
        optimizer = build_optimizer(list(model.parameters()), OptimizerConfig(name=name, lr=0.1, weight_decay=0.5))
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        assert torch.allclose(model.weight, before * 0.95) is shrinks


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd"])
def test_the_adapter_says_whether_the_optimizer_is_fused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = OptimizerConfig(name=name, lr=0.1, weight_decay=0.5)
    weights = []
    for fused in (True, False):
        adapter = dataclasses.replace(CPU, fused_optimizer=fused)
        monkeypatch.setattr(optimizer_module, "adapter_of", lambda device, adapter=adapter: adapter)
        torch.manual_seed(0)
        model = nn.Linear(3, 3)
        optimizer = build_optimizer(list(model.parameters()), config)
        assert all(group["fused"] is fused for group in optimizer.param_groups)
        for _ in range(2):
            model(torch.ones(2, 3)).square().sum().backward()
            optimizer.step()
        weights.append(model.weight.detach())
    assert torch.allclose(*weights, rtol=1e-5)


@pytest.mark.parametrize(("has_double", "dtype"), [(True, torch.float64), (False, torch.float32)])
def test_only_devices_that_have_double_precision_sum_in_it(
    has_double: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = dataclasses.replace(CPU, float64=has_double, computes_on_host=False)
    summed: list[torch.dtype] = []
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda tensor: summed.append(tensor.dtype))
    for module in (gradient_norm_module, basic):
        monkeypatch.setattr(module, "adapter_of", lambda device: adapter)
    layer = nn.Linear(2, 1)
    layer.weight.grad, layer.bias.grad = torch.tensor([[2.0, 3.0]]), torch.tensor([6.0])
    mesh = Mesh(Layout(1, 1, 1), 0, cast(DeviceMesh, object()))  # there are others, who add nothing
    squares = squared_norm(list(layer.parameters()), mesh, torch.device("cpu"))
    assert squares.dtype == dtype
    world = World(0, 2, adapter, torch.device("cpu"))
    assert world.read_sums([torch.tensor(0.5), squares]) == [0.5, pytest.approx(49.0)]
    assert summed == [dtype]
    assert basic.widest(torch.ones(1, dtype=torch.bfloat16)).dtype == dtype


def test_norm_and_scaling_of_gradients() -> None:
    layer = nn.Linear(2, 1)
    layer.weight.grad, layer.bias.grad = torch.tensor([[2.0, 3.0]]), torch.tensor([6.0])
    assert float(
        squared_norm(list(layer.parameters()), Mesh(Layout(1, 1, 1), 0, None), torch.device("cpu"))
    ) == pytest.approx(49.0)
    scale_gradients(layer.parameters(), 0.5)
    assert layer.weight.grad.tolist() == [[1.0, 1.5]] and layer.bias.grad.tolist() == [3.0]


def test_dynamic_loss_scale() -> None:
    scale = LossScale(PrecisionConfig(compute="float16", initial_scale=8.0, scale_window=2), CPU)
    scale.overflowed()
    assert (scale.value, scale.skipped) == (4.0, 1)
    scale.succeeded()
    assert scale.value == 4.0
    scale.succeeded()
    assert scale.value == 8.0
    state = scale.state()
    other = LossScale(PrecisionConfig(compute="float16", initial_scale=1024.0, scale_window=2), CPU)
    other.restore(LossScaleState(**state))
    assert (other.value, other.skipped) == (8.0, 1)
    for _ in range(3):
        other.overflowed()
    assert other.value == 1.0 and not other.can_skip


def test_static_and_absent_loss_scales() -> None:
    static = LossScale(PrecisionConfig(compute="float16", loss_scale=128.0), CPU)
    static.succeeded()
    assert static.value == 128.0 and not static.can_skip
    assert LossScale(PrecisionConfig(compute="bfloat16"), CPU).value == 1.0


def test_a_precision_that_a_device_lacks() -> None:
    poor = dataclasses.replace(CPU, autocast=("float16",))
    with pytest.raises(ConfigError, match=r"precision\.compute = bfloat16(.|\n)*float32, float16"):
        autocast_for(PrecisionConfig(compute="bfloat16"), poor)


def test_the_first_bad_module_is_named() -> None:
    model = small()
    model.layers["1"].feed_forward.output.weight.data[0, 0] = torch.inf  # type: ignore[union-attr]
    run = lambda: model(tokens(), labels=tokens())  # noqa: E731
    assert first_bad_module([model], run) == "layers.1.feed_forward.output"
    assert "weights themselves are not finite: layers.1.feed_forward.output.weight" in explain([model], run)
    model = small()
    model.layers["0"].attention.output.weight.data *= 1e38  # type: ignore[union-attr]
    model.layers["0"].attention.output.weight.data *= 1e3  # type: ignore[union-attr]
    assert "not finite: layers.0" in explain([model], run).replace("weights themselves are ", "")
    healthy = small()
    healthy.layers["1"].attention.qkv.weight.grad = torch.full((96, 32), torch.nan)  # type: ignore[union-attr]
    assert "from the output side: layers.1.attention.qkv.weight" in explain([healthy], lambda: healthy(tokens()))


def gradients(model: GPT2, recompute: RecomputeMode = "none") -> tuple[float, list[torch.Tensor]]:
    seed_step(0, 3, 0)
    loss = Stage(model, model.units(), None, None, recompute=recompute)(batch={"tokens": tokens(), "labels": tokens()})
    loss.backward()
    return float(loss.detach()), [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_recomputing_changes_nothing_but_memory(dropout: float) -> None:
    plain, forgetful = small(dropout), small(dropout)
    kept: list[int] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.numel())
        return tensor

    sizes = []
    results = []
    modes: list[tuple[GPT2, RecomputeMode]] = [(plain, "none"), (forgetful, "full")]
    for model, mode in modes:
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            results.append(gradients(model, mode))
        sizes.append(sum(kept))
    (loss, wanted), (other_loss, found) = results
    assert loss == other_loss
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(wanted, found, strict=True))
    assert sizes[1] < sizes[0] / 2
    names = [name for name, _ in forgetful.named_parameters()]
    assert names == [name for name, _ in plain.named_parameters()]


def test_compiling_each_block_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")  # where torch's compiler refuses what it elsewhere makes of itself
    if compilation.find_compiler(CPU) is None:
        pytest.skip("there is no C++ compiler")
    plain, compiled = small(dropout=0.3), small(dropout=0.3)
    assert compile_units(compiled.unit_modules(), "on", CPU, num_parameters=1)
    with import_module("torch._inductor.config").patch(fx_graph_cache=False):  # else it may compile nothing at all
        (loss, wanted), (other_loss, found) = gradients(plain), gradients(compiled)
    assert loss == pytest.approx(other_loss, rel=1e-6)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(wanted, found, strict=True))
    assert list(compiled.state_dict()) == list(plain.state_dict())


def test_the_compiler_is_the_one_that_torch_calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert compilation.find_compiler(CPU) is None
    (tmp_path / "ours").touch(mode=0o755)
    monkeypatch.setenv("CXX", f"{tmp_path / 'ours'} -O1")
    assert compilation.find_compiler(CPU) == str(tmp_path / "ours")
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert compilation.find_compiler(CPU) is None


@pytest.mark.parametrize("command", [" ", "'", "nope", "nope -O1"])
def test_what_is_no_compiler_is_named(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", command)
    with pytest.raises(MachineError) as caught:
        compile_units([], "on", CPU, 10**9)
    assert "CXX" in caught.value.what and repr(command) in caught.value.what
    assert "++" not in str(caught.value).replace("C++", "")
    assert "unset it" in caught.value.fix
    assert (doctor._compiler() or {})["version"] is None


def test_operations_that_stay_whole() -> None:
    from torch._inductor.decomposition import select_decomp_table

    theirs, ours = select_decomp_table(), compilation.cpu_decompositions()
    whole = {str(operation) for operation in set(theirs) - set(ours)}
    assert whole >= {f"aten.{name}.default" for name in compilation.LEFT_WHOLE}
    assert torch.ops.aten.silu.default in ours


def test_when_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "find_compiler", lambda _: "/usr/bin/some-compiler")
    assert not compile_units([], "off", CPU, 10**9)
    assert not compile_units([], "auto", CPU, 10**9)  # it would win nothing
    assert compile_units([], "on", CPU, 1)
    accelerator = adapter_named("cuda")
    assert not compile_units([], "auto", accelerator, 10**6)  # too small to be worth it
    assert compile_units([], "auto", accelerator, 10**9)
    monkeypatch.setattr(compilation, "find_compiler", lambda _: None)
    assert not compile_units([], "auto", accelerator, 10**9)
    with pytest.raises(MachineError, match="needs a C"):
        compile_units([], "on", CPU, 10**9)


def test_dropout_is_a_function_of_seed_step_and_rank() -> None:
    def draw(seed: int, step: int, rank: int) -> list[float]:
        seed_step(seed, step, rank)
        return torch.rand(3).tolist()

    assert draw(1, 2, 3) == draw(1, 2, 3)
    assert len({tuple(draw(*key)) for key in [(1, 2, 3), (0, 2, 3), (1, 0, 3), (1, 2, 0)]}) == 4
