"""How far a job is, as its command says it off a terminal: every line that might come does."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from paddock.cli.main import run
from paddock.devices import products
from paddock.jobs import generate
from paddock.telemetry.screen import terminal
from paddock.testing.tiny import TINY

PROMPTS = 5
REVERSE = [
    *("t5/reverse", "--model.layers", "1", "--model.decoder-layers", "1", "--model.hidden", "32"),
    *("--steps", "1", "--batch.micro", "4", "--batch.global", "4", "--evaluate.every", "None"),
]


@pytest.fixture
def prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of them; and nobody waits between two lines."""
    monkeypatch.setattr(terminal, "LINE_EVERY", 0.0)
    (tmp_path / "prompts.txt").write_text("\n".join(f"The class {number}" for number in range(PROMPTS)))
    return tmp_path / "prompts.txt"


def told(capsys: pytest.CaptureFixture[str], verb: str) -> list[tuple[int, int, str]]:
    """How much of how much, and the words behind it."""
    lines = re.findall(rf"^{verb}: (\d+) of (\d+)(.*)$", capsys.readouterr().err, re.MULTILINE)
    return [(int(done), int(total), rest) for done, total, rest in lines]


def generating(model: Path, prompts: Path, *flags: str) -> int:
    new = ["--max-new-tokens", "3", "--min-new-tokens", "3"]
    return run(["generate", str(model), "--prompt-file", str(prompts), *new, *flags])


def test_generate_tells_of_prompts_and_tokens_as_they_come(
    trained_run: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generating(trained_run, prompts, "--max-batch", "2") == 0
    found = told(capsys, "generate")
    assert [(done, int(re.findall(r"\d+", rest)[0])) for done, _, rest in found] == [
        *((0, 2), (0, 4), (2, 6), (2, 8), (2, 10), (4, 12), (4, 13), (4, 14), (5, 15)),
        (5, 15),  # the block is written down
    ]
    assert {total for _, total, _ in found} == {PROMPTS}
    assert found[0][2] == ", 2 tokens" and found[-1][2] == ", 15 tokens, 0s left"


def test_over_blocks_and_copies_it_never_goes_back(
    trained_run: Path, prompts: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "BLOCK", 2)
    assert generating(trained_run, prompts, "--num-return-sequences", "2") == 0
    found = [(done, int(re.findall(r"\d+", rest)[0])) for done, _, rest in told(capsys, "generate")]
    assert found == sorted(found) and found[-1] == (PROMPTS, 2 * 3 * PROMPTS)


def test_other_replicas_are_taken_to_be_as_far() -> None:
    seen: list[tuple[int, int, str]] = []
    progress = generate._Progress(lambda *now: seen.append(now), prompts=7, copies=1, replicas=2)
    on_step = progress.begin(0)
    on_step(0, 1)
    on_step(2, 6)
    progress.end(4, 11)
    progress.begin(4)(2, 5)
    assert seen == [(0, 7, "2 tokens"), (4, 7, "12 tokens"), (4, 7, "11 tokens"), (7, 7, "21 tokens")]


def test_on_a_terminal_a_bar_has_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, _environ={"TERM": "xterm"})
    monkeypatch.setattr(terminal, "stderr_console", lambda: console)
    with terminal.progress_bar("generate") as tell:
        tell(3, 60, "[x] 1.2k tokens")
    assert "3/60" in screen.getvalue() and "[x] 1.2k tokens" in screen.getvalue()


def test_benchmark_counts_its_steps(prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--benchmark.train", "--benchmark.iterations", "2", "--benchmark.warmup", "1"]
    assert run(["benchmark", *TINY, *few]) == 0
    assert [(done, total) for done, total, _ in told(capsys, "benchmark")] == [(1, 3), (2, 3), (3, 3)]


@pytest.fixture(scope="module")
def reversing_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("reversing") / "run"
    assert run(["train", *REVERSE, "--run-dir", str(place)]) == 0
    return place


@pytest.fixture
def sources(prompts: Path) -> Iterator[list[str]]:
    """Where `paddock predict` reads them."""
    prompts.write_text("a b c\n" * PROMPTS)
    yield ["--input", str(prompts), "--batch", "2"]


def test_predict_counts_its_batches(
    reversing_run: Path, sources: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["predict", str(reversing_run), *sources]) == 0
    assert [(done, total) for done, total, _ in told(capsys, "predict")] == [(1, 3), (2, 3), (3, 3)]


def test_predict_multiplies_as_generate_does(
    reversing_run: Path, sources: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the products that are chosen for the machine, with packed weights."""
    chosen: list[int] = []
    packing: list[bool] = []
    pack = products.pack

    def choose(setting: str, processor: str, num_parameters: int, kept: object = None) -> products.Products:
        chosen.append(num_parameters)
        return products._uniform("onednn", processor)

    def packed(*arguments: object) -> object:
        packing.append(products._table is not None)
        return pack(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(products, "choose", choose)
    monkeypatch.setattr(products, "pack", packed)
    assert run(["predict", str(reversing_run), *sources]) == 0
    assert len(chosen) == 1 and chosen[0] > 0
    assert packing and all(packing)
    assert products._table is None
