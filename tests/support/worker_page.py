"""The worker without a browser: a page that sends it messages, and an engine with a scripted answer."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace
from typing import Any

from app.handlers import Worker
from app.models.catalog import Catalog
from py_engine.errors import CODES, WispError
from py_engine.generate.answer import GenerationRequest
from py_engine.generate.totals import Totals
from py_engine.options import LoadOptions
from py_engine.plan.sampling import Batch
from tests.support.gguf_bytes import MINI

HI = [{"role": "user", "content": "Hi"}]
HELLO = "Hello! How can I help?"


async def settle() -> None:
    """Let every task run until it waits for an action of the test."""
    for _ in range(100):
        await asyncio.sleep(0)


class Engine:
    """An engine that yields the ids of `says` in batches of `size`, then the end token."""

    context_length = usual_tokens = 200
    backend = "cpu"
    parallel = 1
    one_at_a_time = True  # fail if two requests run at once
    embeddings = SimpleNamespace(preferred=False, pooling="last")
    notices = ["from the engine"]  # noqa: RUF012

    def __init__(self, says: str = HELLO, size: int = 2, pause: float = 0.0) -> None:
        self.says, self.size, self.pause = says, size, pause
        self.gate = asyncio.Event()  # cleared: requests wait before their next batch
        self.gate.set()
        self.prompts: list[list[int]] = []
        self.running = self.closed = self.unloaded = self.forgotten = 0
        self.last: Any = None
        self.breaks: Exception | None = None
        self.tokenizer: Any = None
        self.totals = Totals()
        self.scales: tuple[float, ...] = ()  # of adapters, where a request gives none
        self.scales_of_last: Sequence[float] | None = None

    def check_constrains(self, param: str) -> None:
        """Answers may have constraints."""

    def check_continues(self, param: str) -> None:
        """Prompts may have an answer's beginning."""

    async def generate(self, request: GenerationRequest, stats: Any = None) -> AsyncGenerator[Batch, None]:
        begun = request.begun
        assert not (self.running and self.one_at_a_time), "two requests at once"
        assert not self.unloaded
        self.running += 1
        self.prompts.append(list(request.prompt))
        self.scales_of_last = request.scales
        try:
            if self.breaks:
                raise self.breaks
            ids = [*self.tokenizer.encode(self.says), 2][: request.limits.max_tokens]
            for i in range(len(begun.ids) if begun else 0, len(ids), self.size):
                await asyncio.sleep(self.pause)
                await self.gate.wait()
                self.totals.completion_tokens += len(ids[i : i + self.size])
                yield Batch(ids[i : i + self.size])
        finally:
            self.running -= 1
            self.closed += 1
            stats.cached_tokens, stats.prefill_ms, stats.decode_ms = 3, 8.0, 20.0
            self.totals.prompt_ms += stats.prefill_ms

    def ask_before_growing(self, room: Any) -> None:
        self.room = room

    def forget(self) -> None:
        self.forgotten += 1

    def stats(self) -> dict[str, Any]:
        return {"memory": {"weights": 5}, "timings": {"compile_ms": 1}, "totals": asdict(self.totals)}

    def reload_after_loss(self, options: LoadOptions, reload: Any, notify: Any) -> None:
        self.notify = notify

    async def unload(self) -> None:
        assert not self.running
        self.unloaded += 1


class Source:
    def __init__(self, data: bytes) -> None:
        self.data, self.size, self.closed = data, len(data), 0
        self.header_bytes = len(data)
        self.stats = {"requests": 1}
        self.notices: list[str] = []

    async def read(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]

    def close(self) -> None:
        self.closed += 1


@dataclass
class File:
    name: str
    size: int = 1


