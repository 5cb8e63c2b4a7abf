"""A killed and resumed run ends as one that was not; `paddock check resume` shows it, and fails where it does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddock.alignment.resume import Kill, ResumeResult
from paddock.cli.check import resume_summary
from paddock.cli.main import run
from paddock.config.load import save_recipe
from paddock.errors import CheckFailed
from paddock.testing.commands import paddock
from paddock.testing.layouts import small_recipe, small_t5

SHORT = ["--steps", "30", "--checkpoint.every", "2", "--json"]  # so many that it is not done before the kill


ONEDNN = ["--device.products", "onednn", "--model.hidden", "128"]
"""Products that torch would not leave to that library by itself, and that are large enough to be."""


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    save_recipe(small_recipe(model={"dropout": 0.1, "layers": 2}), tmp_path / "small.yaml")
    return tmp_path / "small.yaml"


def test_in_the_same_layout_all_is_bit_equal(recipe_file: Path) -> None:
    result = paddock("check", "resume", str(recipe_file), *SHORT, *ONEDNN, OMP_NUM_THREADS="1")
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["agrees"] and answer["exact"] and answer["largest_difference"] == 0.0 and answer["steps"] == 30
    between, saving = answer["kills"]
    assert 3 <= between["step"] < 30 and between["resumes_from"] in range(2, 30, 2)  # a busy machine kills late
    assert "saving step 4" in saving["moment"] and saving["resumes_from"] in range(2, 30, 2)


@pytest.mark.slow
def test_two_stacks_of_layers_go_on_in_another_layout(tmp_path: Path) -> None:
    save_recipe(small_t5("t5", model={"dropout": 0.1}), tmp_path / "small.yaml")
    test_in_another_layout_it_agrees(tmp_path / "small.yaml")


@pytest.mark.slow
def test_in_another_layout_it_agrees(recipe_file: Path) -> None:
    layouts = ["--layout", "dp2,shard=parameters", "--resume-layout", "tp2,pp2", "--kill-seed", "3"]
    result = paddock("check", "resume", str(recipe_file), *layouts, *SHORT, OMP_NUM_THREADS="1")
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["agrees"] and not answer["exact"] and answer["largest_difference"] <= 1e-5


KILLS = [Kill("between", 3, 2)]
RUN = {1: (4.0, 2.0), 2: (3.9, 1.9), 3: (3.8, 1.8)}


@pytest.mark.parametrize(
    ("resumed", "exact", "complaint"),
    [
        (RUN | {2: (3.9000000001, 1.9)}, True, "differs at 1 of 3 steps, first at step 2"),
        (RUN | {3: (3.8, 1.8001)}, False, "differs at 1 of 3 steps, first at step 3"),
        ({1: RUN[1], 3: RUN[3]}, True, "steps are missing: 2"),
        (RUN | {4: (3.7, 1.7)}, False, "steps are missing: 4"),
    ],
)
def test_a_difference_is_a_failed_check(resumed: dict[int, tuple[float, float]], exact: bool, complaint: str) -> None:
    result = ResumeResult(RUN, resumed, KILLS, exact)
    with pytest.raises(CheckFailed, match=complaint) as failed:
        result.raise_if_different()
    assert failed.value.exit_code == 7
    assert result.to_dict()["agrees"] is False


def test_rounding_is_no_difference_in_another_layout() -> None:
    result = ResumeResult(RUN, RUN | {2: (3.9000000001, 1.9)}, KILLS, exact=False)
    result.raise_if_different()
    assert "3 steps compared, largest difference 2.6e-11 (wanted: within 1e-05)" in resume_summary(result)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--checkpoint.every", "None"], "checkpoint.every = None"),
        (["--checkpoint.every", "6", "--steps", "12"], "checkpoint.every = 6"),
        (["--layout", "tp3"], "8 heads do not divide by 3"),
        (["--resume-layout", "tp3"], "8 heads do not divide by 3"),
        (["--layout", "dp2", "--nproc-per-node", "2"], "--nproc-per-node = 2"),
    ],
)
def test_bad_input(recipe_file: Path, flags: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "resume", str(recipe_file), *flags]) == 2
    assert complaint in capsys.readouterr().err


def test_a_run_that_cannot_begin_says_why(recipe_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--optimizer.lr", "1e30", "--optimizer.clip", "None", "--schedule.warmup", "0", "--schedule.min-lr", "0"]
    assert run(["check", "resume", str(recipe_file), *flags, *SHORT]) == 5
    assert "error: step 2: loss" in capsys.readouterr().err
