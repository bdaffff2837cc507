"""Choose kernels by measurement.

A candidate is first checked: for the same random inputs its outputs must equal those of a reference device (f32, no
subgroups, nothing rounded). The candidates that pass are timed. The fastest is chosen, or the first if the others gain
less than `min_gain`. The next choices' candidates compile meanwhile. When time runs out, the remaining choices keep
their defaults. measure.py measures and caches.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from py_engine.errors import WispError
from py_engine.plan.kernels import Device
from py_engine.plan.plan import Plan
from py_engine.tuning.cached_choices import TIME_RAN_OUT
from py_engine.tuning.candidates import Candidate, Choice, choices
from py_engine.tuning.workloads import Workload

TIME_BUDGET_S = 2.0  # for all choices together; one second would leave most of them unmeasured on an H200
IDLE_BUDGET_S = 5.0  # the same where no load waits for them
COMPILED_AHEAD = 2  # choices whose candidates compile while those of another are timed

T = TypeVar("T")


class Trial(Protocol):
    """A workload compiled for one device."""

    async def outputs(self) -> list[list[float]]:
        """Compute, and return the outputs or a part of them. The inputs are the same each time."""
        ...

    async def microseconds(self, best: float) -> float:
        """Measure the duration; only roughly if it is far from `best`."""
        ...

    def close(self) -> None:
        """Free the memory."""
        ...


class Bench(Protocol):
    """Where workloads run."""

    async def trial(self, device: Device, workload: Workload) -> Trial:
        """Compile the workload. WispError if it does not compile."""
        ...


async def tune(
    plan: Plan, device: Device, bench: Bench, forced: Iterable[str] = (), seconds: float = TIME_BUDGET_S
) -> tuple[Device, list[dict[str, Any]]]:
    """Make all choices: (the device with the chosen fields and tiles, a report of every choice).

    A report is {choice, chosen, why, candidates: [{name, microseconds, error} or {name, rejected}]}.
    """
    end = time.perf_counter() + seconds
    reports = []
    waiting, begun = deque(choices(plan, device, forced)), deque[_Begun]()
    try:
        while waiting or begun:
            while waiting and len(begun) <= COMPILED_AHEAD:
                begun.append(_Begun(waiting.popleft(), device, bench, end))
            next_one = begun.popleft()
            if next_one.variant != _variant(device):  # an earlier choice has changed it
                next_one.close()
                next_one = _Begun(next_one.make, device, bench, end)
            if next_one.trials is None:
                continue
            candidate, report = await _choose(next_one.trials)
            if candidate is not None:
                device = next_one.trials.choice.apply(device, candidate)
            reports.append(report)
    finally:
        for later in begun:
            later.close()
    return device, reports


def _variant(device: Device) -> Device:
    """What a choice's candidates depend on: tiles that other choices measured do not count."""
    return replace(device, tiles=())


class _Begun:
    """A choice whose candidates compile for a variant of the device. `trials` is None if there is nothing to choose."""

    def __init__(self, make: Callable[[Device], Choice | None], device: Device, bench: Bench, end: float) -> None:
        self.make, self.variant = make, _variant(device)
        choice = make(device)
        self.trials = _Trials(bench, choice, end) if choice is not None and len(choice.candidates) > 1 else None

    def close(self) -> None:
        if self.trials is not None:
            self.trials.close()


