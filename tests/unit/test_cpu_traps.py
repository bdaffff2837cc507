"""Threads of the CPU engine's module, in wasmtime."""

import asyncio
import threading
from array import array

import pytest
import wasmtime

from py_engine.cpu.call_layouts import pack
from py_engine.cpu.device import Copy
from tests.support.wasm_machine import Machine

THREADS, STACK, WORD, HANG_S = 2, 1 << 16, 4, 30.0
SIZE = 16 << 20  # bytes that are read, in chunks


def reads_beyond_the_memory() -> tuple[Machine, list[tuple[int, int]]]:
    """A machine, and a list of one op. Only the op's last chunk reads what is not there."""
    machine = Machine(threads=THREADS)
    results = machine.base + THREADS * STACK
    calls = results + STACK
    region = calls + STACK
    asyncio.run(machine.grow(region + SIZE - SIZE // 64))
    machine.start(THREADS, machine.base, STACK, results, 0)
    call = pack("read", {"x": region // WORD, "bytes": SIZE + STACK, "y": results // WORD})
    data = array("I", [(calls + WORD) // WORD]).tobytes() + call
    machine.write(data, [Copy(calls, 0, len(data))])
    return machine, [(calls, 1)]


@pytest.mark.parametrize("_", range(8))  # in about half of them, the first thread has the last chunk
def test_a_list_ends_when_a_thread_traps(_: int) -> None:
    """The other threads waited for its chunk for ever."""
    machine, lists = reads_beyond_the_memory()
    errors: list[wasmtime.Trap] = []

    def run() -> None:
        try:
            machine.run(lists)
        except wasmtime.Trap as error:
            errors.append(error)

    running = threading.Thread(target=run, daemon=True)
    running.start()
    running.join(HANG_S)
    assert not running.is_alive()
    assert errors
