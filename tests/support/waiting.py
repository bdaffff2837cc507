"""Waits for a condition, with a time limit that only a hang reaches."""

import time
from collections.abc import Callable

HANG_S = 120.0  # longer than any wait on a busy machine, whose host may let a processor stand still for a minute


def wait_for(condition: Callable[[], object], within_s: float = HANG_S) -> None:
    """Return when `condition` is true; fail after `within_s`."""
    end, pause = time.monotonic() + within_s, 0.01
    while not condition():
        assert time.monotonic() < end, f"not true within {within_s:.0f} s"
        time.sleep(pause)
        pause = min(1.2 * pause, 0.05)  # most conditions ask a page, which has other things to do
