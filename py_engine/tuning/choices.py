"""Choosing kernels by measurement: which candidates there are for a model, and which of them to take.

Each choice is made on ops like the model's own, of its types and shapes, on throwaway buffers. A candidate is first
checked: on the same random inputs as a reference (f32, no subgroups, nothing rounded) its outputs must be the same.
Those that pass are timed, and the fastest is taken, or the first where the others gain next to nothing. When the time
is up, what has not been chosen stays as it is. gpu_tuning.py does the measuring and keeps the result.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.plan import tiles
from py_engine.plan.kernels import WGSL, Device
from py_engine.plan.plan import Plan
from py_engine.tuning.workloads import Attention, Matrix, Prefill, Work, attention_of, matrices_of, prefill_of

SECONDS = 2.0  # for all of it
GAIN = 1.1  # times faster that a candidate must be for leaving the first; less is within what a model would not show
EXACT, ROUNDED = 1e-5, 1e-4  # largest normalised mean squared error, and where activations are rounded to bytes
MATRICES = 5  # of a model that are looked at, the most costly first
FIELDS = ("f16", "subgroup", "matrix", "dot8")  # of Device that a choice can change


@dataclass(frozen=True)
class Candidate:
    """A device with some fields of its own; `limit`: the largest error."""

    name: str
    device: Device
    limit: float = EXACT


@dataclass(frozen=True)
class Choice:
    """Candidates for one work, the one that is used without measuring first; `adopt` takes one over into the device.

    `gain`: how many times faster another must be.
    """

    name: str
    work: Work
    candidates: list[Candidate]
    adopt: Callable[[Device, Candidate], Device]
    gain: float = GAIN


class Trial(Protocol):
    """A work compiled for one device."""

    async def outputs(self) -> list[list[float]]:
        """What it computes, or a part of that, from the same inputs each time."""
        ...

    async def microseconds(self, best: float) -> float:
        """How long it takes; roughly where that is far from `best`."""
        ...

    def close(self) -> None:
        """Give its memory back."""
        ...


class Bench(Protocol):
    """Where works run."""

    async def trial(self, device: Device, work: Work) -> Trial:
        """Raises WispError where it does not compile."""
        ...


def choices(plan: Plan, device: Device, forced: Iterable[str]) -> list[Callable[[Device], Choice | None]]:
    """What there is to choose, in order, each given the device as chosen so far; `forced` fields stay as they are."""
    fixed = frozenset(forced)
    found: list[Callable[[Device], Choice | None]] = []
    matrices = matrices_of(plan)[:MATRICES]
    if matrices:
        found.append(partial(_subgroups, matrix=matrices[0], fixed=fixed))
        found.append(partial(_activations, matrix=matrices[0], fixed=fixed))
    if (prefill := prefill_of(plan)) is not None:
        found.append(partial(_prefill, work=prefill, fixed=fixed))
    found += [partial(_matrix, matrix=m, fixed=fixed) for m in matrices]
    if (attention := attention_of(plan)) is not None:
        found.insert(4, partial(_attention, work=attention))  # it grows with the context: not last
    return found


def _take(device: Device, candidate: Candidate, names: Iterable[str]) -> Device:
    return replace(device, **{name: getattr(candidate.device, name) for name in names})


def _subgroups(device: Device, matrix: Matrix, fixed: frozenset[str]) -> Choice | None:
    """Sums by exchange within subgroups, or through the workgroup's memory. Where subgroups multiply matrices in
    prefill, they are given up only for being wrong.
    """
    if not device.subgroup or "subgroup" in fixed:
        return None
    floats = replace(device, dot8=False)
    candidates = [
        Candidate(f"subgroups of {device.subgroup}", floats),
        Candidate("workgroup memory", replace(floats, subgroup=0, matrix=0)),
    ]
    return Choice(
        "sums",
        matrix,
        candidates,
        partial(_take, names=("subgroup", "matrix")),
        float("inf") if device.matrix else GAIN,
    )


def _prefill(device: Device, work: Prefill, fixed: frozenset[str]) -> Choice:
    """Subgroup matrices, f16 or f32 in mat-mul and attention of many tokens."""
    candidates = []
    for side in dict.fromkeys([device.matrix] if "matrix" in fixed else [device.matrix, 0]):
        for f16 in dict.fromkeys([device.f16] if "f16" in fixed else [device.f16, False]):
            if side and not f16:
                continue
            name = f"subgroup matrices of {side}" if side else "f16" if f16 else "f32"
            candidates.append(Candidate(name, replace(device, matrix=side, f16=f16)))
    return Choice("prefill", work, candidates, partial(_take, names=("matrix", "f16")))


def _activations(device: Device, matrix: Matrix, fixed: frozenset[str]) -> Choice | None:
    """Whether matrices of integers meet their vector as bytes, or as floats."""
    if not device.dot8 or "dot8" in fixed or not tiles.dot8(device, matrix.weight):
        return None
    candidates = [Candidate("bytes", device, ROUNDED), Candidate("floats", replace(device, dot8=False))]
    return Choice("activations", matrix, candidates, partial(_take, names=("dot8",)))


def _matrix(device: Device, matrix: Matrix, fixed: frozenset[str]) -> Choice | None:
    """In which tiles one of the model's matrices meets a vector; and as floats after all, where others do as bytes."""
    real = matrix.weight
    in_bytes = tiles.dot8(device, real)
    candidates = []
    for way in dict.fromkeys([in_bytes] if "dot8" in fixed else [in_bytes, False]):
        tile = tiles.matvec(device, real, way)
        first = (int(way), *tile.values())
        for cut in [first, *(tiles.alternatives(device, real, first) if way == in_bytes else [])]:
            one = replace(device, tiles=((tiles.matvec_key(matrix.cut), cut),))
            name = f"{'bytes' if way else 'floats'}, {cut[1]} x {cut[2]} threads, {cut[3]} rows each"
            name += f", {cut[4]} ahead" if way else ""
            candidates.append(Candidate(name, one, ROUNDED if way else EXACT))
    key = tiles.matvec_key(real)
    return Choice(matrix.name, matrix, candidates, lambda d, c: tiles.with_tile(d, key, c.device.tiles[0][1]))


