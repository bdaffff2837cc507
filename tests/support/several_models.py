"""A worker's page with several small models, whose engines have a size and can grow."""

import asyncio
from typing import Any

from py_engine.options import LoadOptions
from tests.support.gguf_bytes import MINI
from tests.support.worker_page import HI, Engine, File, Page

SIZE = 1000  # bytes of every model of these tests


class Sized(Engine):
    """An engine of SIZE bytes."""

    grown = 0

    def stats(self) -> dict[str, Any]:
        return {"memory": {"weights": 0 if self.unloaded else SIZE, "kv": self.grown}}

    async def grow(self, needed: int = SIZE) -> bool:
        async with self.room(needed) as granted:
            self.grown += needed if granted else 0
        return bool(granted)


class Models(Page):
    """A page with the files a, b and c, and a catalog with "mini"."""

    def __init__(self) -> None:
        super().__init__()
        platform = self.platform
        self.made: dict[str, list[Sized]] = {}
        self.loads: list[str] = []
        self.gate = asyncio.Event()  # cleared: loads wait
        self.gate.set()
        for name in "abc":
            platform.files[f"{name}.gguf"] = MINI.read_bytes()

        async def open_source(part: Any, on_progress: Any) -> Any:
            self.loads.append(part.name[0] if isinstance(part, File) else "mini")
            return await type(platform).open_source(platform, part, on_progress)

        async def make(source: Any, header: Any, options: LoadOptions) -> Engine:
            await self.gate.wait()
            engine = await platform._engine(source, header, options)
            engine.__class__ = Sized
            self.made.setdefault(self.loads[-1], []).append(engine)  # type: ignore[arg-type]
            return engine

        async def estimate(*_: Any, **__: Any) -> dict[str, Any]:
            return {"total": SIZE}

        platform.open_source = open_source  # type: ignore[method-assign]
        platform.estimate_engine = estimate  # type: ignore[method-assign]
        platform.make = make

    async def load(self, name: str, **fields: Any) -> Any:
        return await self.call("load", model=FILES[name], **fields)

    async def ask(self, name: str | None = None) -> str:
        answer = await self.call("chat.completions", request={"messages": HI, "model": name})
        return str(answer["model"])

    async def loaded(self) -> list[str]:
        return [m["id"] for m in (await self.call("stats"))["models"]]


FILES = {name: File(f"{name}.gguf") for name in "abc"}
