"""Random bodies for every endpoint, answered by the worker: handlers, templates, tokenizer and answers are real.

The engine says the same to every request. After each case it must still say so to a plain one.
"""

import asyncio
import copy
from array import array
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any
from unittest.mock import patch

from app.answers import grammar
from py_engine.errors import CODES
from tests.fuzz.endpoint_bodies import BODIES, JOURNAL, VALUES
from tests.support.worker_page import HELLO, HI, Page, Platform

NAMES = ("x", "", "__class__", "type", "content", "messages", "model")  # of fields that are added


class Browser(Platform):
    """A browser whose files are hostile."""

    async def read_media(self, file: Any) -> bytes:
        return b"RIFF" + bytes(file)

    async def read_pdf(self, data: bytes) -> str:
        raise ValueError("it is damaged")

    async def read_video(self, data: bytes, fps: float, most: int) -> list[tuple[float, bytes]]:
        return [(fps, data)] * most

    async def load_grammar(self, instance: int) -> Any:
        return Masks()


class Embeddings:
    """Embeddings of four numbers; a ranking where `pooling` says so."""

    preferred, width, pooling = False, 4, "last"

    async def all(self, groups: Any, pooling: str, *, unit: bool) -> Any:
        for group in groups:
            yield array("f", [1, 2, 3, 4] * len(group))

    async def scores(self, groups: Any) -> Any:
        for group in groups:
            yield [[0.5]] * len(group)


class Masks:
    """A mask engine that allows everything."""

    slow = False
    damaged = False

    async def open(self, *_: Any) -> "Masks":
        return self

    compile = matcher = mask = mayEnd = open

    def accept(self, token: int) -> bool:
        return True

    acceptText = accept

    def forced(self) -> str:
        return ""

    def finished(self) -> bool:
        return False

    def close(self) -> None: ...

    @property
    def trials(self) -> "Masks":
        return self

    prepare = drop = close

    async def isQuick(self, text: str) -> bool:
        return True


@cache
def worker() -> tuple[asyncio.AbstractEventLoop, Page]:
    """One worker for all cases."""
    with patch("tests.support.worker_page.Platform", Browser):
        page = Page()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(page.call("load", model="mini"))
    engine: Any = page.engine
    engine.parallel, engine.one_at_a_time, engine.embeddings, engine.context_length = 4, False, Embeddings(), 20_000
    return loop, page


def changed(rng: Random, root: Any, times: int) -> Any:
    """A value some of whose parts are replaced, removed, moved or repeated."""
    root = copy.deepcopy(root)
    for _ in range(times):
        places = list(_places(root))
        if not places or len(places) > 20_000 or rng.random() < 0.01:
            return copy.deepcopy(rng.choice(VALUES))
        holder, key = rng.choice(places)
        chance = rng.random()
        if chance < 0.1:
            del holder[key]
        elif chance < 0.2 and isinstance(holder, list):
            holder += copy.deepcopy(holder) * rng.choice((1, 2, 150))
            del holder[300:]
        elif chance < 0.2:
            holder[rng.choice(NAMES)] = copy.deepcopy(rng.choice(VALUES))
        elif chance < 0.3:
            there, name = rng.choice(places)
            holder[key] = copy.deepcopy(there[name])
        else:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
    return root


def _places(root: Any) -> Iterator[tuple[Any, Any]]:
    """All places of a value: (an object or list, the key or index in it)."""
    if isinstance(root, dict | list):
        for key, inner in root.items() if isinstance(root, dict) else enumerate(root):
            yield root, key
            yield from _places(inner)


def case(rng: Random) -> tuple[str, dict[str, Any]]:
    """(the kind of a message, its fields)."""
    kind = rng.choice(list(BODIES))
    fields = {"request": changed(rng, rng.choice(BODIES[kind]), rng.choice((0, 1, 1, 2, 5)))}
    if rng.random() < 0.1:
        fields |= {"resume": changed(rng, JOURNAL, rng.choice((0, 1, 2))), "replay": rng.random() < 0.5}
    if kind.startswith("audio"):
        fields["file"] = rng.randbytes(40)
    return kind, fields


def run(given: tuple[str, dict[str, Any]]) -> None:
    """Answer it, and a plain one."""
    kind, fields = given
    loop, page = worker()
    page.engine.embeddings.pooling = "rank" if kind == "rerank" else "last"
    with patch.object(grammar, "open_vocabulary", Masks().open):
        loop.run_until_complete(asyncio.wait_for(_answered(page, kind, fields), 20))


async def _answered(page: Page, kind: str, fields: dict[str, Any]) -> None:
    page.platform.messages.clear()
    number, task = page.send(kind, **fields)
    await task
    ended = [m for m in page.answers(number) if m["kind"] not in ("chunk", "chunks")]
    assert len(ended) == 1, ended
    if ended[0]["kind"] == "error":
        code = ended[0]["error"]["code"]
        logged = [m["text"] for m in page.platform.messages if m.get("level") == "error"]
        assert code in {*CODES} - {"internal_error"}, f"{ended[0]}: {logged}"
    plain = await page.call("chat.completions", request={"messages": HI})
    assert plain["choices"][0]["message"]["content"] == HELLO
    assert not page.engine.running
