"""The estimate of a step's time follows the device, and recovers from a delay."""

import pytest

from py_engine.gpu.step_times import StepTimes, prompt_kind
from py_engine.gpu.submit import GpuSubmit, PartTime

KIND, DRAFTING = (1, False, 0), (1, True, 0)


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
    """After slow steps, one submit is as much work as the scheduler sends ahead: none is queued any more."""
    times = StepTimes()
    for ms in (2.5, *[300.0] * 3):
        times.add(KIND, ms, queued=True)
    assert times.steps_in(KIND, 8, 64) == 1
    times.add(KIND, 6.0, queued=False)
    assert times.ms(KIND) == 6.0
    times.add(KIND, 9.0, queued=False)
    assert times.ms(KIND) == 6.0


def test_one_delay_does_not_look_like_slow_steps() -> None:
    """A stream waited 400 ms once. After it, steps were submitted singly, each with a wait for the host."""
    times = StepTimes()
    for ms in (1.0, 400.0, 1.6):
        times.add(KIND, ms, queued=True)
    assert times.ms(KIND) == pytest.approx(1.6)


def test_steps_that_stay_slow_count_in_full() -> None:
    """The first result may have come with another one, as if it took no time."""
    times = StepTimes()
    for ms in (0.02, 10.0, 10.0, 10.0):
        times.add(KIND, ms, queued=True)
    assert times.ms(KIND) > 4


def test_a_plain_step_is_shorter_than_one_with_drafts() -> None:
    """Else steps with drafts would go on where none is accepted, and the time of a plain one not be measured again."""
    times, drafting = StepTimes(), (1, True)
    times.add(KIND, 4.0, queued=True)
    assert times.plain_ms(KIND, drafting) == 4.0
    times.add(drafting, 1.4, queued=True)
    assert times.plain_ms(KIND, drafting) == pytest.approx(1.4 / 1.1)
    assert times.plain_ms((2, False), (2, True)) == 0
    times.add(KIND, 0.7, queued=False)
    assert times.plain_ms(KIND, drafting) == 0.7


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
    times.add(KIND, 12.0, queued=True)
    assert times.ms(KIND) == pytest.approx(7.1)
    assert times.shortest(KIND) == pytest.approx(5.1)
    assert times.shortest((2, False)) == 0


def test_the_shortest_time_grows_with_the_context() -> None:
    times = StepTimes()
    for ms in [2.0] + [4.0] * 50:
        times.add(KIND, ms, queued=True)
    assert times.shortest(KIND) == 4.0


def prompts(*batches: tuple[int, float], queued: bool = False) -> StepTimes:
    """Times of batches of prompts: (tokens, milliseconds)."""
    times = StepTimes()
    for n, ms in batches:
        times.add(prompt_kind(n), ms / n, queued=queued)
    return times


def test_nothing_is_known_before_a_prompt_was_read() -> None:
    times = prompts()
    assert times.prompt_ms(100) == times.prompt_token_ms() == 0
    assert times.prompt_tokens_in(24, 64, 2048) == 2048


def test_a_size_is_timed_by_a_batch_that_did_not_wait() -> None:
    times = prompts((512, 64))
    assert not times.prompt_timed(512)
    times.add(prompt_kind(512), 64 / 512, queued=True)
    assert times.prompt_timed(300)
    assert not times.prompt_timed(513)


def test_short_prompts_say_little_about_long_ones() -> None:
    """Those of an 8B model: 16 tokens take 22 ms, 512 take 64. The parts of a long prompt grow with what is known."""
    times = prompts((16, 22))
    assert times.prompt_tokens_in(24, 64, 2048) == 64
    times = prompts((16, 22), (64, 23))
    assert times.prompt_ms(8) == times.prompt_ms(16) == 22
    assert times.prompt_tokens_in(50, 64, 2048) == 256  # 128 take 46 at most, so 256 are tried
    times = prompts((16, 22), (64, 23), (512, 64), queued=True)
    assert times.prompt_ms(288) == pytest.approx((23 + 64) / 2)
    assert times.prompt_tokens_in(50, 64, 2048) == 320
    assert times.prompt_ms(1024) == 128
    assert times.prompt_token_ms() == 0.125


def test_a_prompt_that_something_delays_costs_no_more_to_compute() -> None:
    """Or storing prefixes, which delays prompts, would seem to pay because of the delay."""
    delayed = prompts((512, 64), (512, 64), (512, 640), (512, 640), queued=True)
    assert delayed.prompt_ms(512) > 200
    assert delayed.prompt_token_ms() == 0.125


