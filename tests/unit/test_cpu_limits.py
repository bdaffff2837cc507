"""What the CPU engine's module says that the processor can do at most, in wasmtime."""

import asyncio
from typing import Any

import pytest

from py_engine.cpu import limits
from py_engine.cpu.limits import Limits
from py_engine.errors import WispError
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan.plan import Op, Weight
from py_engine.plan.traffic import Traffic
from tests.support.wasm_machine import Machine

LIMITS = Limits([(1000, 10.0), (2000, 30.0)], products=4.0, madds=1.0, matvec=2.0)


def product(type: Q) -> Op:
    return Op("matvec", {}, {}, {"w": Weight("w", type, 32, 32, ())}, (1, 1, 1))


@pytest.mark.parametrize("variant", ["simd", "pairs", "dots"])
def test_rates_are_measured(variant: str) -> None:
    machine: Any = Machine(variant)
    found = asyncio.run(limits.measure(machine, 1))
    assert [size for size, _ in found.rates] == [*limits.SIZES]
    assert all(ns > 0 for _, ns in found.rates)
    assert min(found.multiply_rates.values()) > 0
    assert found.matvec > 0


def test_sizes_for_which_there_is_no_memory_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    machine: Any = Machine()
    grow = machine.grow

    async def limited(end: int) -> None:
        if end > 16 << 20:
            raise WispError("There is no more memory.", "out_of_memory")
        await grow(end)

    monkeypatch.setattr(machine, "grow", limited)
    assert [size for size, _ in asyncio.run(limits.measure(machine, 1)).rates] == [64 << 10, 1 << 20, 8 << 20]


def test_an_op_takes_as_long_as_its_reads_or_its_products() -> None:
    assert LIMITS.op_ns(product(Q.Q4_0), Traffic(1000, 0, 8)) == 10
    assert LIMITS.op_ns(product(Q.Q4_0), Traffic(500, 0, 8)) == 5
    assert LIMITS.op_ns(product(Q.Q4_0), Traffic(1000, 0, 800)) == 100
    assert LIMITS.op_ns(product(Q.F16), Traffic(1000, 0, 800)) == 400
    assert LIMITS.op_ns(Op("norm", {}, {}, {}, (1, 1, 1)), Traffic(1000, 0, 800)) == 400


def test_a_step_reads_what_is_in_no_cache() -> None:
    ops = [(product(Q.Q4_0), Traffic(1000, 0, 8)), (product(Q.Q4_0), Traffic(0, 0, 800))]
    assert LIMITS.step_ns(ops) == 15 + 100
    assert LIMITS.expected_ns(ops) == 15 + 200
