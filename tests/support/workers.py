"""Runs whole folders of tests in several processes (pytest-xdist); `-n 0` runs them in one.

On software GPUs most of the time goes into compiling shaders, and a GPU process compiles one at a time. So each worker
has a browser of its own per adapter. Mesa's shader cache is shared.

A test of a page waits for a third to half of its time: for the network, a timer, or the next process. Tests of kernels
and engines compute all the time. So where the tests of browsers begin, a third of the workers take those that compute,
and the others those of pages: together they leave neither of the two cores of continuous integration idle.
"""

from __future__ import annotations

import fcntl
import gc
import os
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tools import dist
from tools.paths import cache_dir

WORKERS = 5
WORKER_GB = 2.5  # of memory: a worker's Python, its two browsers, and what a test opens
ONE_BROWSER = ("lavapipe-wide", "lavapipe-optimized", "-cpu]")  # in the names of tests of engines
SWIFTSHADER = ("tests/engine/test_upload.py", "tests/engine/test_inspection.py")
COMPUTING = ("tests/engine/", "tests/kernels/")
# Files of kernels' tests whose functions share pipelines: to compile them in each worker takes more than the tests do.
ONE_COMPILE = tuple(
    f"tests/kernels/test_{name}.py" for name in ("draft_kernels", "expert_adapters", "experts", "sampling")
)
VARIANT = ": f"  # a kernel variant's name: "lavapipe: f16 subgroups"
# Numpy's small products take four times as long with threads, which wait for each other where cores are busy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of workers: none for single files or a selection by name, which start faster without."""
    folders = all(Path(argument).is_dir() for argument in config.args)
    return _workers() if folders and not config.option.keyword else 0


def _workers() -> int:
    """WORKERS, or fewer on a machine with little memory; at least two, as for `test --fast`."""
    if not hasattr(os, "sysconf"):
        return WORKERS
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(WORKERS, max(2, int(memory / 1e9 / WORKER_GB)))


@pytest.hookimpl(trylast=True)  # after the terminal reporter
def pytest_configure(config: pytest.Config) -> None:
    """Name failures when they happen: a run takes many minutes."""
    terminal = config.pluginmanager.getplugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailureNames(terminal))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Let one worker import the tests before the others do: in a new checkout it compiles them, for all.

    That takes 25 seconds of a processor, and reading what was compiled 8.
    """
    run = getattr(session.config, "workerinput", {}).get("testrunuid")
    if run is None:
        return (yield)
    with (cache_dir("computed") / "imported").open("a+") as last_run:
        fcntl.flock(last_run, fcntl.LOCK_EX)
        last_run.seek(0)
        if last_run.read() != run:
            result = yield
            last_run.truncate(0)
            last_run.write(run)
            return result
    return (yield)


def pytest_collection_finish() -> None:
    """Let garbage collections skip the thousands of collected tests. What unloads a model collects garbage at once."""
    gc.collect()
    gc.freeze()


class FailureNames:
    """Prints the name of each test that fails, at once."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print the name."""
        if report.failed:
            self._terminal.write_line(f" {report.nodeid}")


def pytest_xdist_setupnodes() -> None:
    """Make dist/ before the workers start; their fixture `dist` relies on it."""
    dist.made()


def scope(nodeid: str) -> str:
    """Return the name of the tests that one worker runs in a row, because they share fixtures or pipelines.

    These are a file's tests. Kernels' tests share the pipelines of a test function, in one variant where it names one,
    but those of ONE_COMPILE the pipelines of a file.
    Engines share nothing, nor do checkers. Files of the Python package share a Python. Models on an adapter that few
    use share its browser (ONE_BROWSER), and so do the tests of SWIFTSHADER: starting another one with an engine takes
    five seconds. Tests of the build share dist/, which they write. Those of `dev` write a copy, and run late, because
    they start a browser (conftest.py).
    """
    file, _, name = nodeid.partition("::")
    if file.startswith("tests/engine/"):
        return next((adapter for adapter in ONE_BROWSER if adapter in name), file if file in SWIFTSHADER else nodeid)
    if file.startswith("tests/build/") and file != "tests/build/test_dev.py":
        return "tests/build"
    if file.startswith("tests/e2e/python_package/"):
        return "tests/e2e/python_package"
    if file.startswith("tests/kernels/") and file not in ONE_COMPILE:
        function, _, parameters = name.partition("[")
        first = parameters.partition("-")[0]
        return f"{file}::{function}[{first}" if VARIANT in first else f"{file}::{function}"
    return nodeid if file.startswith("tests/unit/test_style.py") else file


def next_scope(queue: Mapping[str, Mapping[str, bool]], worker: int, workers: int) -> str:
    """Return the scope that a worker takes next. `queue`: scopes with their tests, in the order of collection.

    A third of the workers take the first scope that computes, once no test is left that must run before Playwright
    starts (conftest.py): the unit tests are the last of these. Otherwise it is the first scope.
    """
    first = {name: next(iter(tests)) for name, tests in queue.items()}
    if worker < (workers + 1) // 3 and not any(test.startswith("tests/unit/") for test in first.values()):
        return next((name for name, test in first.items() if test.startswith(COMPUTING)), next(iter(first)))
    return next(iter(first))


class Scheduler(LoadScopeScheduling):
    """Gives each worker that is free its next scope."""

    def _split_scope(self, nodeid: str) -> str:
        return scope(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        worker = int(node.gateway.id.removeprefix("gw"))
        self.workqueue.move_to_end(next_scope(self.workqueue, worker, self.numnodes), last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduler:
    """Replace the schedulers of --dist. Their order, most tests first, would start with browsers."""
    config.option.loadscopereorder = False
    return Scheduler(config, log)
