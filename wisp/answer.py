"""An answer that is being generated: its text piece by piece, then its message, its end and its token counts."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

from app.openai.answers import Message
from py_engine.generate.request_queue import Job
from wisp.parameters import OnText

Chunk = dict[str, Any]  # OpenAI's chat.completion.chunk or text_completion
Run = Callable[[Callable[[Chunk], None], Job], Awaitable[object]]  # generates the answer: (where chunks go, the job)


class Answer:
    """One answer. Iterate over its text, or await text() for all of it. It is generated once, when first read."""

    def __init__(self, run: Run, on_text: OnText | None = None) -> None:
        self._run, self._on_text = run, on_text
        self._job, self._message, self._read = Job(), Message(), False
        self.finish_reason: str | None = None  # "stop", "length" or "tool_calls", once it has ended
        self.usage: dict[str, Any] | None = None  # OpenAI's counts of tokens, once it has ended

    @property
    def message(self) -> dict[str, Any]:
        """OpenAI's message so far: content, tool_calls, reasoning_content."""
        return self._message.as_dict()

    def __aiter__(self) -> AsyncIterator[str]:
        """The pieces of the text. Tool calls and reasoning are in `message`."""
        return self._texts()

    async def text(self) -> str:
        """All of the text. WispError where the request fails or is aborted."""
        return "".join([text async for text in self])

    async def _texts(self) -> AsyncGenerator[str, None]:
        async for chunk in self.chunks():
            if text := _text(chunk):
                yield text

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        """The answer as OpenAI's chunks, with log-probabilities where they were asked for."""
        if self._read:
            raise RuntimeError("An answer can be read once. Ask again for another.")
        self._read = True
        queue: asyncio.Queue[Chunk | None] = asyncio.Queue()
        task = asyncio.ensure_future(self._run(queue.put_nowait, self._job))

        def ended(task: asyncio.Future[object]) -> None:
            task.exception()  # nobody may be left to read it
            queue.put_nowait(None)

        task.add_done_callback(ended)
        try:
            while (chunk := await queue.get()) is not None:
                self._add(chunk)
                yield chunk
            task.result()
        finally:  # nothing to await here: Pyodide's event loop does not close generators that a `break` leaves behind
            self._job.abort()

    def abort(self) -> None:
        """End the answer within one batch. Whoever reads it gets WispError aborted."""
        self._job.abort()

    def _add(self, chunk: Chunk) -> None:
        self.usage = chunk.get("usage") or self.usage
        for choice in chunk["choices"]:
            self._message.add(choice.get("delta") or {"content": choice.get("text")})
            self.finish_reason = choice["finish_reason"] or self.finish_reason
        text = _text(chunk)
        if text and self._on_text is not None:
            self._on_text(text)


def _text(chunk: Chunk) -> str:
    """The text of a chunk."""
    texts = ((choice.get("delta") or {}).get("content") or choice.get("text") or "" for choice in chunk["choices"])
    return "".join(texts)
