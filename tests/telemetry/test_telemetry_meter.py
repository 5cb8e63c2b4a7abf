import pytest

from paddock.telemetry.meter import EtaEstimator, ThroughputMeter


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def run_step(
    meter: ThroughputMeter, clock: Clock, data: float, compute: float, tokens: int = 0, flops: float = 0.0
) -> None:
    meter.start_step()
    clock.now += data + compute
    meter.end_step(samples=8, tokens=tokens, flops=flops, data_seconds=data)


def test_averages_are_totals_over_time_and_skip_the_warm_up() -> None:
    clock = Clock()
    meter = ThroughputMeter(warmup=2, clock=clock)
    for _ in range(2):
        run_step(meter, clock, data=50.0, compute=50.0)
    run_step(meter, clock, data=0.5, compute=1.5)
    run_step(meter, clock, data=0.5, compute=5.5)
    averages = meter.window()
    assert averages == {
        "ips": 2.0,  # 16 samples in 8 s; the mean of 4 and 1.33 would be wrong
        "step_time": 4.0,
        "data_time": 0.5,
        "compute_time": 3.5,
    }
    assert meter.summary() == averages


def test_a_process_s_own_time_is_what_it_works_and_what_it_waits_for_data() -> None:
    clock, busy = Clock(), Clock()
    meter = ThroughputMeter(warmup=0, clock=clock, busy=busy)
    for worked, idle in ((1.0, 0.0), (2.0, 0.5)):
        meter.start_step()
        clock.now += 10.0  # most of it waiting for others
        busy.now += worked
        meter.end_step(samples=8, data_seconds=1.0, idle_seconds=idle)
        busy.now += 100.0  # an evaluation
    assert meter.window()["own_time"] == 1.75


def test_a_window_begins_where_the_last_one_ended_and_the_summary_does_not() -> None:
    clock = Clock()
    meter = ThroughputMeter(warmup=0, clock=clock)
    run_step(meter, clock, data=0.0, compute=1.0)
    assert meter.window()["step_time"] == 1.0
    assert meter.window() == {}
    run_step(meter, clock, data=0.0, compute=3.0)
    assert meter.window()["step_time"] == 3.0
    assert meter.summary()["step_time"] == 2.0


def test_time_between_steps_does_not_count() -> None:
    clock = Clock()
    meter = ThroughputMeter(warmup=0, clock=clock)
    run_step(meter, clock, data=0.0, compute=1.0)
    clock.now += 1000.0  # an evaluation and a checkpoint
    run_step(meter, clock, data=0.0, compute=1.0)
    assert meter.summary()["ips"] == 8.0


def test_nothing_is_claimed_before_the_warm_up_is_over() -> None:
    clock = Clock()
    meter = ThroughputMeter(warmup=2, clock=clock)
    run_step(meter, clock, data=0.0, compute=1.0)
    run_step(meter, clock, data=0.0, compute=1.0)
    assert meter.window() == {}
    assert meter.summary() == {}


def test_tokens_flops_and_utilisation() -> None:
    clock = Clock()
    meter = ThroughputMeter(warmup=0, peak_flops=1000.0, clock=clock)
    run_step(meter, clock, data=1.0, compute=3.0, tokens=1024, flops=1600.0)
    averages = meter.window()
    assert averages["tokens_per_second"] == 256.0
    assert averages["achieved_flops"] == 400.0
    assert averages["utilisation"] == 0.4


def test_utilisation_needs_a_peak() -> None:
    clock = Clock()
    meter = ThroughputMeter(warmup=0, clock=clock)
    run_step(meter, clock, data=0.0, compute=1.0, flops=10.0)
    assert "achieved_flops" in meter.summary()
    assert "utilisation" not in meter.summary()


def test_data_time_is_zero_for_a_step_that_did_not_report_it() -> None:
    clock = Clock()
    meter = ThroughputMeter(warmup=0, clock=clock)
    run_step(meter, clock, data=2.0, compute=0.0)
    meter.window()
    meter.start_step()
    clock.now += 1.0
    meter.end_step(samples=1)
    assert meter.window()["data_time"] == 0.0


def test_steps_must_be_started() -> None:
    with pytest.raises(AssertionError):
        ThroughputMeter().end_step(samples=1)


def test_the_time_left_is_wall_clock_after_the_warm_up() -> None:
    clock = Clock()
    eta = EtaEstimator(warmup=2, clock=clock)
    assert eta.seconds_left(100) is None
    for step, clock.now in ((1, 100.0), (2, 200.0), (3, 202.0), (4, 204.0)):
        eta.observe(step)
        eta.observe(step)  # a tick and a log of one step are one observation
    assert eta.seconds_left(100) == 96 * 2.0
    clock.now += 1.5
    assert eta.seconds_left(100) == 96 * 2.0 - 1.5
    assert eta.seconds_left(4) == 0.0
