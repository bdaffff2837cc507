"""The worker's event loop, and tasks that begin at once, in Pyodide."""

from typing import Any

from pytest_pyodide import run_in_pyodide


@run_in_pyodide
async def test_due_callbacks_run_in_order(selenium_node: Any) -> None:
    import asyncio
    import sys
    from typing import Any

    import js
    from pyodide.ffi import create_once_callable

    sys.path.append("/repo")
    from tests.support.pyodide_loop import new_loop

    loop = new_loop()
    ran: list[Any] = []
    errors: list[str] = []
    loop.set_exception_handler(lambda _, context: errors.append(str(context["exception"])))

    def first() -> None:
        ran.append("first")
        loop.call_soon(ran.append, "later")
        raise ValueError("wrong")

    loop.call_soon(first)
    loop.call_soon(ran.append, "cancelled").cancel()
    loop.call_soon(ran.append, "second")
    js.setTimeout(create_once_callable(lambda: ran.append("another task")))
    assert not ran
    await asyncio.sleep(0.05)
    assert ran == ["first", "second", "another task", "later"]
    assert errors == ["wrong"]


@run_in_pyodide
async def test_callbacks_run_after_one_that_ends_the_task(selenium_node: Any) -> None:
    """SystemExit leaves the browser's task; another one runs what is still due."""
    import asyncio
    import sys
    from contextlib import suppress
    from typing import Any

    sys.path.append("/repo")
    from tests.support.pyodide_loop import new_loop

    loop = new_loop()
    ran: list[Any] = []
    loop._due.append(asyncio.Handle(sys.exit, (), loop))  # without a task of the browser: the test runs it
    loop.call_soon(ran.append, "after")
    with suppress(SystemExit):
        loop._run_due(None)
        ran.append("no SystemExit")
    assert not ran
    loop.call_soon(ran.append, "last")
    await asyncio.sleep(0.05)
    assert ran == ["after", "last"]


@run_in_pyodide
async def test_a_time_that_is_over_is_now(selenium_node: Any) -> None:
    """A timeout may end while asyncio sets it."""
    import asyncio
    import sys
    from typing import Any

    sys.path.append("/repo")
    from tests.support.pyodide_loop import new_loop

    loop = new_loop()
    ran: list[Any] = []
    loop.call_at(loop.time() - 5, ran.append, "over")
    loop.call_later(0.001, ran.append, "soon")
    loop.call_later(-1, ran.append, "cancelled").cancel()
    await asyncio.sleep(0.05)
    assert sorted(ran) == ["over", "soon"]


@run_in_pyodide
async def test_a_task_begins_at_once(selenium_node: Any) -> None:
    import asyncio

    from py_engine.tasks import begin

    ran: list[int] = []

    async def work() -> int:
        ran.append(1)
        await asyncio.sleep(0)
        ran.append(2)
        return 3

    task = begin(work())
    assert ran == [1]
    assert await task == 3
    assert ran == [1, 2]
