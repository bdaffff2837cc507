"""Times the ops of a step, beside the least time that its device needs for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from py_engine.errors import WispError
from py_engine.load_plan import CPU
from py_engine.plan.kernels import Device
from py_engine.plan.lists import BATCH_STEP, DECODE_STEP, PREFILL
from py_engine.plan.plan import Plan
from py_engine.plan.traffic import Limits, of_step, profile
from py_engine.runners import FeedOptions, Runner

PROFILED_STEPS = 64  # positions that must be free after the tokens: a runner times some steps one after the other


@runtime_checkable
class TimedRunner(Runner, Protocol):
    """A runner that can time its ops: on WebGPU, or in the CPU engine's module."""

    def lists_for(self, names: Sequence[str], seq: int, n: int) -> list[str]:
        """The lists that run in place of these for n tokens of a sequence."""

    async def profile(self, position: int, n: int, name: str, seq: int = 0) -> list[float]:
        """Nanoseconds of each op of a list by itself, on n tokens at `position`. Its list must not be run meanwhile."""

    async def time_lists(self, position: int, n: int, names: Sequence[str], seq: int = 0) -> float:
        """Nanoseconds of lists, one after the other."""


def timed(runner: Runner) -> TimedRunner:
    """The runner as one that can time its ops. WispError unsupported_parameter: numpy cannot."""
    if isinstance(runner, TimedRunner):
        return runner
    raise WispError(
        "This model has kernels of its own, which run with numpy here and cannot be timed. Load it on WebGPU.",
        "unsupported_parameter",
    )


def profiled_end(plan: Plan, position: int, n: int) -> int:
    """The end of the positions that profiling n tokens at `position` takes. WispError if they are not there."""
    end = position + n + PROFILED_STEPS
    if position < 0 or not 1 <= n <= plan.batch or end > plan.n_ctx:
        raise WispError(
            f"n must be from 1 to {plan.batch}, and position + n at most {plan.n_ctx - PROFILED_STEPS}.",
            "invalid_value",
        )
    return end


async def profile_step(
    runner: TimedRunner, device: Device | None, limits: Limits, seq: int, position: int, n: int
) -> list[dict[str, Any]]:
    """The result of Engine.profile() for a sequence that can take n tokens at `position`. `device`: None on the CPU."""
    plan = runner.plan
    step = [PREFILL] if n > plan.max_small_batch else [*BATCH_STEP] if n > 1 else [*DECODE_STEP]
    names = runner.lists_for(step, seq, n)
    if plan.encodes_prompts:  # for the decoder to read
        half = max(1, position // 2)
        await runner.prepare([PREFILL], [seq])
        runner.feed(0, [0] * half, [PREFILL], seq, options=FeedOptions(shift=-half))
    times = [ns for name in names for ns in await runner.profile(position, n, name, seq)]
    step_ns = await runner.time_lists(position, n, names, seq)
    ops = of_step(plan, names, device or CPU, n, position, panelled=device is None)
    return profile(ops, limits, times, step_ns)
