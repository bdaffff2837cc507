"""Clients of the worker (pages and the service worker) and their open requests.

A request {id, kind, ...} is answered with {id, kind: "result" | "error"}, or, if streamed, with messages "chunks" or
"chunk", then "done". Loads also get "progress". "log", "loads", "modelUpdate" and "downloadQueue" belong to no request.
The client chooses the ids. See docs/worker-protocol.md.
"""

from collections.abc import Callable
from typing import Any

from app.models.progress import Progress
from py_engine.errors import WispError
from py_engine.generate.request_queue import Job

Fields = dict[str, Any]  # a message in Python types, except for File objects


class Client:
    """One client and its open requests."""

    def __init__(self, post: Callable[[dict[str, Any]], None]) -> None:
        self.post = post
        self.jobs: dict[Any, Job] = {}

    def log(self, level: str, text: str) -> None:
        """Write to the client's console."""
        self.post({"kind": "log", "level": level, "text": text})

    def tell_loads(self, loads: list[dict[str, Any]]) -> None:
        """Tell the client the load requests of the present models."""
        self.post({"kind": "loads", "loads": loads})

    def leave(self) -> None:
        """Abort all open requests: the client has disconnected."""
        for job in list(self.jobs.values()):
            job.abort()


class Call:
    """One request of a client."""

    def __init__(self, client: Client, number: Any) -> None:
        self.client, self.number, self.job = client, number, Job()
        self.progress = Progress(lambda progress: self.post("progress", progress=progress))

    def post(self, kind: str, **fields: Any) -> None:
        """Post a message about this request."""
        self.client.post({"id": self.number, "kind": kind, **fields})

    def chunk(self, chunk: dict[str, Any]) -> None:
        """Post a chunk of the answer."""
        self.post("chunk", chunk=chunk)

    def fail(self, error: WispError) -> None:
        """Post the error that ends the request."""
        after = {} if error.retry_after is None else {"retryAfter": error.retry_after}
        self.post("error", **error.as_dict(), **after)
