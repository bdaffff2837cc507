"""Faults in kernels: the proof finds those that change results, before the first token.

WISP_FAULTS=200 injects so many, WISP_FAULT_SEED=7 others. A fault that the proof does not find is run on other data, in
other places and at larger sizes, beside the right kernel: it must not change results there either.
"""

import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from playwright.sync_api import Browser, Error, Playwright

from py_engine.plan.kernels import Device, Shader
from py_engine.planner import PlanOptions, make_plan
from py_engine.proof import batches, cases, comparison, reduction
from py_engine.proof.case import Case
from tests.support import browser as browsers
from tests.support.cpu_models import header, with_vocab
from tests.support.kernels.bench import RUNNER, variants
from tests.support.kernels.faults import Fault, random_fault
from tests.support.kernels.proofs import run_case
from tools.paths import ROOT
from tools.serve import Server

FAULTS = int(os.environ.get("WISP_FAULTS", "8"))
SEED = int(os.environ.get("WISP_FAULT_SEED", "1"))
MODELS = [
    ("llama/llama.Q4_K_M", "f16"),
    ("llama/mixtral.Q4_K_M", "q8_0"),
    ("lfm2/lfm2.F16", "f32"),
    ("gemma/gemma3.Q8_0", "f16"),
]
LARGER = [(3, 2, 61, 5), (40, 4, 17, 6), (70, 4, 130, 7)]  # rows more, heads, first position, seed
# Milliseconds, compilation included, until a kernel counts as endless: SOON_MS where another fault then replaces this
# one, because waiting costs a processor (a kernel usually takes less than a second); ENDS_MS where it decides the test.
ENDS_MS, SOON_MS = 120_000, 15_000
OTHER_PLACES = ((5, 0), (6, 0), (7, 0), (127, 1), (batches.FAR, 2), (200, 3), (33, 4), (64, 5))
N_CTX, BATCH = 512, 64


def cases_of(device: Device, model: str, kv_type: str, seed: int = 1) -> list[Case]:
    plan = make_plan(with_vocab(header(model)), device, PlanOptions(N_CTX, BATCH, kv_type))
    return list(cases.cases(plan, device, plan.lists, lambda shader: False, seed))


@contextmanager
def sizes(more: int, heads: int, start: int) -> Iterator[None]:
    """Cases of other sizes."""
    old = reduction.MORE, reduction.HEADS, batches.START, batches.SMALL_BATCH
    reduction.MORE, reduction.HEADS, batches.START, batches.SMALL_BATCH = more, heads, start, OTHER_PLACES
    try:
        yield
    finally:
        reduction.MORE, reduction.HEADS, batches.START, batches.SMALL_BATCH = old


class Faulty:
    """A device whose compiler changes one kernel. It gets another browser after a kernel that does not end."""

    def __init__(self, launch: Callable[[], Browser], url: str) -> None:
        self._launch, self._url = launch, url
        self._browser: Browser | None = None
        self.restart()
        self.device = variants(self.capabilities)["f32 subgroups"]
        self._larger: dict[tuple[str, str], list[list[Case]]] = {}

    def restart(self) -> None:
        """Open a page in a new browser."""
        self.close()
        self._browser = self._launch()
        self.page = browsers.new_profile(self._browser).new_page()
        self.page.goto(f"{self._url}tests/blank.html")
        self.page.evaluate(f"import('/repo/{RUNNER.relative_to(ROOT)}')")
        self.capabilities = self.page.evaluate("kernels.open()")
        self.page.evaluate(
            """() => {
                const run = kernels.run;
                const late = () => new Promise((_, reject) => setTimeout(reject, endsMs, new Error("does not end")));
                kernels.run = (job) => Promise.race([run(job), late()]);
            }"""
        )

    def close(self) -> None:
        if self._browser is not None:
            self._browser.close()

    def run(self, case: Case, label: str, fault: Fault | None, ends_ms: int = ENDS_MS) -> dict[str, np.ndarray]:
        self.page.evaluate("(ms) => void (globalThis.endsMs = ms)", ends_ms)

        def edit(shader: Shader) -> Shader:
            return fault.apply(shader) if fault and shader.label == label else shader

        return run_case(self.page, case, self.device, edit)

    def found(self, made: list[Case], label: str, fault: Fault) -> str | None:
        """What the proof reports. Playwright's Error if the kernel no longer compiles, or does not end."""
        results = ((case, self.run(case, label, fault, SOON_MS)) for case in made)
        return next((why for case, got in results if (why := comparison.fault(case, got))), None)

    def differs(self, model: tuple[str, str], label: str, fault: Fault) -> bool:
        """Whether results change, by more than rounding, at other places and sizes."""
        if model not in self._larger:
            self._larger[model] = []
            for more, heads, start, seed in LARGER:
                with sizes(more, heads, start):
                    self._larger[model].append(cases_of(self.device, *model, seed))
        for made in self._larger[model]:
            for case in made:
                if label in [shader.label for shader in case.shaders]:
                    right = self.run(case, label, None)
                    case.want = {name: right[name].reshape(want.shape) for name, want in case.want.items()}
                    try:
                        wrong = comparison.fault(case, self.run(case, label, fault))
                    except Error:  # it does not end
                        self.restart()
                        return True
                    if wrong:
                        return True
        return False


@pytest.fixture
def faulty(playwright_run: Playwright, server: Server) -> Iterator[Faulty]:
    made = Faulty(lambda: browsers.launch(playwright_run, "swiftshader"), server.url)
    yield made
    made.close()


@pytest.mark.slow
def test_faults_that_change_results_are_found(faulty: Faulty) -> None:
    source = random.Random(SEED)
    kernels: dict[str, list[tuple[tuple[str, str], str]]] = defaultdict(list)  # name -> (model, label)
    of_label: dict[tuple[tuple[str, str], str], list[Case]] = defaultdict(list)
    for model in MODELS:
        for case in cases_of(faulty.device, *model):
            for shader in case.shaders:
                if (model, shader.label) not in of_label:
                    kernels[shader.label.partition(" ")[0]].append((model, shader.label))
                of_label[model, shader.label].append(case)
    counts, missed, tried = Counter[str](), list[Fault](), set[tuple[str, Fault]]()
    names = sorted(kernels)
    while counts["found"] + counts["no change"] + len(missed) < FAULTS:
        name = names[len(tried) % len(names)]
        model, label = source.choice(kernels[name])
        made = of_label[model, label]
        shader = next(s for s in made[0].shaders if s.label == label)
        fault = random_fault(shader, source)
        if (label, fault) in tried:
            continue
        tried.add((label, fault))
        try:
            why = faulty.found(made, label, fault)
        except Error as error:
            ends = "does not end" not in str(error)
            counts["does not compile" if ends else "does not end"] += 1
            if not ends:  # a browser with a GPU ends it, which the engine notices as a lost GPU
                faulty.restart()
            continue
        if len(tried) % 20 == 0:
            print(len(tried), "tried", flush=True)
        if why:
            counts["found"] += 1
            counts[f"found: {fault.kind}"] += 1
        elif faulty.differs(model, label, fault):
            missed.append(fault)
            print(f"MISSED {label}: {fault.before} -> {fault.line.strip()}")
        else:
            counts["no change"] += 1
            print(f"no change {name}: {fault.before} -> {fault.line.strip()}")
    print(dict(counts), f"missed {len(missed)}")
    assert counts["does not end"] <= 1 + FAULTS // 3, "the machine may be too busy to say that a kernel does not end"
    assert not missed