class Platform:
    """A stand-in for the browser: messages go to a list, sources come from `files`, engines from `make`."""

    boot_ms = 5.0
    origin = "http://127.0.0.1:8000"

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.kept: dict[str, str] = {}
        self.files: dict[str, bytes | WispError] = {"https://wisp/models/mini.gguf": MINI.read_bytes()}
        self.engines: list[Engine] = []
        self.sources: list[Source] = []
        self.make: Callable[..., Awaitable[Engine]] = self._engine
        self.cached: list[dict[str, Any]] = []
        self.newer: set[str] = set()  # addresses whose files have changed

    async def cached_models(self) -> list[dict[str, Any]]:
        return self.cached

    async def delete_cached(self, url: str) -> None:
        self.cached = [model for model in self.cached if model["url"] != url]

    async def has_newer(self, url: str) -> bool:
        return url in self.newer

    async def update_cached(self, url: str, on_progress: Any) -> None:
        self.newer.remove(url)

    async def pin_cached(self, url: str, pinned: bool) -> None:
        self.cached = [{**model, "pinned": pinned} if model["url"] == url else model for model in self.cached]

    def post(self, message: dict[str, Any]) -> None:
        self.messages.append(message)

    async def catalog(self) -> Catalog:
        entries = [{"id": "mini", "name": "Mini", "url": "https://wisp/models/mini.gguf", "default": True}]
        return Catalog(entries)

    async def load_grammar(self, instance: int) -> Any:
        raise AssertionError("no test here needs it")

    async def open_source(self, part: Any, on_progress: Any) -> Source:
        data = self.files[part if isinstance(part, str) else part.name]
        if isinstance(data, WispError):
            raise data
        on_progress("download", 1, 2)
        self.sources.append(Source(data))
        return self.sources[-1]

    async def inspect_engine(
        self, source: Any, header: Any, options: LoadOptions, capacity: int, estimated: bool
    ) -> dict[str, Any]:
        return {"verdict": "fits", "budget": capacity, "estimated": estimated}

    async def estimate_engine(self, source: Any, header: Any, options: LoadOptions) -> dict[str, Any]:
        from py_engine.engine import Engine as Real

        return await Real.estimate(source, header, replace(options, backend="cpu"))

    async def load_engine(self, source: Any, header: Any, options: LoadOptions, on_progress: Any) -> Engine:
        return await self.make(source[0], header[0], options)

    async def _engine(self, source: Any, header: Any, options: LoadOptions) -> Engine:
        from py_engine.text.tokenizer import load_tokenizer

        engine = Engine()
        engine.scales = tuple(adapter.scale for adapter in options.adapters)
        engine.tokenizer = load_tokenizer(header.metadata)
        self.engines.append(engine)
        return engine

    async def load_projector(self, model: Any, source: Any, header: Any, options: LoadOptions, on_progress: Any) -> Any:
        raise AssertionError("no test here needs it")

    async def fetch_media(self, url: str) -> bytes:
        raise AssertionError(f"no test here may leave the machine: {url}")

    async def read_media(self, file: Any) -> bytes:
        raise AssertionError("no test here needs it")

    async def read_pdf(self, data: bytes) -> str:
        raise AssertionError("no test here needs it")

    async def read_video(self, data: bytes, fps: float, most: int) -> list[tuple[float, bytes]]:
        raise AssertionError("no test here needs it")

    async def read_text(self, name: str) -> str | None:
        return self.kept.get(name)

    async def write_text(self, name: str, text: str) -> None:
        self.kept[name] = text

    def channel(self, name: str, receive: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
        return lambda message: None

    async def request(self, method: str, url: str, headers: dict[str, str], body: str | None) -> Any:
        raise AssertionError(f"no test here may leave the machine: {method} {url}")

    async def prefix_usage(self) -> dict[str, int]:
        raise AssertionError("no test here needs it")

    async def limit_prefixes(self, limit: int) -> None:
        raise AssertionError("no test here needs it")

    async def clear_prefixes(self) -> None:
        raise AssertionError("no test here needs it")

    def device_memory(self) -> float | None:
        return 8.0

    def heap(self) -> int:
        return 123


def chunks_of(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The chunks of a streamed answer's messages."""
    return [chunk for m in messages for chunk in ([m["chunk"]] if "chunk" in m else m.get("chunks", []))]


class Page:
    """A page that sends messages to the worker and finds the answers."""

    def __init__(self) -> None:
        self.platform = Platform()
        self.worker = Worker(self.platform)
        self.client = self.worker.connect(self.platform.post)
        self.count = 0

    def send(self, kind: str, **fields: Any) -> tuple[int, asyncio.Task[None]]:
        self.count += 1
        message = {"id": self.count, "kind": kind, **fields}
        return self.count, asyncio.create_task(self.worker.handle(message, self.client))

    def answers(self, number: int) -> list[dict[str, Any]]:
        return [m for m in self.platform.messages if m.get("id") == number and m["kind"] != "progress"]

    async def call(self, kind: str, **fields: Any) -> Any:
        number, task = self.send(kind, **fields)
        await task
        (answer,) = [m for m in self.answers(number) if m["kind"] != "chunks"]  # the journal of a slow answer
        return answer["result"] if answer["kind"] == "result" else answer

    async def code(self, kind: str, **fields: Any) -> str:
        answer = await self.call(kind, **fields)
        assert answer["kind"] == "error", answer
        assert answer["error"]["code"] in CODES
        return str(answer["error"]["code"])

    async def stream(self, kind: str, **request: Any) -> list[dict[str, Any]]:
        number, task = self.send(kind, request={**request, "stream": True})
        await task
        *chunks, last = self.answers(number)
        assert last == {"id": number, "kind": "done"}
        assert {c["kind"] for c in chunks} <= {"chunk", "chunks"}
        return chunks_of(chunks)

    @property
    def engine(self) -> Engine:
        return self.platform.engines[-1]
