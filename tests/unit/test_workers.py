"""Which tests a worker of a whole run takes next (tests/support/workers.py)."""

import pytest

from tests.support.workers import ONE_COMPILE, next_scope, scope
from tools.paths import ROOT

UNIT, PAGE, ENGINE, KERNEL = (
    f"tests/{name}.py::test" for name in ("unit/test_a", "e2e/test_b", "engine/test_c", "kernels/test_d")
)


@pytest.mark.parametrize(("workers", "computing"), [(1, 0), (2, 1), (3, 1), (4, 1), (5, 2)])
def test_a_third_of_the_workers_compute_while_others_drive_pages(workers: int, computing: int) -> None:
    queue = {name: {name: False} for name in (PAGE, ENGINE, KERNEL)}
    first = [next_scope(queue, worker, workers) for worker in range(workers)]
    assert first == [ENGINE] * computing + [PAGE] * (workers - computing)


def test_no_worker_starts_a_browser_while_tests_wait_that_need_an_event_loop() -> None:
    queue = {name: {name: False} for name in (UNIT, PAGE, KERNEL)}
    assert {next_scope(queue, worker, 4) for worker in range(4)} == {UNIT}


def test_a_worker_takes_the_other_kind_where_its_own_is_done() -> None:
    assert next_scope({PAGE: {PAGE: False}}, 0, 4) == PAGE
    assert next_scope({KERNEL: {KERNEL: False}}, 3, 4) == KERNEL


def test_a_scope_is_of_the_kind_of_its_tests_whatever_its_name() -> None:
    """Models on an adapter that few use are in a scope with the adapter's name."""
    assert next_scope({"page": {PAGE: False}, "lavapipe-wide": {ENGINE: False}}, 0, 4) == "lavapipe-wide"


def test_kernels_are_compiled_once_where_functions_share_them() -> None:
    of_variants = {
        scope(f"tests/kernels/test_wkv.py::test_a[{name}-1]") for name in ("lavapipe: f16", "swiftshader: f32")
    }
    assert len(of_variants) == 2
    assert scope("tests/kernels/test_wkv.py::test_a[3]") != scope("tests/kernels/test_wkv.py::test_b[3]")
    for file in ONE_COMPILE:
        assert (ROOT / file).exists()
        assert scope(f"{file}::test_a[swiftshader: f32-1]") == scope(f"{file}::test_b") == file
