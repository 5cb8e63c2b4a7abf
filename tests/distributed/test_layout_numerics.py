"""Dropout, loss scales, bad numbers and the parts of the engine, over several processes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from paddock.alignment.trace import Trace
from paddock.config.layouts import with_layout
from paddock.errors import NumericsError
from paddock.models.config import IGNORED
from paddock.models.layers import blocked_attention, dropout
from paddock.models.layers.cross_entropy import linear_cross_entropy
from paddock.parallel.config import Layout
from paddock.parallel.engine import Engine
from paddock.parallel.gradient_norm import squared_norm
from paddock.parallel.mesh import Mesh
from paddock.parallel.placement import local
from paddock.parallel.vocabulary import VocabularyPartition
from paddock.testing.layouts import small_recipe, this_world, trace_all, trace_recipe
from paddock.testing.pool import ProcessPool, WorkFailed

PoolOf = Callable[[int], ProcessPool]


def recipe_in(layout: str, **sections: Any) -> dict[str, Any]:
    return with_layout(small_recipe(**sections), layout).to_dict()


def named(engine: Engine) -> dict[str, nn.Parameter]:
    return dict(pair for model in engine.models for pair in model.named_parameters())


def watch_dropout(rank: int, values: dict[str, Any]) -> tuple[list[int], list[int], list[Tensor]]:
    """The seeds of masks over whole and over shared activations, and what each block puts out."""
    whole: list[int] = []
    shared: list[int] = []
    outputs: list[Tensor] = []
    draw = dropout.draw_seed

    def record(shard: int | None = None) -> Tensor:
        seed = draw(shard)
        (whole if shard is None else shared).append(int(seed))
        return seed

    def watch(engine: Engine) -> None:
        for block in engine.models[0].unit_modules():  # type: ignore[operator]
            block.register_forward_hook(lambda module, inputs, output: outputs.append(local(output.detach()).clone()))

    for module in (dropout, blocked_attention):
        module.draw_seed = record  # type: ignore[attr-defined]
    try:
        trace_recipe(values, watch)
    finally:
        for module in (dropout, blocked_attention):
            module.draw_seed = draw  # type: ignore[attr-defined]
    return whole, shared, outputs


def test_tensor_processes_drop_the_same_of_what_they_share(pool_of: PoolOf) -> None:
    values = recipe_in("tp2", model={"dropout": 0.3}, train={"steps": 1})
    (whole, shared, outputs), (other_whole, other_shared, other_outputs) = pool_of(2).run(watch_dropout, values)
    assert whole and whole == other_whole
    assert len(shared) == len(other_shared) > 0 and not set(shared) & set(other_shared)
    assert all(torch.equal(here, there) for here, there in zip(outputs, other_outputs, strict=True))


def test_with_shared_sequences_blocks_drop_differently(pool_of: PoolOf) -> None:
    values = recipe_in("tp2,sequence=true", model={"dropout": 0.3}, train={"steps": 1})
    (whole, shared, _), (other_whole, other_shared, _) = pool_of(2).run(watch_dropout, values)
    assert whole == other_whole  # the embedding's, before the sequence is cut
    assert not set(shared) & set(other_shared)
    assert len(shared) == 3 * 8 * 4  # attention and both additions, of eight layers, in four micro-batches


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_masks_of_neighbouring_seeds_are_independent(rate: float) -> None:
    count = 200_000
    seeds = (torch.tensor(123456789), torch.tensor(123456790))
    first, second = (dropout.random_mask(seed, [count], rate).double() for seed in seeds)
    both = float((first * second).mean())
    expected = (1 - rate) ** 2
    assert abs(both - expected) < 5 * math.sqrt(expected * (1 - expected) / count)


@pytest.mark.parametrize("layout", ["dp2,tp2", "dp2,pp2,shard=optimizer", "tp2,pp2,schedule=zbv"])
def test_an_overflow_is_skipped_by_all(pool_of: PoolOf, layout: str) -> None:
    precision = {"compute": "float16", "initial_scale": 2.0**22}
    recipe = small_recipe(precision=precision, train={"steps": 10})
    ((alone,),) = pool_of(1).run(trace_all, [recipe.to_dict()])
    ranks = [trace for (trace,) in pool_of(4).run(trace_all, [with_layout(recipe, layout).to_dict()])]
    assert all(trace.scales == ranks[0].scales and trace.losses == ranks[0].losses for trace in ranks)
    assert ranks[0].scales[0] == 2.0**21 and not math.isfinite(ranks[0].norms[0])
    assert math.isfinite(ranks[0].norms[-1])
    assert ranks[0].losses == pytest.approx(alone.losses, rel=5e-3)


def test_bfloat16_in_a_layout(pool_of: PoolOf) -> None:
    recipe = small_recipe(precision={"compute": "bfloat16"}, train={"steps": 3})
    ((alone,),) = pool_of(1).run(trace_all, [recipe.to_dict()])
    layouts = [with_layout(recipe, name).to_dict() for name in ("dp2,tp2,shard=parameters", "tp2,pp2,sequence=true")]
    for trace in pool_of(4).run(trace_all, layouts)[0]:
        assert trace.losses == pytest.approx(alone.losses, rel=5e-3)
        assert trace.losses != alone.losses


def trace_with_bad_gradient(rank: int, values: dict[str, Any], name: str, victim: int, times: int) -> Trace:
    """The gradient of one parameter is infinite on one process, in its first `times` backward passes."""
    passes = iter(range(times))

    def spoil(gradient: Tensor) -> Tensor:
        return gradient if next(passes, None) is None else gradient * math.inf

    def break_it(engine: Engine) -> None:
        if dist.get_rank() == victim:
            named(engine)[name].register_hook(spoil)

    return trace_recipe(values, break_it)


def test_a_bad_gradient_on_one_process_stops_all(pool_of: PoolOf) -> None:
    values = recipe_in("tp2,pp2", train={"steps": 2})
    name = "layers.6.attention.output.weight"
    with pytest.raises(WorkFailed) as failed:
        pool_of(4).run(trace_with_bad_gradient, values, name, 3, 10**6)
    errors = failed.value.errors
    assert sorted(errors) == [0, 1, 2, 3]
    for error in errors.values():
        assert isinstance(error, NumericsError) and error.exit_code == 5
        assert error.what.startswith("step 1: loss 4.7")
        assert name in error.why


def test_a_bad_gradient_on_one_process_is_skipped_by_all(pool_of: PoolOf) -> None:
    precision = {"compute": "float16", "initial_scale": 1024.0}
    values = recipe_in("tp2,pp2", precision=precision, train={"steps": 2})
    ranks = pool_of(4).run(trace_with_bad_gradient, values, "layers.6.attention.output.weight", 3, 1)
    assert [trace.scales for trace in ranks] == [[512.0, 512.0]] * 4


def trace_with_bad_weight(rank: int, values: dict[str, Any]) -> Trace:
    def break_it(engine: Engine) -> None:
        if dist.get_rank() == 1:
            with torch.no_grad():
                local(named(engine)["layers.2.feed_forward.input.weight"]).fill_(math.nan)

    return trace_recipe(values, break_it)


def test_a_bad_weight_on_one_process_is_named(pool_of: PoolOf) -> None:
    with pytest.raises(WorkFailed) as failed:
        pool_of(4).run(trace_with_bad_weight, recipe_in("tp2,pp2", train={"steps": 1}))
    whys = {error.why for error in failed.value.errors.values() if isinstance(error, NumericsError)}
    assert whys == {"the weights themselves are not finite: layers.2.feed_forward.input.weight"}


def train_and_compare_ends(rank: int, values: dict[str, Any]) -> list[Tensor]:
    """The copies of the tied weight that are here, after training."""
    engines: list[Engine] = []
    trace_recipe(values, engines.append)
    parts = [dict(model.named_parameters()) for model in engines[0].models]
    return [local(part["embedding.token.weight"].data).clone() for part in parts if "embedding.token.weight" in part]


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zbv"])
def test_tied_copies_stay_equal(pool_of: PoolOf, schedule: str) -> None:
    values = recipe_in(f"tp2,pp2,schedule={schedule}", train={"steps": 3})
    by_rank = pool_of(4).run(train_and_compare_ends, values)
    for tensor_rank in range(2):
        copies = by_rank[tensor_rank] + by_rank[2 + tensor_rank]
        assert len(copies) == 2
        assert torch.equal(*copies)
    assert not torch.equal(by_rank[0][0][:10], by_rank[1][0][:10])  # each tensor process has rows of its own


def norms_two_ways(rank: int, values: dict[str, Any]) -> tuple[float, float]:
    """The norm as the engine has it, and from gradients that were gathered whole."""
    engines: list[Engine] = []
    backward = Engine.forward_backward
    found: list[tuple[float, float]] = []

    def look(engine: Engine, *arguments: Any) -> Tensor:
        total = backward(engine, *arguments)
        gradients = [parameter.grad for parameter in engine.trained]
        whole = [one.full_tensor() if isinstance(one, DTensor) else one for one in gradients if one is not None]
        (squares,) = this_world().read_sums([engine.squared_norm()])
        found.append((math.sqrt(squares), math.sqrt(sum(float(one.double().square().sum()) for one in whole))))
        return total

    Engine.forward_backward = look  # type: ignore[method-assign]
    try:
        trace_recipe(values, engines.append)
    finally:
        Engine.forward_backward = backward  # type: ignore[method-assign]
    return found[0]


@pytest.mark.parametrize("shard", ["none", "parameters"])
def test_the_norm_over_mixed_meshes(pool_of: PoolOf, shard: str) -> None:
    values = recipe_in(f"dp2,tp2,shard={shard}", train={"steps": 1})
    for norm, gathered in pool_of(4).run(norms_two_ways, values):
        assert norm == pytest.approx(gathered, rel=1e-6)


def test_the_norm_of_a_large_tensor_is_exact() -> None:
    weight = nn.Parameter(torch.zeros(3_000_001))
    weight.grad = torch.randn(3_000_001, generator=torch.Generator().manual_seed(0)) * 1e-3
    norm = float(squared_norm([weight], Mesh(Layout(1, 1, 1), 0, None), weight.device).sqrt())
    assert norm == pytest.approx(float(weight.grad.double().norm()), rel=1e-7)


def cross_entropy_in_parts(rank: int) -> tuple[float, Tensor, Tensor]:
    hidden, weight, labels = head_inputs()
    rows = -(-len(weight) // dist.get_world_size())
    part = weight.detach()[rank * rows : (rank + 1) * rows].clone().requires_grad_()
    loss = linear_cross_entropy(hidden, part, labels, VocabularyPartition(len(weight), rank, dist.group.WORLD))  # type: ignore[arg-type]
    loss.backward()
    assert hidden.grad is not None and part.grad is not None
    return float(loss.detach()), hidden.grad, part.grad


def head_inputs() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(3, 7, 16, generator=generator).requires_grad_()
    weight = torch.randn(101, 16, generator=generator).requires_grad_()
    labels = torch.randint(0, 101, (3, 7), generator=generator)
    labels[0, :3] = IGNORED
    labels[2, 6] = 100  # in the last part, which is smaller
    return hidden, weight, labels


def test_a_vocabulary_in_uneven_parts(pool_of: PoolOf) -> None:
    hidden, weight, labels = head_inputs()
    expected = nn.functional.cross_entropy(
        (hidden @ weight.T).flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    expected.backward()
    results = pool_of(4).run(cross_entropy_in_parts)
    for loss, hidden_gradient, _ in results:
        assert loss == pytest.approx(float(expected.detach()), rel=1e-6)
        torch.testing.assert_close(hidden_gradient, hidden.grad)
    torch.testing.assert_close(torch.cat([part for _, _, part in results]), weight.grad)
