"""The estimate of a step's time follows the device, and recovers from a delay."""

import pytest

from py_engine.gpu.step_times import StepTimes

KIND = (1, False)


def test_nothing_is_known_before_a_submit_was_queued() -> None:
    times = StepTimes()
    times.add(KIND, 30.0, queued=False)
    assert times.ms(KIND) == 0
    assert times.steps_in(KIND, 8, 64) == 1


def test_times_are_smoothed() -> None:
    times = StepTimes()
    for ms in (2.0, 4.0):
        times.add(KIND, ms, queued=True)
    assert times.ms(KIND) == pytest.approx(2.6)
    assert times.ms((2, False)) == 0


def test_a_shorter_time_counts_even_with_waiting() -> None:
    """After a delay of 300 ms, one submit is as much work as the scheduler sends ahead: none is queued any more."""
    times = StepTimes()
    for ms in (2.5, 300.0):
        times.add(KIND, ms, queued=True)
    assert times.steps_in(KIND, 8, 64) == 1
    times.add(KIND, 6.0, queued=False)
    assert times.ms(KIND) == 6.0
    times.add(KIND, 9.0, queued=False)
    assert times.ms(KIND) == 6.0


@pytest.mark.parametrize(("ms", "steps"), [(0.05, 64), (0.5, 16), (3.0, 2), (6.0, 2), (15.0, 2), (17.0, 1), (400.0, 1)])
def test_a_submit_takes_about_the_time_asked_for(ms: float, steps: int) -> None:
    times = StepTimes()
    times.add(KIND, ms, queued=True)
    assert times.steps_in(KIND, 8, 64) == steps


def test_the_shortest_time_does_not_follow_a_sleep() -> None:
    """A first step took 300 ms because kernels were compiled: whoever slept for so long would see every result late."""
    times = StepTimes()
    times.add(KIND, 300.0, queued=True)
    times.add(KIND, 5.0, queued=False)
    times.add(KIND, 240.0, queued=True)
    assert times.ms(KIND) > 70
    assert times.shortest(KIND) == pytest.approx(5.1)
    assert times.shortest((2, False)) == 0


def test_the_shortest_time_grows_with_the_context() -> None:
    times = StepTimes()
    for ms in [2.0] + [4.0] * 50:
        times.add(KIND, ms, queued=True)
    assert times.shortest(KIND) == 4.0
