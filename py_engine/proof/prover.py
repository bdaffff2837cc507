"""Proves a plan's kernels on the device that will run them, before the first token.

A kernel that is known is not run again. The cases of all others go to the device in one submit. They are made and
uploaded while the pipelines are compiled: numpy takes as long to start and to compute as the device.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from py_engine.errors import SERVER_ERROR, WispError
from py_engine.gpu import repack
from py_engine.plan.kernels import Shader
from py_engine.proof.modules import SEEDS, LoadPackage, Turn, import_modules
from py_engine.proof.variants import SAMPLER_KERNELS, WrongKernels, blamed, check, shaders_of
from py_engine.tasks import begin

if TYPE_CHECKING:
    from py_engine.gpu.gpu import Gpu
    from py_engine.proof.device_run import DeviceRun
    from py_engine.proof.proven import Proven

MAX_WHY = 200  # characters of a compiler's message: the longest have many lines

Result = TypeVar("Result")


class ListsProof:
    """The proof of lists' kernels. Its cases are made while these are compiled."""

    def __init__(self, prover: Prover, names: list[str]) -> None:
        self._prover, self._names = prover, names
        self._cases = _task(prover.prepared(names)) if prover.unproven(names) else None
        self._proving: asyncio.Task[None] | None = None

    def run(self) -> None:
        """Run the kernels, which are compiled now."""
        self._proving = _task(self._prover.prove(self._names, self._cases))

    async def end(self) -> None:
        """Wait for the results of run(). WispError as Prover.prove()."""
        assert self._proving is not None
        await self._proving

    def close(self) -> None:
        """Stop what is not finished, and free the device's memory for the cases."""
        if self._proving is not None:
            self._proving.cancel()
        cases = self._cases
        if cases is not None and not cases.cancel() and not cases.cancelled() and not cases.exception():
            cases.result().free()


def _task(work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
    task = begin(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved
    return task


class Prover:
    """The proof of one plan on one device. `stats`: for Engine.stats()."""

    def __init__(self, gpu: Gpu, proven: Proven, load_package: LoadPackage | None) -> None:
        self._gpu, self._proven, self._load_package = gpu, proven, load_package
        self._in_use = False
        self.stats: dict[str, Any] = {"checked": 0, "known": 0, "skipped": [], "ms": 0.0, "prepare_ms": 0.0}

    def model_in_use(self) -> None:
        """The model is loaded: a wrong kernel from now on is treated like a lost GPU, so that the model loads again."""
        self._in_use = True

    def begin(self, names: Iterable[str]) -> ListsProof:
        """Begin to prove the kernels of lists that are compiled meanwhile."""
        return ListsProof(self, sorted(names))

    def unproven(self, names: Iterable[str]) -> bool:
        """Whether a kernel of lists has not been run on this device."""
        return any(not self._proven.knows(shader) for shader in self._shaders(sorted(names)))

    async def prove(self, names: list[str], cases: asyncio.Task[DeviceRun] | None) -> None:
        """Prove the kernels of lists, which are compiled. WrongKernels, or device_lost once the model is in use.

        `cases`: of prepared(names); None if all kernels are known.
        """
        shaders = self._shaders(names)
        unknown = [s for s in shaders if not self._proven.knows(s)]
        self.stats["known"] += len(shaders) - len(unknown)
        if unknown and cases is not None:
            started = time.perf_counter()
            await self._find_out(names, unknown, cases)
            self.stats["ms"] = round(self.stats["ms"] + 1000 * (time.perf_counter() - started), 1)
        self._check(shaders)

    def reject(self, shader: Shader, why: str, *, by_text: bool) -> None:
        """Note that a kernel does not compile. Raises as prove().

        `by_text`: the browser refuses its text, so it will next time, too.
        """
        line = " ".join(why.split())[:MAX_WHY]
        self._proven.add([(shader, f"it does not compile: {line}")], of_worker=not by_text)
        self._check([shader])

    def _check(self, shaders: list[Shader]) -> None:
        try:
            check(shaders, self._proven)
        except WrongKernels as error:
            if not self._in_use:
                raise
            self._gpu.give_up(error.message)
            raise WispError(error.message, "device_lost", SERVER_ERROR) from None

    def _shaders(self, names: list[str]) -> list[Shader]:
        """The kernels of lists; those of uploads, too, with the first lists."""
        of_lists = shaders_of(self._gpu.plan, self._gpu.variant, names)
        return of_lists if self._in_use else of_lists + repack.shaders(self._gpu.plan, self._gpu.variant)

    async def prepared(self, names: list[str]) -> DeviceRun:
        """The cases of lists, on the device, and all that prove() needs beside pipelines."""
        started, turn = time.perf_counter(), Turn()
        run = await self._uploaded(names, SEEDS[0])
        try:
            for case in run.cases:
                case.sizes  # noqa: B018, so that prove() need not wait for it
                await turn.end()
        except BaseException:
            run.free()
            raise
        self.stats["prepare_ms"] = round(self.stats["prepare_ms"] + 1000 * (time.perf_counter() - started), 1)
        return run

    async def _find_out(self, names: list[str], unknown: list[Shader], cases: asyncio.Task[DeviceRun]) -> None:
        try:
            right, wrong = await self._run(await cases)
        except WispError:  # too little memory, or a lost device, which the load itself reports
            self.stats["skipped"] = sorted({*self.stats["skipped"], *(s.label for s in unknown)})
            return
        if samplers := {label for label in wrong if label.startswith(SAMPLER_KERNELS)}:
            _, again = await self._run(await self._uploaded(names, SEEDS[1]))
            for label in samplers - set(again):
                del wrong[label]
                right.add(label)
        found = {s.label: wrong.get(s.label, "") for s in unknown if s.label in right or s.label in wrong}
        self._proven.add([(s, found[s.label]) for s in unknown if s.label in found])
        self.stats["checked"] += len(found)
        self.stats["skipped"] += sorted({s.label for s in unknown} - set(found) - set(self.stats["skipped"]))

    async def _run(self, run: DeviceRun) -> tuple[set[str], dict[str, str]]:
        """Run cases: labels of right kernels, and of wrong ones with what is wrong."""
        from py_engine.proof.comparison import fault

        right: set[str] = set()
        wrong: dict[str, str] = {}
        for case, got in zip(run.cases, await run.run(), strict=True):
            if why := fault(case, got):
                wrong |= {shader.label: why for shader in blamed(case.shaders)}
            else:
                right |= {shader.label for shader in case.shaders}
        return right - set(wrong), wrong

    async def _uploaded(self, names: list[str], seed: int) -> DeviceRun:
        """A run of the cases of kernels that are not known."""
        await import_modules(self._load_package)
        from py_engine.proof.cases import cases
        from py_engine.proof.device_run import DeviceRun
        from py_engine.proof.upload_cases import upload_cases

        made, turn = [], Turn()
        plan, device, knows = self._gpu.plan, self._gpu.variant, self._proven.knows
        of_upload = upload_cases(plan, device, knows, seed) if not self._in_use else ()
        for case in chain(of_upload, cases(plan, device, names, knows, seed)):
            made.append(case)
            await turn.end()
        run = DeviceRun(self._gpu.device, self._gpu.pipelines, made)
        try:
            await run.upload()
        except BaseException:
            run.free()
            raise
        return run
