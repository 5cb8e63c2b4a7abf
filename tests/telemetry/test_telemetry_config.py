import pytest

from paddock.errors import ConfigError
from paddock.telemetry.config import LogConfig


def test_defaults_and_help() -> None:
    config = LogConfig()
    assert (config.every, config.tensorboard, config.measure_peak) == (10, False, False)
    assert all(field.description for field in LogConfig.model_fields.values())


@pytest.mark.parametrize("bad", [{"every": 0}, {"evry": 10}])
def test_bad_values_are_refused(bad: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        LogConfig(**bad)