def _attention(device: Device, work: Attention) -> Choice:
    """How attention of one token is cut: positions of a tile, threads of a position, shares of the context."""
    first = tiles.attention_decode(device, work.real_ctx, work.head_dim, work.group)
    positions, threads, shares = first
    cuts = [first, (positions, 1, shares), (positions, threads, max(1, shares // 2))]
    if not device.software:
        cuts += [(32, min(4, max(1, device.subgroup)), shares), (32, threads, shares)]
        if work.group * (128 * 16 + work.head_dim * 4 + 1024) <= device.max_workgroup_storage:
            cuts.append((128, 1, shares))
    candidates = []
    for cut in dict.fromkeys(cuts):
        one = replace(device, tiles=((tiles.attention_key(work.n_ctx, work.head_dim, work.group), cut),))
        candidates.append(Candidate(f"{cut[0]} positions, {cut[1]} threads each, {cut[2]} shares", one))
    key = tiles.attention_key(work.real_ctx, work.head_dim, work.group)
    return Choice("attention", work, candidates, lambda d, c: tiles.with_tile(d, key, c.device.tiles[0][1]))


async def tune(
    plan: Plan, device: Device, bench: Bench, forced: Iterable[str] = (), seconds: float = SECONDS
) -> tuple[Device, list[dict[str, Any]]]:
    """(the device with what was chosen, a report of each choice): {choice, chosen, why, candidates: [{name,
    microseconds, error} or {name, rejected}]}.
    """
    end = time.perf_counter() + seconds
    reports = []
    for make in choices(plan, device, forced):
        choice = make(device)
        if choice is None or len(choice.candidates) < 2:
            continue
        candidate, report = await _choose(choice, bench, end)
        if candidate is not None:
            device = choice.adopt(device, candidate)
        reports.append(report)
    return device, reports


async def _choose(choice: Choice, bench: Bench, end: float) -> tuple[Candidate | None, dict[str, Any]]:
    trials = _Trials(bench, choice, end)
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
        report["why"] = "no time was left to look at all"
    except WispError as error:
        report["why"] = f"not measured: {error}"
        return None, report
    finally:
        trials.close()
    timed = [i for i, e in enumerate(entries) if "microseconds" in e]
    if not timed:
        right = [i for i, e in enumerate(entries) if "rejected" not in e]
        best = next(iter(right), 0)
        report["why"] = report["why"] or "every candidate was rejected"
        report["chosen"] = entries[best]["name"]
        return (choice.candidates[best] if best else None), report
    first = timed[0]
    best = min(timed, key=lambda i: entries[i]["microseconds"])
    if "microseconds" not in entries[0] and "rejected" not in entries[0]:
        best = 0
    elif entries[first]["microseconds"] < choice.gain * entries[best]["microseconds"]:
        best = first
    reason = "the fastest" if best != first or len(timed) > 1 else "the only one that is right"
    report["why"] = "; ".join(filter(None, [reason, report["why"]]))
    report["chosen"] = entries[best]["name"]
    return choice.candidates[best], report


class _Trials:
    """The trials of one choice, compiled side by side, none of them waited for after the end."""

    def __init__(self, bench: Bench, choice: Choice, end: float) -> None:
        self._end, self._best = end, float("inf")
        plain = plain_of(choice.candidates[0].device)
        wanted = [plain, *(c.device for c in choice.candidates)] if end > time.perf_counter() else []
        self._tasks = [asyncio.ensure_future(bench.trial(device, choice.work)) for device in wanted]

    async def _in_time(self, future: Any) -> Any:
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
        out: list[list[float]] = await self._in_time(trial.outputs())
        return out

    async def measure(self, i: int, candidate: Candidate, entry: dict[str, Any], reference: list[list[float]]) -> None:
        """Fill in what became of a candidate."""
        try:
            trial = await self._in_time(asyncio.shield(self._tasks[1 + i]))
            got = await self._in_time(trial.outputs())
        except WispError as error:
            entry["rejected"] = str(error)
            return
        errors = [nmse(a, b) for a, b in zip(got, reference, strict=True)]
        if wrong := [e for e in errors if not e < candidate.limit]:
            entry["rejected"] = f"wrong: a normalised mean squared error of {wrong[0]:.2g}"
            return
        entry["error"] = max(errors)
        try:
            entry["microseconds"] = round(await self._in_time(trial.microseconds(self._best)), 2)
        except WispError as error:
            entry["rejected"] = str(error)
            return
        self._best = min(self._best, entry["microseconds"])

    async def confirm(self, entries: list[dict[str, Any]]) -> None:
        """Time the first once more where another was faster: what ran first may have run while others compiled."""
        mine = entries[0].get("microseconds", 0.0)
        if mine <= self._best:
            return
        with suppress(WispError):
            again = await self._in_time(self._tasks[1].result().microseconds(self._best))
            entries[0]["microseconds"] = min(mine, round(again, 2))

    def close(self) -> None:
        for task in self._tasks:
            task.add_done_callback(_close)
            task.cancel()


def _close(task: asyncio.Future[Trial]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


def plain_of(device: Device) -> Device:
    """The reference: no f16, no subgroups, nothing rounded."""
    return replace(device, f16=False, subgroup=0, matrix=0, dot8=False, tiles=())


def nmse(got: list[float], want: list[float]) -> float:
    """Normalised mean squared error; not a number where something is not one."""
    if len(got) != len(want):
        return float("nan")
    errors = sum((a - b) ** 2 for a, b in zip(got, want, strict=True))
    return errors / max(1e-30, sum(b * b for b in want))


# -- what is kept ---------------------------------------------------------------------------------------------------


def kernels_hash(files: Iterable[Path] | None = None) -> str:
    """Of the kernels' text and of how they are cut."""
    engine = Path(__file__).parent.parent
    own = [engine / "plan" / "tiles.py", *sorted((engine / "tuning").glob("*.py"))]
    digest = hashlib.sha256()
    for path in files or [*sorted(WGSL.rglob("*.wgsl")), *own]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def key(about: dict[str, Any], header: Header, device: Device, forced: Iterable[str], kernels: str) -> str:
    """What a choice holds for: adapter, browser and way of loading (`about`), kernels, the model's types and shapes."""
    shapes = sorted({f"{t.type.name} {list(t.shape)}" for t in header.tensors.values()})
    numbers = {
        name: value
        for name, value in header.metadata.items()
        if name.startswith(f"{header.architecture}.") and isinstance(value, int | float)
    }
    parts = [about, kernels, shapes, numbers, repr(device), sorted(forced)]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def serialized(device: Device, reports: list[dict[str, Any]]) -> str:
    """What to keep of a choice, as JSON."""
    fields = {name: getattr(device, name) for name in FIELDS}
    return json.dumps({"fields": fields, "tiles": device.tiles, "choices": reports})


def deserialized(device: Device, text: str) -> tuple[Device, list[dict[str, Any]]]:
    """The device and the reports of what was kept. ValueError, KeyError or TypeError for something else."""
    found = json.loads(text)
    cuts = tuple((str(name), tuple(int(n) for n in cut)) for name, cut in found["tiles"])
    return replace(device, tiles=cuts, **{name: found["fields"][name] for name in FIELDS}), list(found["choices"])


def shown(device: Device, reports: list[dict[str, Any]]) -> dict[str, Any]:
    """For Engine.stats(): what is used now, and the choices that led there."""
    return {
        "device": {name: getattr(device, name) for name in FIELDS},
        "tiles": {name: list(cut) for name, cut in device.tiles},
        "choices": reports,
    }
