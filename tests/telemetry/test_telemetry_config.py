import pytest

from paddock.errors import ConfigError
from paddock.telemetry.config import LogConfig


def test_defaults() -> None:
    config = LogConfig()
    assert (config.every, config.tensorboard, config.measure_peak) == (10, False, False)


@pytest.mark.parametrize("bad", [{"every": 0}, {"evry": 10}])
def test_bad_values_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        LogConfig(**bad)
