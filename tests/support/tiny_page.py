"""A page with a real engine on numpy, and a request whose answer has a known length."""

from typing import Any

from py_engine.engine import Engine
from tests.support.cpu_engines import MODEL, engine
from tests.support.worker_page import File, Page

PROMPT = "The quick brown fox jumps over the lazy dog. " * 2
REQUEST = {"prompt": PROMPT, "max_tokens": 12, "temperature": 1.5, "ignore_eos": True}


class Tiny(Page):
    """A page with a real engine on numpy."""

    used: Engine

    async def start(self) -> "Tiny":
        async def make(*_: Any, **__: Any) -> Any:
            self.used = engine()
            return self.used

        self.platform.files["tiny.gguf"] = MODEL.read_bytes()
        self.platform.make = make
        await self.call("load", model=File("tiny.gguf"))
        return self

    async def texts(self, **request: Any) -> list[str]:
        answer = await self.call("completions", request={**REQUEST, **request})
        return [choice["text"] for choice in answer["choices"]]

    def running_sequences(self) -> int:
        return len(self.used._generation.sequences._running)
