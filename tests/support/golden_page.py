"""A page whose worker loads golden models into the real engine, on numpy, without a browser."""

import struct
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from py_engine.engine import Engine
from py_engine.files.gguf_header import parse
from py_engine.options import LoadOptions
from tests.support.cpu_models import GOLDEN
from tests.support.gguf_bytes import STRING, key
from tests.support.worker_page import File, Page, Platform, Source

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
N_KEYS_AT, KEYS_AT, ALIGNMENT = 16, 24, 32  # bytes of a GGUF header


class Memory:
    """Bytes that Python reads as it reads an ArrayBuffer."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def slice(self, start: int, end: int) -> "Memory":
        return Memory(self._data[start:end])

    def to_bytes(self) -> bytes:
        return self._data


class GoldenSource(Source):
    """A file in memory, with what the real engine reads of it."""

    url = None
    local = True

    def prefetch(self, plan: Any) -> None:
        pass

    async def content(self) -> None:
        return None

    async def records(self, plan: Any, uploaded: Any = ()) -> AsyncIterator[tuple[Any, Memory]]:
        for record in plan:
            yield record, Memory(self.data[record.offset : record.offset + record.length])


class GoldenPlatform(Platform):
    """A browser without WebGPU."""

    async def open_source(self, part: Any, on_progress: Any) -> Source:
        data = self.files[part if isinstance(part, str) else part.name]
        assert isinstance(data, bytes)
        self.sources.append(GoldenSource(data))
        return self.sources[-1]

    async def load_engine(self, source: Any, header: Any, options: LoadOptions, on_progress: Any) -> Any:
        return await Engine.load(source, header, options, on_progress)

    async def estimate_engine(self, source: Any, header: Any, options: LoadOptions) -> dict[str, Any]:
        return await Engine.estimate(source, header, replace(options, backend="cpu"))


class GoldenPage(Page):
    """A page that loads golden models by their names, such as "llama/llama.F16"."""

    def __init__(self) -> None:
        super().__init__()
        self.platform: GoldenPlatform = GoldenPlatform()
        self.worker = type(self.worker)(self.platform)
        self.client = self.worker.connect(self.platform.post)

    def add(self, name: str, file: str, template: str | None = None) -> None:
        """Make a golden file loadable as `name`."""
        data = (GOLDEN / f"{file}.gguf").read_bytes()
        self.platform.files[name] = data if template is None else with_template(data, template)

    async def load(self, name: str, **fields: Any) -> Any:
        """Load a file that was added."""
        return await self.call("load", model=File(name), name=name, **fields)

    async def estimate(self, name: str, context_length: int) -> Any:
        """The memory that loading a file would take."""
        return await self.call("estimate", model=File(name), contextLength=context_length, backend="cpu")


def with_template(data: bytes, template: str) -> bytes:
    """A GGUF file with a chat template. Its tensors move by a multiple of the alignment."""
    while (added := key("tokenizer.chat_template", STRING, template)) and len(added) % ALIGNMENT:
        template += "{##}" if -len(added) % ALIGNMENT >= 4 else " "
    count = struct.unpack_from("<Q", data, N_KEYS_AT)[0]
    changed = data[:N_KEYS_AT] + struct.pack("<Q", count + 1) + added + data[KEYS_AT:]
    assert parse(changed, len(changed)).metadata["tokenizer.chat_template"] == template
    return changed


def without_webgpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the engine find no adapter, as in a browser without WebGPU."""

    async def request_adapter(least_ms: int = 0) -> None:
        return None

    stub: Any = SimpleNamespace(request_adapter=request_adapter, device_of=None)
    monkeypatch.setitem(sys.modules, "py_engine.gpu.adapter", stub)
