"""Proves a plan's kernels on the device that will run them, before the first token.

A kernel that is known is not run again. The cases of all others go to the device in one submit. Those of the lists that
a load needs are made and uploaded while the pipelines are compiled: numpy takes as long to start and to compute as the
device.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

from py_engine.errors import SERVER_ERROR, WispError
from py_engine.plan.kernels import Shader
from py_engine.proof.variants import SAMPLER_KERNELS, WrongKernels, blamed, check, shaders_of, upload_shaders

if TYPE_CHECKING:
    from py_engine.gpu.gpu import Gpu
    from py_engine.proof.device_run import DeviceRun
    from py_engine.proof.proven import Proven

LoadPackage = Callable[[str], Awaitable[Any]]
SEEDS = 1, 2  # a sampler must be wrong with both: a single token may hang on a rounding


class Prover:
    """The proof of one plan on one device. `stats`: for Engine.stats()."""

    def __init__(self, gpu: Gpu, proven: Proven, load_package: LoadPackage | None) -> None:
        self._gpu, self._proven, self._load_package = gpu, proven, load_package
        self._in_use = False
        self._prepared: tuple[list[str], asyncio.Task[DeviceRun]] | None = None  # lists, and their cases
        self.stats: dict[str, Any] = {"checked": 0, "known": 0, "skipped": [], "ms": 0.0, "prepare_ms": 0.0}

    def model_in_use(self) -> None:
        """The model is loaded: a wrong kernel from now on is treated like a lost GPU, so that the model loads again."""
        self._in_use = True

    def prepare(self, names: Iterable[str]) -> None:
        """Begin to make the cases of lists that are compiled meanwhile. prove() waits for them, close() ends it."""
        names = sorted(names)
        if self.unproven(names):
            task = asyncio.ensure_future(self._prepare(names))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved
            self._prepared = names, task

    def unproven(self, names: Iterable[str]) -> bool:
        """Whether a kernel of lists has not been run on this device."""
        return any(not self._proven.knows(shader) for shader in self._shaders(sorted(names)))

    def close(self) -> None:
        """Stop preparing."""
        if self._prepared is not None:
            _, task = self._prepared
            self._prepared = None
            if not task.cancel() and not task.cancelled() and not task.exception():
                task.result().free()

    async def prove(self, names: Iterable[str]) -> None:
        """Prove the kernels of lists, which are compiled. WrongKernels, or device_lost once the model is in use."""
        names = sorted(names)
        shaders = self._shaders(names)
        unknown = [s for s in shaders if not self._proven.knows(s)]
        self.stats["known"] += len(shaders) - len(unknown)
        if unknown:
            started = time.perf_counter()
            await self._find_out(names, unknown)
            self.stats["ms"] = round(self.stats["ms"] + 1000 * (time.perf_counter() - started), 1)
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
        return of_lists if self._in_use else of_lists + upload_shaders(self._gpu.plan, self._gpu.variant)

    async def _prepare(self, names: list[str]) -> DeviceRun:
        started = time.perf_counter()
        run = await self._uploaded(names, SEEDS[0])
        try:
            from py_engine.proof import comparison  # noqa: F401, so that prove() need not wait for it

            for case in run.cases:
                case.sizes  # noqa: B018, nor for this
                await asyncio.sleep(0)
        except BaseException:
            run.free()
            raise
        self.stats["prepare_ms"] = round(1000 * (time.perf_counter() - started), 1)
        return run

    async def _find_out(self, names: list[str], unknown: list[Shader]) -> None:
        try:
            right, wrong = await self._run(names, SEEDS[0])
        except WispError:  # too little memory, or a lost device, which the load itself reports
            self.stats["skipped"] = sorted({*self.stats["skipped"], *(s.label for s in unknown)})
            return
        if samplers := {label for label in wrong if label.startswith(SAMPLER_KERNELS)}:
            _, again = await self._run(names, SEEDS[1])
            for label in samplers - set(again):
                del wrong[label]
                right.add(label)
        found = {s.label: wrong.get(s.label, "") for s in unknown if s.label in right or s.label in wrong}
        self._proven.add([(s, found[s.label]) for s in unknown if s.label in found])
        self.stats["checked"] += len(found)
        self.stats["skipped"] += sorted({s.label for s in unknown} - set(found) - set(self.stats["skipped"]))

    async def _run(self, names: list[str], seed: int) -> tuple[set[str], dict[str, str]]:
        """Run the cases of kernels that are not known: labels of right ones, and of wrong ones with what is wrong."""
        run = await self._prepared_or_new(names, seed)
        from py_engine.proof.comparison import fault

        right: set[str] = set()
        wrong: dict[str, str] = {}
        for case, got in zip(run.cases, await run.run(), strict=True):
            if why := fault(case, got):
                wrong |= {shader.label: why for shader in blamed(case.shaders)}
            else:
                right |= {shader.label for shader in case.shaders}
        return right - set(wrong), wrong

    async def _prepared_or_new(self, names: list[str], seed: int) -> DeviceRun:
        """The prepared run, if it is of these lists, or a new one."""
        if self._prepared is None or self._prepared[0] != names or seed != SEEDS[0]:
            self.close()
            return await self._uploaded(names, seed)
        _, task = self._prepared
        self._prepared = None  # also if it failed: else it would be awaited again
        return await task

    async def _uploaded(self, names: list[str], seed: int) -> DeviceRun:
        """A run of the cases of kernels that are not known."""
        if self._load_package is not None:
            await self._load_package("numpy")
        from py_engine.proof.cases import cases
        from py_engine.proof.device_run import DeviceRun
        from py_engine.proof.upload_cases import upload_cases

        made = []
        plan, device, knows = self._gpu.plan, self._gpu.variant, self._proven.knows
        of_upload = upload_cases(plan, device, knows, seed) if not self._in_use else ()
        for case in chain(of_upload, cases(plan, device, names, knows, seed)):
            made.append(case)
            await asyncio.sleep(0)  # downloads go on
        run = DeviceRun(self._gpu.device, self._gpu.pipelines, made)
        try:
            await run.upload()
        except BaseException:
            run.free()
            raise
        return run
