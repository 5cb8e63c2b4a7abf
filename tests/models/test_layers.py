"""Dropout from a fast generator and attention in blocks: the same as the textbook's."""

from __future__ import annotations

import pytest
import torch

from paddock.models.layers import blocked_attention
from paddock.models.layers.attention import attend
from paddock.models.layers.dropout import Dropout, dropout, masks_of


def masks(count: int, size: int, rate: float) -> torch.Tensor:
    """Whether each element was dropped, in `count` draws."""
    torch.manual_seed(0)
    return torch.stack([dropout(torch.ones(size), rate, True) == 0 for _ in range(count)]).float()


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
def test_dropout_keeps_the_mean_and_drops_the_rate(rate: float) -> None:
    torch.manual_seed(1)
    dropped = dropout(torch.full((1_000_000,), 2.0), rate, True)
    assert float((dropped == 0).float().mean()) == pytest.approx(rate, abs=4 * (rate * (1 - rate) / 1e6) ** 0.5)
    kept = dropped[dropped != 0]
    assert torch.allclose(kept, torch.tensor(2.0 / (1 - rate)), rtol=1e-4)  # the rate is met to 1 in 65536


def test_masks_are_independent_of_each_other_and_of_the_position() -> None:
    drawn, size = masks(40, 100_000, 0.1), 100_000
    noise = 5 / size**0.5
    between = torch.corrcoef(drawn) - torch.eye(40)
    assert float(between.abs().max()) < noise
    centred = (drawn - 0.1) / 0.3
    for lag in (1, 2, 3, 8, 64, 768, 1024):
        assert float((centred[:, :-lag] * centred[:, lag:]).mean(1).abs().max()) < noise
    frequency = drawn.mean(0)  # every position is dropped as often as any other
    assert float(frequency.std()) == pytest.approx((0.09 / 40) ** 0.5, rel=0.02)


def test_dropout_follows_the_generator_and_leaves_evaluation_alone() -> None:
    x = torch.randn(3, 5)
    torch.manual_seed(7)
    first = dropout(x, 0.5, True)
    torch.manual_seed(7)
    assert torch.equal(first, dropout(x, 0.5, True))
    assert not torch.equal(first, dropout(x, 0.5, True))
    assert dropout(x, 0.5, False) is x and dropout(x, 0.0, True) is x


