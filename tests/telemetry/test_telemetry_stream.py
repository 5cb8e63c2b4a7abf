from collections.abc import Mapping

import pytest

from paddock.telemetry.stream import NOTHING, MetricStream, Step, Value


class Recorder:
    def __init__(self, fail_on_close: bool = False) -> None:
        self.calls: list[tuple[object, ...]] = []
        self._fail_on_close = fail_on_close

    def metadata(
        self, name: str, *, unit: str | None = None, goal: str | None = None, stage: str | None = None
    ) -> None:
        self.calls.append(("metadata", name, unit, goal, stage))

    def log(self, step: Step, data: Mapping[str, Value]) -> None:
        self.calls.append(("log", step, dict(data)))

    def tick(self, step: int, latest: Mapping[str, Value] = NOTHING) -> None:
        self.calls.append(("tick", step, dict(latest)))

    def message(self, text: str) -> None:
        self.calls.append(("message", text))

    def flush(self) -> None:
        self.calls.append(("flush",))

    def close(self) -> None:
        self.calls.append(("close",))
        if self._fail_on_close:
            raise OSError("close failed")


def test_every_sink_hears_everything_in_order() -> None:
    sinks = [Recorder(), Recorder()]
    with MetricStream(sinks) as stream:
        stream.metadata("train.loss", goal="MINIMIZE", stage="TRAIN")
        stream.tick(1, {"train.loss": 3.0})
        stream.log((0, 1), {"train.loss": 3.0})
        stream.message("hello")
        stream.flush()
    expected = [
        ("metadata", "train.loss", None, "MINIMIZE", "TRAIN"),
        ("tick", 1, {"train.loss": 3.0}),
        ("log", (0, 1), {"train.loss": 3.0}),
        ("message", "hello"),
        ("flush",),
        ("close",),
    ]
    assert sinks[0].calls == expected
    assert sinks[1].calls == expected


def test_a_stream_without_sinks_is_mute(capfd: pytest.CaptureFixture[str]) -> None:
    with MetricStream() as stream:
        stream.metadata("train.loss")
        stream.log((0, 1), {"train.loss": 3.0})
        stream.message("hello")
    assert capfd.readouterr() == ("", "")


def test_close_reaches_every_sink_when_one_fails() -> None:
    broken, last = Recorder(fail_on_close=True), Recorder()
    with pytest.raises(OSError, match="close failed"):
        MetricStream([broken, last]).close()
    assert last.calls == [("close",)]


def test_sinks_are_closed_when_the_run_fails() -> None:
    sink = Recorder()
    with pytest.raises(RuntimeError), MetricStream([sink]):
        raise RuntimeError("training failed")
    assert sink.calls == [("close",)]