async def _choose(trials: _Trials) -> tuple[Candidate | None, dict[str, Any]]:
    choice = trials.choice
    entries: list[dict[str, Any]] = [{"name": c.name} for c in choice.candidates]
    report: dict[str, Any] = {
        "choice": choice.name,
        "chosen": choice.candidates[0].name,
        "why": "",
        "candidates": entries,
    }
    try:
        reference = await trials.reference()
        for i, (candidate, entry) in enumerate(zip(choice.candidates, entries, strict=True)):
            await trials.measure(i, candidate, entry, reference)
        await trials.confirm(entries)
    except TimeoutError:
        report["why"] = TIME_RAN_OUT
    except WispError as error:
        report["why"] = f"not measured: {error}"
        return None, report
    finally:
        trials.close()
    timed = [i for i, e in enumerate(entries) if "microseconds" in e]
    if not timed:
        correct = [i for i, e in enumerate(entries) if "rejected" not in e]
        best = next(iter(correct), 0)
        report["why"] = report["why"] or "every candidate was rejected"
        report["chosen"] = entries[best]["name"]
        return (choice.candidates[best] if best else None), report
    first = timed[0]
    best = min(timed, key=lambda i: entries[i]["microseconds"])
    if "microseconds" not in entries[0] and "rejected" not in entries[0]:
        best = 0
    elif entries[first]["microseconds"] < choice.min_gain * entries[best]["microseconds"]:
        best = first
    reason = "the fastest" if best != first or len(timed) > 1 else "the only correct one"
    report["why"] = "; ".join(filter(None, [reason, report["why"]]))
    report["chosen"] = entries[best]["name"]
    return choice.candidates[best], report


class _Trials:
    """The trials of one choice. They compile concurrently; none is awaited after the end of the time budget."""

    def __init__(self, bench: Bench, choice: Choice, end: float) -> None:
        self.choice, self._end, self._best = choice, end, float("inf")
        reference = reference_device(choice.candidates[0].device)
        devices = [reference, *(c.device for c in choice.candidates)] if end > time.perf_counter() else []
        self._tasks = [asyncio.ensure_future(bench.trial(device, choice.workload)) for device in devices]

    async def _in_time(self, future: Awaitable[T]) -> T:
        left = self._end - time.perf_counter()
        if left <= 0:
            if asyncio.iscoroutine(future):
                future.close()
            raise TimeoutError
        return await asyncio.wait_for(future, left)

    async def reference(self) -> list[list[float]]:
        if not self._tasks:
            raise TimeoutError
        trial = await self._in_time(asyncio.shield(self._tasks[0]))
        return await self._in_time(trial.outputs())

    async def measure(self, i: int, candidate: Candidate, entry: dict[str, Any], reference: list[list[float]]) -> None:
        """Check and time a candidate; write the result into its report entry."""
        try:
            trial = await self._in_time(asyncio.shield(self._tasks[1 + i]))
            got = await self._in_time(trial.outputs())
        except WispError as error:
            entry["rejected"] = str(error)
            return
        errors = [nmse(a, b) for a, b in zip(got, reference, strict=True)]
        if wrong := [e for e in errors if not e < candidate.max_nmse]:
            entry["rejected"] = f"wrong: normalised mean squared error {wrong[0]:.2g}"
            return
        entry["error"] = max(errors)
        try:
            entry["microseconds"] = round(await self._in_time(trial.microseconds(self._best)), 2)
        except WispError as error:
            entry["rejected"] = str(error)
            return
        self._best = min(self._best, entry["microseconds"])

    async def confirm(self, entries: list[dict[str, Any]]) -> None:
        """Time the first candidate again if another was faster: it may have run while others compiled."""
        first = entries[0].get("microseconds", 0.0)
        if first <= self._best:
            return
        with suppress(WispError):
            again = await self._in_time(self._tasks[1].result().microseconds(self._best))
            entries[0]["microseconds"] = min(first, round(again, 2))

    def close(self) -> None:
        for task in self._tasks:
            task.add_done_callback(_close)
            task.cancel()


def _close(task: asyncio.Future[Trial]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def reference_device(device: Device) -> Device:
    """The device without f16, subgroups and rounding, whose results count as correct."""
    return replace(device, f16=False, subgroup=0, matrix=0, dot8=False, tiles=())


def nmse(got: list[float], want: list[float]) -> float:
    """Normalised mean squared error; NaN if any value is NaN or the lengths differ."""
    if len(got) != len(want):
        return float("nan")
    errors = sum((a - b) ** 2 for a, b in zip(got, want, strict=True))
    return errors / max(1e-30, sum(b * b for b in want))
