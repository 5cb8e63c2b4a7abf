"""Rows over cores: every row once, in order, and each core on its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn

from paddock.inference.outputs import WORTHWHILE, _workers, outputs_of


class Recording(nn.Module):
    """Gives back what it was asked, and remembers how it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[int, int, bool]] = []

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        assert torch.is_inference_mode_enabled()
        away = threading.current_thread() is not threading.main_thread()
        self.calls.append((len(tokens), torch.get_num_threads(), away))
        return torch.stack([tokens[:, 0], lengths], dim=1)


@pytest.fixture(autouse=True)
def two_cores() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def ask(rows: int, length: int) -> tuple[list[tuple[int, int, bool]], Tensor]:
    model, numbers = Recording(), torch.arange(rows)
    return model.calls, outputs_of(model, {"tokens": numbers[:, None].expand(-1, length), "lengths": numbers * 10})


def test_every_core_takes_rows_of_its_own() -> None:
    _workers.cache_clear()
    with ThreadPoolExecutor(1) as earlier:  # a thread of the user's, at work before ours are
        assert earlier.submit(torch.get_num_threads).result() == 2
        calls, found = ask(8, WORTHWHILE // 4)
        assert earlier.submit(torch.get_num_threads).result() == 2
    assert calls == [(4, 1, True)] * 2
    assert found.tolist() == [[row, 10 * row] for row in range(8)]
    assert torch.get_num_threads() == 2
    seen: list[int] = []
    after = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    after.start()
    after.join()
    assert seen == [2]


@pytest.mark.parametrize(("rows", "length"), [(3, WORTHWHILE), (1, 4 * WORTHWHILE), (8, 4)])
def test_what_does_not_go_round_or_is_small_is_looked_at_together(rows: int, length: int) -> None:
    calls, found = ask(rows, length)
    assert calls == [(rows, 2, False)]
    assert found.tolist() == [[row, 10 * row] for row in range(rows)]


def test_an_error_of_a_core_is_raised() -> None:
    class Broken(nn.Module):
        def forward(self, tokens: Tensor) -> Tensor:
            raise ValueError("no such row")

    with pytest.raises(ValueError, match="no such row"):
        outputs_of(Broken(), {"tokens": torch.zeros(2, WORTHWHILE)})


def test_a_model_answers_the_same() -> None:
    from paddock.config.load import load_recipe
    from paddock.models.layers.initialization import initialize
    from paddock.models.registry import build_model, example_batch

    recipe = load_recipe("bert/tiny")
    model = build_model(recipe.model).eval()
    initialize(model, 1)
    batch = example_batch(recipe.model, 16, recipe.data.sample_shape(), 1)
    del batch["labels"]
    assert batch["tokens"].numel() >= 2 * WORTHWHILE
    with torch.no_grad():
        torch.testing.assert_close(outputs_of(model, batch), model(**batch), rtol=1e-5, atol=1e-6)