@pytest.fixture
def generator_of_the_host(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """The CPU as an accelerator whose generator torch can fork, which is the host's own here."""
    monkeypatch.setattr(torch.cpu, "get_rng_state", lambda device: torch.get_rng_state(), raising=False)
    monkeypatch.setattr(torch.cpu, "set_rng_state", lambda state, device: torch.set_rng_state(state), raising=False)
    return torch.device("cpu")


def test_every_mask_of_a_shard_is_another_and_shards_stay_in_step(generator_of_the_host: torch.device) -> None:
    of_shards, of_all = [], []
    for shard in (0, 1):
        torch.manual_seed(3)
        for _ in range(4):  # layers, with nothing between them that draws on the host
            with masks_of(shard, generator_of_the_host):
                of_shards.append(torch.rand(8))
        of_all.append(torch.rand(8))
    assert len({tuple(mask.tolist()) for mask in of_shards}) == 8
    assert torch.equal(*of_all)


def test_layers_are_compiled_in_one_piece() -> None:
    """They ask which device they are on; the compiler must follow."""

    def layers(x: torch.Tensor) -> torch.Tensor:
        return dropout(
            attend(x, x, x, causal=True, dropout=Dropout(0.3)) + attend(x, x, x, dropout=Dropout(0.3)), 0.2, True
        )

    x = torch.randn(2, 2, 8, 4)
    results = []
    for computed in (layers, torch.compile(layers, fullgraph=True, backend="eager")):
        torch.manual_seed(0)
        results.append(computed(x))
    assert torch.allclose(*results)


def as_textbook(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, segments: torch.Tensor | None, kept: torch.Tensor
) -> torch.Tensor:
    """Attention with all weights written out; `kept` is what dropout multiplies them by."""
    time = query.shape[2]
    hidden = torch.ones(time, time, dtype=torch.bool).triu(1).expand(len(query), 1, time, time)
    if segments is not None:
        hidden = hidden | (segments[:, None, :, None] != segments[:, None, None, :])
    scores = (query @ key.mT / query.shape[-1] ** 0.5).masked_fill(hidden, -torch.inf)
    return (scores.softmax(-1) * kept) @ value


def attended(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    rate: float = 0.5,
    causal: bool = False,
    cross: bool = False,
    segments: torch.Tensor | None = None,
    lengths: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The op itself: what is gathered, the weights, and which of them stay."""
    seed, scale = torch.tensor(5), query.shape[-1] ** -0.5
    return blocked_attention._attend(query, key, value, bias, seed, rate, scale, causal, cross, segments, lengths)


@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("time", [1, 5, 127, 128, 129, 300])
def test_blocked_attention_is_attention(time: int, documents: bool) -> None:
    """The mask that the op reports, applied to the textbook's weights, gives the same values and gradients."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, time, 8, requires_grad=True) for _ in range(3))
    segments = (torch.arange(time) // 50).expand(2, time) if documents else None
    ours, _, mask = attended(query, key, value, causal=True, segments=segments)
    kept = torch.zeros(2, 3, time, time)
    for start, end, _, place in blocked_attention._blocks(time, time, 3, True):
        kept[:, :, start:end, :end] = 2.0 * mask[:, place].view(2, 3, end - start, end)
    expected = as_textbook(query, key, value, segments, kept)
    assert torch.allclose(ours, expected, atol=1e-5)
    direction = torch.randn_like(ours)
    for a, b in zip(
        torch.autograd.grad((ours * direction).sum(), (query, key, value)),
        torch.autograd.grad((expected * direction).sum(), (query, key, value)),
        strict=True,
    ):
        assert torch.allclose(a, b, atol=1e-4)


@pytest.mark.parametrize("lengths", [None, [300, 1], [129, 256]])
def test_blocked_attention_in_both_directions_is_attention(lengths: list[int] | None) -> None:
    """As above; and of what is padding nothing is seen, gathered or learned."""
    torch.manual_seed(0)
    time, ends = 300, lengths or [300, 300]
    query, key, value = (torch.randn(2, 3, time, 8, requires_grad=True) for _ in range(3))
    places = None if lengths is None else torch.tensor(lengths)
    ours, _, mask = attended(query, key, value, lengths=places)
    direction = torch.randn_like(ours)
    gradients = torch.autograd.grad((ours * direction).sum(), (query, key, value))
    for sample, end in enumerate(ends):
        kept = torch.zeros(3, end, end)
        for start, stop, seen, place in blocked_attention._blocks(end, end, 3, False):
            kept[:, start:stop] = 2.0 * mask[sample, place].view(3, stop - start, seen)
        parts = [tensor[sample, :, :end].detach().requires_grad_() for tensor in (query, key, value)]
        expected = ((parts[0] @ parts[1].mT / 8**0.5).softmax(-1) * kept) @ parts[2]
        assert torch.allclose(ours[sample, :, :end], expected, atol=1e-5)
        assert not bool(ours[sample, :, end:].any())
        wanted = torch.autograd.grad((expected * direction[sample, :, :end]).sum(), parts)
        for gradient, like in zip(gradients, wanted, strict=True):
            assert torch.allclose(gradient[sample, :, :end], like, atol=1e-4)
            assert not bool(gradient[sample, :, end:].any())


@pytest.mark.parametrize("rate", [0.0, 0.5])
@pytest.mark.parametrize(("queries", "keys", "causal"), [(300, 300, True), (300, 300, False), (140, 260, False)])
def test_a_bias_that_learns(queries: int, keys: int, causal: bool, rate: float) -> None:
    """Added to the scores of every sample; with keys of another sequence too, whose padding nobody sees."""
    torch.manual_seed(0)
    cross = queries != keys
    query = torch.randn(2, 3, queries, 8, requires_grad=True)
    key, value = (torch.randn(2, 3, keys, 8, requires_grad=True) for _ in range(2))
    bias = torch.randn(3, queries, keys, requires_grad=True)
    ends = [keys, 37] if cross else [keys, keys]
    lengths = torch.tensor(ends) if cross else None
    ours, _, mask = attended(query, key, value, rate=rate, causal=causal, cross=cross, lengths=lengths, bias=bias)
    expected = []
    for sample, end in enumerate(ends):
        kept = torch.zeros(3, queries, end)
        for start, stop, seen, place in blocked_attention._blocks(queries, end, 3, causal):
            dropped = mask[sample, place] / (1.0 - rate) if rate else torch.ones(3 * (stop - start) * seen)
            kept[:, start:stop, :seen] = dropped.view(3, stop - start, seen)
        scores = query[sample] @ key[sample, :, :end].mT / 8**0.5 + bias[:, :, :end]
        if causal:
            scores = scores.masked_fill(torch.ones(queries, end, dtype=torch.bool).triu(1), -torch.inf)
        expected.append((scores.softmax(-1) * kept) @ value[sample, :, :end])
    assert torch.allclose(ours, torch.stack(expected), atol=1e-5)
    direction, inputs = torch.randn_like(ours), (query, key, value, bias)
    found = torch.autograd.grad((ours * direction).sum(), inputs)
    for a, b in zip(found, torch.autograd.grad((torch.stack(expected) * direction).sum(), inputs), strict=True):
        assert torch.allclose(a, b, atol=1e-4)


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_padding_is_never_seen(rate: float) -> None:
    query, key, value = (torch.randn(2, 3, 20, 8) for _ in range(3))
    lengths = torch.tensor([20, 7])
    torch.manual_seed(1)
    before = attend(query, key, value, dropout=Dropout(rate), lengths=lengths)
    key[1, :, 7:], value[1, :, 7:] = 1e4, 1e4
    torch.manual_seed(1)
    after = attend(query, key, value, dropout=Dropout(rate), lengths=lengths)
    assert torch.equal(before[0], after[0]) and torch.equal(before[1, :, :7], after[1, :, :7])
    assert not torch.allclose(attend(query, key, value)[1, :, :7], before[1, :, :7], atol=1e-2)


def test_attention_stays_inside_a_document() -> None:
    """Documents packed into one sample get what each of them would get alone."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, 9, 4) for _ in range(3))
    segments = torch.tensor([[0, 0, 0, 0, 1, 1, 2, 2, 2]])
    packed = attend(query, key, value, causal=True, segments=segments)
    for part in (slice(0, 4), slice(4, 6), slice(6, 9)):
        alone = attend(query[:, :, part], key[:, :, part], value[:, :, part], causal=True)
        assert torch.allclose(packed[:, :, part], alone, atol=1e-6)


def test_attention_dropout_drops_weights() -> None:
    torch.manual_seed(0)
    query, key = torch.zeros(1, 1, 100, 100), torch.zeros(1, 1, 100, 100)
    value = torch.eye(100).view(1, 1, 100, 100)  # the output is the weights themselves
    weights = attend(query, key, value, causal=True, dropout=Dropout(0.25))[0, 0]
    below = weights[torch.ones(100, 100, dtype=torch.bool).tril()]
    assert float((below == 0).float().mean()) == pytest.approx(0.25, abs=0.03)
    assert float(weights.triu(1).abs().max()) == 0.0
    assert torch.allclose(attend(query, key, value, causal=True).sum(-1), torch.ones(1, 1, 100))
