"""Two runs beside each other, from crafted logs: what is agreement, what is not, and what is said."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.alignment.comparison.curves import find_loss
from paddock.alignment.comparison.errors import curve_errors, error_of
from paddock.alignment.comparison.logged import LoggedRun, read_run
from paddock.alignment.comparison.report import report_page
from paddock.alignment.comparison.runs import RunComparison, Settings, compare_runs
from paddock.alignment.comparison.text import comparison_text
from paddock.errors import CheckFailed, ConfigError, DataError
from paddock.telemetry.records import encode_record, plain

STEPS = 100


def falling(step: int) -> float:
    return 2 + 5 * math.exp(-step / 30)


def logged(
    name: str,
    loss: Callable[[int], float] = falling,
    steps: range = range(1, STEPS + 1),
    final: Mapping[str, float] | None = None,
    facts: Mapping[str, Any] | None = None,
    **others: Callable[[int], float],
) -> LoggedRun:
    """A run with a loss by step, further metrics by step, and final ones."""
    run = LoggedRun(name, "a test", facts=dict(facts or {}))
    run.series["train.loss"] = {(0, step): loss(step) for step in steps}
    for metric, value in others.items():
        run.series[metric.replace("__", ".")] = {(0, step): value(step) for step in steps}
    for metric, number in ({"val.loss": 2.5} if final is None else final).items():
        run.series[metric] = {(0, steps[-1]): number}
    return run


def compare(a: LoggedRun, b: LoggedRun, **settings: Any) -> RunComparison:
    return compare_runs(a, b, Settings(**settings))


def test_the_same_numbers_are_aligned() -> None:
    found = compare(logged("a"), logged("b"))
    assert found.aligned and found.alarms == () and found.beyond == []
    assert found.errors is not None and found.errors.steps == STEPS and found.errors.max == 0
    found.raise_if_different()


def test_errors_of_both_signs_do_not_cancel() -> None:
    """Their mean is zero, and they are three percent everywhere."""
    found = compare(logged("a", lambda step: falling(step) * (1.03 if step % 2 else 0.97)), logged("b"))
    assert found.errors is not None and found.errors.mean == pytest.approx(0.03)
    assert not found.aligned and any("mean error" in reason for reason in found.beyond)


@given(st.floats(-0.2, 0.2), st.integers(1, STEPS), st.floats(0.001, 0.1))
def test_a_final_loss_that_is_moved_too_far_is_never_aligned(size: float, begin: int, tolerance: float) -> None:
    """Whatever the error does before, from wherever it begins."""

    def moved(step: int) -> float:
        return falling(step) * (1 + (size * (step - begin + 1) / (STEPS - begin + 1) if step >= begin else 0))

    found = compare(logged("a", moved), logged("b"), tolerance=tolerance)
    if abs(size) > tolerance * 1.0001:
        assert not found.aligned and any("final error" in reason for reason in found.beyond)
    elif abs(size) < tolerance * 0.999:
        assert found.aligned


def test_one_odd_step_decides_nothing_but_a_long_bump_does() -> None:
    spike = compare(logged("a", lambda step: falling(step) * (1.05 if step == 40 else 1)), logged("b"))
    assert spike.errors is not None and spike.errors.max == pytest.approx(0.05) and spike.errors.max_step == 40
    assert spike.aligned
    bump = compare(logged("a", lambda step: falling(step) * (1.05 if 40 <= step < 50 else 1)), logged("b"))
    assert bump.errors is not None and bump.errors.mean < 0.01 and bump.errors.final == 0
    assert not bump.aligned and bump.errors.first_beyond is not None and 40 <= bump.errors.first_beyond <= 43


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
@pytest.mark.parametrize("in_both", [False, True])
def test_a_loss_that_cannot_be_right_is_an_alarm_in_either_run(value: float, in_both: bool) -> None:
    wrong = logged("wrong", lambda step: value if step == 50 else falling(step))
    right = logged("right", lambda step: value if step == 50 and in_both else falling(step))
    for pair in ((wrong, right), (right, wrong)):
        found = compare(*pair)
        assert not found.aligned and any(
            "wrong: train.loss" in alarm and "at step 50" in alarm for alarm in found.alarms
        )
        with pytest.raises(CheckFailed, match="not aligned"):
            found.raise_if_different()
        assert json.dumps(plain(found.to_dict()), allow_nan=False)


def test_a_norm_that_is_not_finite_is_an_alarm() -> None:
    run = logged("a", train__grad_norm=lambda step: math.nan if step in (7, 9) else 1.0)
    found = compare(run, logged("b", train__grad_norm=lambda step: 1.0))
    assert found.alarms == ("a: train.grad_norm is nan at 2 steps, first at step 7",)
    assert not found.aligned


def test_a_step_that_float16_skipped_is_none() -> None:
    """Its gradients could not be held: the run says so, and left the weights alone."""

    def skipped(step: int) -> float:
        return float(step >= 7)

    run = logged("a", train__grad_norm=lambda step: math.inf if step == 7 else 1.0, train__skipped_steps=skipped)
    assert compare(run, logged("b")).aligned


def test_norms_are_shown_and_decide_nothing() -> None:
    found = compare(logged("a", train__grad_norm=lambda _: 1.5), logged("b", train__grad_norm=lambda _: 1.0))
    assert found.norm is not None and found.norm.mean == 0.5 and found.aligned


def test_a_metric_with_a_zero_reference_has_an_absolute_error_and_that_is_said() -> None:
    for value, aligned in ((0.009, True), (0.011, False), (0.0, True)):
        found = compare(logged("a", final={"val.f1": value}), logged("b", final={"val.f1": 0.0}))
        assert found.aligned is aligned and found.metrics[0].is_absolute and found.metrics[0].error == value
        assert any("a relative error is not defined" in note for note in found.notes)


@pytest.mark.parametrize("value", [0.0, math.nan])
def test_a_final_metric_that_cannot_be_right_is_an_alarm(value: float) -> None:
    found = compare(logged("a", final={"val.loss": value}), logged("b", final={"val.loss": value}))
    assert len([alarm for alarm in found.alarms if "val.loss" in alarm]) == 2


def test_a_final_metric_that_is_too_far_off() -> None:
    found = compare(logged("a", final={"val.accuracy": 0.79}), logged("b", final={"val.accuracy": 0.80}))
    assert found.beyond == ["error of val.accuracy 1.25 %"]
    assert compare(logged("a", final={"val.accuracy": 0.79}), logged("b"), tolerance=0.02).aligned


def test_speeds_are_no_metrics_of_what_came_of_it(tmp_path: Path) -> None:
    for name, speed in (("a", 10.0), ("b", 99.0)):
        records = [{"type": "LOG", "step": [0, step], "data": {"train.loss": 3.0, "val.ips": speed}} for step in (1, 2)]
        (tmp_path / name).write_bytes(b"".join(map(encode_record, records)))
    found = compare(read_run(str(tmp_path / "a")), read_run(str(tmp_path / "b")))
    assert found.aligned and found.metrics == ()
    assert any("no final metric in common" in note for note in found.notes)


def test_runs_of_different_length() -> None:
    short, long = logged("short", steps=range(1, 41), final={}), logged("long", final={})
    for pair in ((short, long), (long, short)):
        found = compare(*pair)
        assert found.errors is not None and found.errors.steps == 40 and found.errors.max == 0
        assert not found.aligned and "short ends at step 40, and the other one at 100" in found.alarms[0]
        assert compare(*pair, steps=40).aligned
    assert not compare(short, long, steps=41).aligned


def test_logging_intervals_are_no_length() -> None:
    every_3, every_7 = logged("a", steps=range(3, 101, 3)), logged("b", steps=range(7, 101, 7))
    found = compare(every_3, every_7)
    assert found.alarms == () and found.errors is not None and found.errors.steps == 4
    assert any("they record different steps: 4 steps are common" in note for note in found.notes)


def test_a_run_that_did_not_get_as_far_as_it_was_to() -> None:
    a, b = logged("a"), logged("b")
    a.asked_steps = b.asked_steps = 2 * STEPS
    assert compare(a, b).alarms == tuple(f"{name} ends at step 100, and was to make 200" for name in "ab")
    assert compare(a, b, steps=STEPS).aligned


def test_runs_without_a_common_step() -> None:
    found = compare(logged("a", steps=range(1, 10)), logged("b", steps=range(20, 30)))
    assert not found.aligned and found.errors is None
    assert found.alarms == ("the runs have no step in common: a has steps 1 to 9, b steps 20 to 29",)


@pytest.mark.parametrize("loss", [(), ("train.loss",)])
def test_a_run_of_ours_that_gave_no_number_is_not_aligned(loss: tuple[str, ...]) -> None:
    broken = LoggedRun("broken", "a Paddock run", asked_steps=STEPS, is_directory=True)
    for pair in ((broken, logged("b", steps=range(1, 9))), (logged("a"), broken), (broken, broken)):
        found = compare(*pair, loss=loss)
        assert "broken broke off before its first step gave a number" in found.alarms
        assert not found.aligned and found.errors is None
        assert not any("counts its steps" in note for note in found.notes)
        assert "broke off" in comparison_text(found) and "broke off" in report_page(found)
    with pytest.raises(DataError, match="has no metrics"):  # of another's log that cannot be known
        compare(LoggedRun("log", "a test"), logged("b"))


def test_counting_from_0_and_from_1() -> None:
    zero = logged("zero", lambda step: falling(step + 1), steps=range(STEPS), final={})
    one = logged("one", final={})
    for pair in ((zero, one), (one, zero)):
        found = compare(*pair)
        assert found.aligned and found.errors is not None and found.errors.max == 0
        assert any("zero counts its steps from 0 and one from 1" in note for note in found.notes)
        assert compare(*pair, offset=0).errors.max > 0.01  # type: ignore[union-attr]


def test_epochs_that_count_their_steps_anew() -> None:
    def anew(name: str, first_epoch: int = 0) -> LoggedRun:
        run = LoggedRun(name, "a test")
        run.series["train.loss"] = {(first_epoch + at // 25, at % 25): falling(at + 1) for at in range(STEPS)}
        return run

    both = compare(anew("a"), anew("b", first_epoch=1))
    assert both.aligned and both.errors is not None and both.errors.steps == STEPS
    with pytest.raises(ConfigError, match="a counts its steps anew in every epoch"):
        compare(anew("a"), logged("b", final={}))
    with_ours = compare(anew("a"), logged("b", final={}), steps_per_epoch=25)
    assert with_ours.aligned and with_ours.errors is not None and with_ours.errors.max == 0
    with pytest.raises(ConfigError, match="leave it out"):
        compare(logged("a"), logged("b"), steps_per_epoch=25)


@pytest.mark.parametrize(
    ("name", "values", "label"),
    [
        ("train.seed", (1, 2), "seed: 1 and 2"),
        ("batch.global", (8, 16), "global batch: 8 and 16"),
        ("training data", ("x", "y"), "training data: x and y"),
        ("optimizer.lr", ("0.001", 0.002), "optimizer.lr: 0.001 and 0.002"),
        ("model.layers", (2, 3), "model.layers: 2 and 3"),
    ],
)
def test_different_experiments_are_not_compared_unless_asked(name: str, values: tuple[Any, Any], label: str) -> None:
    a, b = (logged(run, facts={name: value}) for run, value in zip("ab", values, strict=True))
    with pytest.raises(ConfigError) as refused:
        compare(a, b)
    assert label in refused.value.why and "--allow-differences" in refused.value.fix
    found = compare(a, b, allow_differences=True)
    assert found.aligned and any(label.partition(":")[0] in note for note in found.notes)


@pytest.mark.parametrize("name", ["layout", "device", "parallel.tensor", "batch.micro", "precision.compute", "torch"])
def test_what_may_differ_is_listed(name: str) -> None:
    found = compare(logged("a", facts={name: 1}), logged("b", facts={name: 2}))
    (fact,) = [fact for fact in found.facts.shown if fact.name == name]
    assert found.aligned and (fact.a, fact.b, fact.state) == (1, 2, "differs")


def test_what_is_unknown_is_not_equal() -> None:
    found = compare(logged("a", facts={"train.seed": 1}), logged("b"))
    states = {fact.name: fact.state for fact in found.facts.facts}
    assert states["train.seed"] == states["training data"] == states["batch.global"] == "unknown"
    assert next(fact for fact in found.facts.facts if fact.name == "train.seed").b == "unknown"


def test_learning_rates_that_part_make_another_experiment() -> None:
    a = logged("a", train__lr=lambda step: 1e-3)
    b = logged("b", train__lr=lambda step: 1e-3 if step < 50 else 5e-4)
    with pytest.raises(ConfigError, match="different experiments") as refused:
        compare(a, b)
    assert "learning rate by step: 0.001 at step 50 and 0.0005 at step 50" in refused.value.why
    assert compare(a, b, steps=49).alarms == ()
    assert compare(a, logged("b", train__lr=lambda step: 1.001e-3)).aligned  # printed with few digits


def test_what_a_script_was_started_with(tmp_path: Path) -> None:
    for name, seed in (("a.json", 1), ("b.json", 2)):
        lines = [
            {"type": "LOG", "step": "PARAMETER", "data": {"seed": seed, "global_batch_size": "64", "api_key": "abc"}},
            {"type": "LOG", "step": [0, 1], "data": {"train.loss": 3.0}},
        ]
        (tmp_path / name).write_text("".join(f"DLLL {json.dumps(line)}\n" for line in lines))
    a, b = (read_run(str(tmp_path / name)) for name in ("a.json", "b.json"))
    assert a.facts == {"train.seed": 1, "batch.global": 64, "api_key": "[redacted]"}
    with pytest.raises(ConfigError, match="different experiments") as refused:
        compare(a, b)
    assert refused.value.why == "seed: 1 and 2"


def test_several_ranks_in_one_file(tmp_path: Path) -> None:
    """Each has its own part of the batch; the first one's numbers count, whoever wrote first."""
    lines = [
        {"type": "LOG", "step": [0, step], "data": str({"rank": str(rank), "train.loss": str(3.0 + rank)})}
        for step in (1, 2)
        for rank in (1, 0, 2)
    ]
    (tmp_path / "log").write_text("".join(f"TCAPPDLL {json.dumps(line)}\n" for line in lines))
    run = read_run(str(tmp_path / "log"))
    assert run.series["train.loss"] == {(0, 1): 3.0, (0, 2): 3.0}
    assert any("several ranks: those of rank 0 count" in remark for remark in run.remarks)


