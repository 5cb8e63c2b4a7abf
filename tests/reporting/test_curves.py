"""Curves of runs and of logs: by step, by tokens and by time; what was done again counts once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddock.errors import ConfigError, DataError
from paddock.reporting.comparison import beside
from paddock.reporting.curves import chosen_metrics, common_axes, default_metric, read_curves, shared_names
from paddock.reporting.figures import View, figure_of, lie_on_each_other
from paddock.telemetry.series import MOST
from paddock.testing.samples.run_directories import MadeRun, falling


def test_a_metric_over_every_axis(tmp_path: Path) -> None:
    MadeRun(tmp_path / "run").attempt(range(1, 101))
    run = read_curves(str(tmp_path / "run"))
    steps = run.points("train.loss", "step")
    assert list(steps) == list(range(1, 101)) and steps[7] == falling(7)
    assert list(run.points("train.loss", "tokens")) == [1024.0 * step for step in steps]  # 2048 a second, half a second
    seconds = list(run.points("train.loss", "time"))
    assert seconds == pytest.approx([step / 2 for step in steps])
    assert list(common_axes([run])) == ["step", "tokens", "time"]
    assert run.best["val.loss"] == (falling(100) + 0.1, 100) and run.summary["summary.tokens_per_second"] == 2048


def test_steps_that_were_done_again_count_once_and_restarts_are_known(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "run").attempt(range(1, 61), loss=lambda step: 99.0, ends=False)
    made.attempt(range(41, 101))
    run = read_curves(str(tmp_path / "run"))
    points = run.points("train.loss", "step")
    assert points[40] == 99.0 and points[41] == falling(41) and len(points) == 100
    assert [(one.number, one.step, one.tokens) for one in run.restarts] == [(2, 40, 40 * 1024.0)]
    assert run.restarts[0].seconds == pytest.approx(30.0)
    assert list(run.points("train.loss", "tokens"))[-1] == 100 * 1024.0
    assert any("again" in remark for remark in run.remarks)
    plot = figure_of([run], "train.loss", View())
    assert [mark.x for mark in plot.marks] == [40.0]


def test_a_long_run_is_thinned_and_keeps_its_spike(tmp_path: Path) -> None:
    MadeRun(tmp_path / "run", total_steps=9000).attempt(range(1, 6001), loss=lambda step: 50.0 if step == 3333 else 2.0)
    run = read_curves(str(tmp_path / "run"))
    points = run.points("train.loss", "step")
    assert len(points) <= 4 * MOST < 6000 and points[3333] == 50.0 and run.series["train.loss"].count == 6000


def test_a_log_of_somebody_else(tmp_path: Path) -> None:
    table = tmp_path / "theirs.csv"
    table.write_text(
        "epoch,step,loss\n" + "".join(f"{epoch},{step},{3 - epoch}\n" for epoch in (0, 1) for step in (1, 2, 3))
    )
    run = read_curves(str(table))
    assert run.points("loss", "step") == {1: 3, 2: 3, 3: 3, 4: 2, 5: 2, 6: 2}
    assert list(common_axes([run])) == ["step"] and default_metric([run]) == "loss"
    with pytest.raises(ConfigError, match="--x") as caught:
        View("tokens").check([run])
    assert "step" in caught.value.fix


def test_what_has_no_curves_says_so(tmp_path: Path) -> None:
    MadeRun(tmp_path / "run").attempt(range(1, 1), ends=False)
    with pytest.raises(DataError, match="no curves"):
        read_curves(str(tmp_path / "run"))
    (tmp_path / "run" / "metrics.jsonl").unlink()
    with pytest.raises(DataError, match="no curves"):
        read_curves(str(tmp_path / "run"))


def test_metrics_are_in_the_order_of_interest_and_misspelt_ones_are_told(tmp_path: Path) -> None:
    MadeRun(tmp_path / "run").attempt(range(1, 101))
    runs = [read_curves(str(tmp_path / "run"))]
    assert chosen_metrics(runs, [])[:3] == ["train.loss", "val.loss", "train.lr"]
    with pytest.raises(ConfigError) as caught:
        chosen_metrics(runs, ["train.los"])
    assert '"train.loss"' in caught.value.fix


@pytest.mark.parametrize(
    "names, short",
    [
        (["runs/a", "runs/b"], ["a", "b"]),
        (["x/run", "y/run"], ["x/run", "y/run"]),
        (["/a/b/c", "/a/b/d/"], ["c", "d"]),
        (["runs/a"], ["a"]),
        (["a", "runs/b"], ["a", "runs/b"]),
    ],
)
def test_short_names_tell_runs_apart(names: list[str], short: list[str]) -> None:
    assert shared_names(names) == short


def test_curves_that_lie_on_each_other_are_drawn_within_each_other(tmp_path: Path) -> None:
    for name, by in (("one", 1.0), ("same", 1 + 1e-7), ("other", 1.3)):
        MadeRun(tmp_path / name).attempt(range(1, 101), loss=lambda step, by=by: falling(step) * by)
    one, same, other = (read_curves(str(tmp_path / name)) for name in ("one", "same", "other"))
    widths = [line.thickness for line in figure_of([one, same], "train.loss", View()).lines]
    assert widths[0] > widths[1] + 2
    assert len({line.thickness for line in figure_of([one, other], "train.loss", View()).lines}) == 1
    assert not lie_on_each_other([{1.0: 1.0}, {2.0: 1.0}])


def test_runs_beside_each_other(tmp_path: Path) -> None:
    MadeRun(tmp_path / "a").attempt(range(1, 101))
    MadeRun(tmp_path / "b", optimizer={"lr": 1e-2}).attempt(range(1, 101), loss=lambda step: falling(step) + 1)
    MadeRun(tmp_path / "c").attempt(range(1, 51), environment={"torch": "2.14.0"})
    found = beside([read_curves(str(tmp_path / name)) for name in "abc"])
    differs = {row.name: row.values for row in found.differences}
    assert differs == {"optimizer.lr": (0.002, 0.01, 0.002), "torch": ("2.13.0", "2.13.0", "2.14.0")}
    rows = {(row.name, row.kind): row for row in found.metrics}
    assert rows["train.loss", "last"].leader == 0 and rows["val.loss", "best"].steps == (100, 100, 50)
    assert rows["train.tokens_per_second", "last"].leader is None
    assert json.loads(json.dumps(found.to_dict()))["differences"]["optimizer.lr"] == [0.002, 0.01, 0.002]