@pytest.mark.parametrize("newest_ms", [0.0, 0.1])
def test_a_prompt_whose_result_came_with_the_one_before_costs_as_much_as_others(newest_ms: float) -> None:
    times = prompts((512, 128), (512, newest_ms), (512, 64), (512, 64), queued=True)
    assert times.prompt_token_ms() == pytest.approx(0.125, rel=0.5)


def test_a_batch_that_waited_for_a_compilation_is_no_longer_than_a_larger_one() -> None:
    assert prompts((16, 700), (512, 64)).prompt_ms(16) == 64


def test_a_batch_that_waited_for_a_compilation_takes_no_more_per_token_than_a_smaller_one() -> None:
    assert prompts((64, 23), (512, 700)).prompt_ms(512) == 8 * 23


def test_a_size_that_was_delayed_is_tried_again() -> None:
    """Other work beside the first long prompt had doubled the time of its parts."""
    times = prompts((512, 60), (1024, 250), queued=True)
    assert times.prompt_tokens_in(150, 64, 2048) == 512
    for _ in range(8):
        times.add(prompt_kind(512), 60 / 512, queued=True)
    assert times.prompt_tokens_in(150, 64, 2048) >= 768


def test_a_larger_batch_is_tried_until_its_time_is_known() -> None:
    """The first prompt waited for kernels. Parts of the next one, beside a stream, grow all the same."""
    times = prompts((512, 700))
    assert times.prompt_tokens_in(36, 64, 2048) == 64
    for n, ms, then in ((64, 30, 128), (128, 31, 256), (256, 34, 512), (512, 56, 320)):
        times.add(prompt_kind(n), ms / n, queued=True)
        assert times.prompt_tokens_in(36, 64, 2048) == then


def test_a_result_that_came_with_another_says_nothing_about_longer_parts() -> None:
    """It looks as if its batch took no time."""
    known = (64, 20), (128, 23), (256, 45), (512, 80), (1024, 160), (2048, 330)
    times = prompts(*known, queued=True)
    before = times.prompt_tokens_in(36, 64, 2048)
    times.add(prompt_kind(24), 0.5 / 24, queued=True)
    assert times.prompt_tokens_in(36, 64, 2048) == before == 192


def test_the_first_batch_in_a_queue_takes_the_place_of_one_that_waited() -> None:
    times = prompts((512, 700))
    times.add(prompt_kind(512), 56 / 512, queued=True)
    assert times.prompt_ms(512) == 56


def test_where_the_smallest_batch_takes_long_a_larger_one_takes_more_time() -> None:
    """Late in a long prompt, an 8B model reads 64 tokens in 41 ms and 256 in 52."""
    times = StepTimes()
    for n, ms in ((64, 41), (128, 43), (256, 52), (512, 75)):
        times.add(prompt_kind(n), ms / n, True)
    assert times.prompt_tokens_in(36, 64, 2048) == 256
    assert times.prompt_tokens_in(60, 64, 2048) == 320


def test_long_batches_are_whole_tiles() -> None:
    times = StepTimes()
    for n, ms in ((512, 49), (1024, 90), (2048, 170)):
        times.add(prompt_kind(n), ms / n, True)
    assert times.prompt_tokens_in(129, 64, 2048) == 1280  # 1,536 take 130
    assert times.prompt_tokens_in(300, 64, 2048) == 2048
    assert times.prompt_tokens_in(300, 64, 1000) == 1000


def test_a_shorter_time_counts_more_where_the_first_ones_are_too_long() -> None:
    times = StepTimes()
    for ms in (10.0, 1.0):
        times.add(KIND, ms, queued=True, falls=True)
    assert times.ms(KIND) == pytest.approx(3.7)
    times.add(KIND, 4.7, queued=True, falls=True)
    assert times.ms(KIND) == pytest.approx(4.0)


def test_a_part_of_a_prompt_takes_as_long_as_all_its_slices() -> None:
    """Not as its last one and the step before that: then the next parts had fewer and longer slices."""
    part = PartTime()
    slices = [GpuSubmit(0, 2048, slices=3, slice_=i) for i in range(3)]
    times = []
    for _ in range(2):
        for slice_ in slices:
            times.append(part.add(slice_, 20.0))
            assert part.add(GpuSubmit(4, 1), 5.0) == 5.0
    assert times == [20.0, 40.0, 60.0] * 2
    assert part.add(GpuSubmit(0, 16), 8.0) == 8.0