def test_a_step_that_a_log_has_twice_counts_as_it_was_last(tmp_path: Path) -> None:
    records = [{"type": "LOG", "step": [0, step], "data": {"train.loss": loss}} for step, loss in ((1, 3.0), (1, 2.0))]
    (tmp_path / "log").write_bytes(b"".join(map(encode_record, records)))
    run = read_run(str(tmp_path / "log"))
    assert run.series["train.loss"] == {(0, 1): 2.0} and "has again for the same step" in run.remarks[0]


@pytest.mark.parametrize(
    ("names", "loss"),
    [
        (["train.loss", "val.loss"], "train.loss"),
        (["QA.loss"], "QA.loss"),
        (["Loss", "val_loss"], "Loss"),
        (["Value"], "Value"),
        (["run - train/loss", "run - train/loss__MIN", "eval/loss"], "run - train/loss"),
        (["ppl", "accuracy"], None),
        ([], None),
    ],
)
def test_which_metric_is_the_loss(names: list[str], loss: str | None) -> None:
    run = LoggedRun("log", "a test", series={name: {(1,): 1.0} for name in names})
    if loss is None:
        with pytest.raises(DataError):
            find_loss(run, None)
    else:
        assert find_loss(run, None) == loss
    if names:
        assert find_loss(run, names[-1].upper()) == names[-1]
    with pytest.raises(ConfigError, match="has no such metric"):
        find_loss(run, "nothing like it")


