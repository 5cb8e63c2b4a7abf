import math

import pytest

from paddock.telemetry import format


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1234, "1.2k"),
        (999_999, "1.0M"),
        (1234567, "1.2M"),
        (124_439_808, "124M"),
        (7e9, "7.0B"),
        (2.5, "2.5"),
    ],
)
def test_count(value: float, text: str) -> None:
    assert format.count(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (3.1e9, "3.1 GB"),
        (512e6, "512 MB"),
        (999.7e6, "1.0 GB"),
        (8e13, "80.0 TB"),
    ],
)
def test_bytes(value: float, text: str) -> None:
    assert format.bytes_(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0s"),
        (0.0021, "2.1ms"),
        (0.37, "0.37s"),
        (1.25, "1.2s"),
        (8, "8s"),
        (8.0, "8.0s"),
        (59.7, "1m00s"),
        (108, "1m48s"),
        (3599.9, "1h00m"),
        (7500, "2h05m"),
        (86399, "1d00h"),
        (3 * 86400 + 7 * 3600, "3d07h"),
        (math.inf, "inf"),
    ],
)
def test_duration(value: float, text: str) -> None:
    assert format.duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(21.34, "21.3"), (2712, "2.7k"), (0.1234, "0.12"), (0, "0.0"), (math.nan, "nan")]
)
def test_rate(value: float, text: str) -> None:
    assert format.rate(value) == text


def test_flops_and_percent() -> None:
    assert format.flops(2.55e11) == "255 GFLOP/s"
    assert format.flops(1.34e12) == "1.3 TFLOP/s"
    assert format.percent(0.123) == "12%"
    assert format.percent(0.034) == "3.4%"
