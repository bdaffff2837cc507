"""Who sends requests: a page, or the service worker; and each request as it is answered.

A message {id, kind, ...} is answered with {id, kind: "result" | "error"}, or, for a stream, with "chunk" messages and
"done"; "progress" goes along with a load, and "log" is about no message at all. Ids are the client's own.
"""

from collections.abc import Callable
from typing import Any

from app.models.loading import Progress
from app.models.request_queue import Job
from py_engine.errors import WispError

Fields = dict[str, Any]  # a message, in Python's own types but for File objects


class Client:
    """One that sends requests, and those of its requests that are not answered yet."""

    def __init__(self, post: Callable[[dict[str, Any]], None]) -> None:
        self.post = post
        self.jobs: dict[Any, Job] = {}

    def log(self, level: str, text: str) -> None:
        """Something for the client's console."""
        self.post({"kind": "log", "level": level, "text": text})

    def leave(self) -> None:
        """It is gone: nobody waits for its answers."""
        for job in list(self.jobs.values()):
            job.abort()


class Call:
    """One request of a client."""

    def __init__(self, client: Client, number: Any) -> None:
        self.client, self.number, self.job = client, number, Job()
        self.progress = Progress(lambda progress: self.post("progress", progress=progress))

    def post(self, kind: str, **fields: Any) -> None:
        """A message about this request."""
        self.client.post({"id": self.number, "kind": kind, **fields})

    def chunk(self, chunk: dict[str, Any]) -> None:
        """A piece of the answer."""
        self.post("chunk", chunk=chunk)

    def fail(self, error: WispError) -> None:
        """The end of it."""
        self.post("error", **error.as_dict())
