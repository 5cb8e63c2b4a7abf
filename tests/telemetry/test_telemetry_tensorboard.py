import sys
from pathlib import Path

import pytest

from paddock.errors import MachineError
from paddock.telemetry.tensorboard import TensorBoardSink


def scalars(directory: Path, tag: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(directory))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_scalars_come_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    sink = TensorBoardSink(tmp_path / "tensorboard")
    sink.metadata("train.loss", goal="MINIMIZE")
    sink.log((0, 10), {"train.loss": 3.5, "train.note": "text"})
    sink.log((1, 20), {"train.loss": float("nan"), "val.top.5": 0.5})
    sink.log((), {"summary.best_metric": 0.25})
    sink.message("hello")
    sink.close()
    loss = scalars(tmp_path / "tensorboard", "train/loss")
    assert loss[0] == (10, 3.5)
    assert loss[1][0] == 20
    assert scalars(tmp_path / "tensorboard", "val/top.5") == [(20, 0.5)]
    assert scalars(tmp_path / "tensorboard", "summary/best_metric") == [(20, 0.25)]


def test_resuming_hides_what_came_after_the_step(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    first = TensorBoardSink(tmp_path)
    for step in (1, 2, 3):
        first.log((0, step), {"train.loss": float(step)})
    first.close()
    # Event files are read in the order of their names, which begin with whole seconds.
    for old in tmp_path.iterdir():
        old.rename(old.with_name(old.name.replace("tfevents.", "tfevents.0")))
    second = TensorBoardSink(tmp_path, resume_step=2)
    second.log((0, 3), {"train.loss": 30.0})
    second.close()
    assert scalars(tmp_path, "train/loss") == [(1, 1.0), (2, 2.0), (3, 30.0)]


def test_a_missing_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("torch.utils.tensorboard", "tensorboard"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MachineError) as caught:
        TensorBoardSink(tmp_path)
    assert 'pip install "paddock[tensorboard]"' in str(caught.value)


def test_a_path_through_a_file_is_a_machine_error(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="cannot write"):
        TensorBoardSink(tmp_path / "file" / "tensorboard")