def test_losses_of_different_names(tmp_path: Path) -> None:
    a, b = logged("a"), logged("b")
    b.series["other"] = b.series.pop("train.loss")
    with pytest.raises(DataError, match="does not say which metric is its loss"):
        b.series["third"] = dict(b.series["other"])
        compare(a, b)
    assert compare(a, b, loss=("train.loss", "other")).aligned


def test_an_error_is_relative_to_the_reference_and_never_negative() -> None:
    assert error_of(1.5, 2.0) == error_of(2.5, 2.0) == error_of(-2.5, -2.0) == 0.25
    assert error_of(0.5, 0.0) == 0.5 and error_of(math.nan, 1.0) == error_of(1.0, math.inf) == math.inf


@given(st.lists(st.floats(allow_nan=False, width=32), min_size=1, max_size=60), st.data())
def test_any_curves_have_errors_in_order(values: list[float], data: st.DataObject) -> None:
    others = data.draw(st.lists(st.floats(width=32), min_size=len(values), max_size=len(values)))
    errors, curves = curve_errors(dict(enumerate(values)), dict(enumerate(others)), 0.01)
    if errors is not None:
        assert 0 <= errors.mean <= errors.max * (1 + 1e-12) or math.isinf(errors.max)
        assert errors.max == max(curves.by_step.values()) and errors.smoothed == max(curves.smoothed.values())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tolerance": 0.0}, "--tolerance"),
        ({"tolerance": math.nan}, "--tolerance"),
        ({"steps": 0}, "--steps"),
        ({"steps_per_epoch": -1}, "--steps-per-epoch"),
        ({"loss": ("a", "b", "c")}, "--loss"),
    ],
)
def test_settings_that_cannot_be_meant(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        compare(logged("a"), logged("b"), **settings)


def test_the_report_shows_what_was_found() -> None:
    wrong = logged("<wrong>", lambda step: math.nan if step == 9 else 1.05 * falling(step), facts={"device": "new"})
    page = report_page(compare(wrong, logged("right", facts={"device": "old"})))
    assert "<wrong>" not in page and "&lt;wrong&gt;: train.loss is nan at step 9" in page
    assert "not aligned" in page and "final error of the loss 5 %" in page and "differs, as it may" in page
    assert page.count("<svg") == 2 and "tolerance 1 %" in page
    assert "Alarms" not in report_page(compare(logged("a"), logged("b")))
    nothing = compare(logged("a", steps=range(1, 10)), logged("b", steps=range(20, 30)))
    assert "no step in common" in report_page(nothing)
