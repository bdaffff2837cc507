"""Downloads a model file into JS buffers, in parallel range requests with retries.

From a server without ranges (it answers 200 instead of 206), the file is read once from front to back.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from math import isnan
from typing import Any

import js
from pyodide.ffi import JsException, create_proxy

from py_engine.errors import NOT_FOUND, SERVER_ERROR, WispError
from py_engine.files.addresses import host_of, parts_of
from py_engine.files.link import FAST, Link

FIRST_BYTES = 1 << 20  # the first request: enough for the header of most models
BACKOFF_S = (0.3, 1.0, 3.0)  # waits before the second, third and fourth try
WORKER_LOST = "WorkerLost"  # name of the error when a download worker has ended
SIGN_IN = (
    "The model needs a sign-in: accept its terms on its page and store your token for that hub, or download the file "
    "yourself and open it here."
)
RETRY_STATUSES = {408, 425, 429, 500, 502, 503, 504}


Keep = Callable[[Any, int, int, int], Awaitable[None]]


class FileChanged(Exception):
    """The server's file is no longer the one whose first part was downloaded."""


class Remote:
    """One file on a server. `size` (bytes) and `etag` are known after probe(), or given from an earlier load."""

    def __init__(self, url: str, on_bytes: Callable[[int], None], size: int | None = None, etag: str = "") -> None:
        self.url = url
        self.size = size
        self.etag = etag
        self.requests = 0
        self.downloaded = 0
        self.ranged = True
        self.linked = ""  # the header X-Linked-ETag of the first response
        self._on_bytes = on_bytes
        self._link = Link(time.perf_counter)
        self._abort = js.AbortController.new()
        self._response: Any = None  # without ranges: the response, read up to _position
        self._position = 0
        self._stream_lock = asyncio.Lock()

    async def probe(self, first: int = FIRST_BYTES) -> Any:
        """Download the first bytes of the file and get its size. Returns an ArrayBuffer with up to `first` bytes."""
        body = await self._request(0, first)
        if body.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:  # an empty file
            self.size = 0
            return js.wispShards.newRecord(0, False).buffer
        size = body.size
        if isnan(size):  # the server hides Content-Range from other sites
            self.requests += 1
            size = await js.wispShards.sizeByHead(self.url, self._abort.signal)
            if isnan(size) and body.length < first:
                size = body.length
        if isnan(size):
            body.cancel()
            raise WispError(
                f"The server at {self.host} does not say how large the file is. Download the file and open it "
                "from this computer.",
                "network_error",
            )
        self.size, self.etag, self.linked = int(size), str(body.etag), str(body.linked)
        self.ranged = body.status == HTTPStatus.PARTIAL_CONTENT
        end = min(first, self.size)
        target = js.wispShards.newRecord(end, False)
        if not self.ranged:
            self._response, self._position = body, 0
            await self._from_stream(target, 0, 0, end)
        else:
            reached = await self._fill(body, target, 0, end)
            body.cancel()
            if reached < end:
                await self._range(target, reached, reached, end)
        return target.buffer

    async def fetch(self, target: Any, at: int, start: int, end: int, keep: Keep | None = None) -> None:
        """Download the file's bytes [start, end) into an Incoming (incoming.js) from `at` on.

        `keep(target, at, start, end)` is called with each part of several that has arrived, unless the link is fast.
        """
        if start >= end:
            return
        if not self.ranged:
            async with self._stream_lock:
                await self._from_stream(target, at, start, end)
            return
        size = self._link.part
        parts = [(a, min(a + size, end)) for a in range(start, end, size)]
        keep = keep if len(parts) > 1 else None
        tasks = [asyncio.ensure_future(self._part(target, at + a - start, a, b, keep)) for a, b in parts]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def close(self) -> None:
        """Abort every request."""
        self._abort.abort()

    async def _part(self, target: Any, at: int, start: int, end: int, keep: Keep | None) -> None:
        await self._range(target, at, start, end)
        if keep is not None and self._link.rate < FAST:
            await keep(target, at, start, end)

    async def _range(self, target: Any, at: int, start: int, end: int) -> None:
        """Download one range. After a lost connection, continues from the last byte that arrived."""
        async with self._link.request():
            tries = 0
            while start < end:
                body = await self._request(start, end, target)
                if body.status == HTTPStatus.OK:  # the server ignored the range
                    await body.skip(start)
                reached = await self._fill(body, target, at, at + end - start)
                body.cancel()
                tries = await self._back_off(0 if reached > at else tries, short=reached - at < end - start)
                start, at = start + reached - at, reached

    async def _from_stream(self, target: Any, at: int, start: int, end: int) -> None:
        """Download a range from a server without ranges. A range before the current position restarts the file."""
        tries = 0
        while start < end:
            if self._response is None or self._position > start or not target.reads(self._response):
                self._drop_response()
                self._response = await self._request(0, self.size or 0, target)
            reached = at
            try:
                if self._position < start:
                    self._position += await self._response.skip(start - self._position)
                if self._position == start:
                    reached = await self._fill(self._response, target, at, at + end - start)
            except BaseException:
                self._drop_response()
                raise
            self._position += reached - at
            short = reached - at < end - start
            start, at = start + reached - at, reached
            if short:
                self._drop_response()
            tries = await self._back_off(tries, short=short)

    def _drop_response(self) -> None:
        if self._response is not None:
            self._response.cancel()
        self._response, self._position = None, 0

    async def _fill(self, body: Any, target: Any, at: int, end: int) -> int:
        report = create_proxy(self._count)
        try:
            reached = await target.fill(body, at, end, report)
            return int(reached)
        except BaseException:
            body.cancel()
            raise
        finally:
            report.destroy()

    def _count(self, n_bytes: int) -> None:
        self.downloaded += n_bytes
        self._link.arrived(n_bytes)
        self._on_bytes(n_bytes)

    async def _back_off(self, tries: int, *, short: bool) -> int:
        """After a response that ended early, wait before the next try, or give up. Returns the number of tries."""
        if not short:
            return 0
        if tries >= len(BACKOFF_S):
            raise WispError(
                f"The connection to {self.host} was lost while the model was downloading. Check the network and load "
                "the model again: the download continues from what has arrived.",
                "network_error",
                SERVER_ERROR,
            )
        await asyncio.sleep(BACKOFF_S[tries])
        return tries + 1

    async def _request(self, start: int, end: int, target: Any = None) -> Any:
        """Request bytes [start, end) in the thread of `target`, with retries. WispError http_error, network_error."""
        source = js.wispShards if target is None else target
        for tries in range(len(BACKOFF_S) + 1):
            last = tries == len(BACKOFF_S)
            self.requests += 1
            asked = time.perf_counter()
            try:
                body = await source.request(self.url, start, end, self._abort.signal)
            except JsException as error:
                if error.name == "AbortError":
                    raise asyncio.CancelledError from None
                if error.name == WORKER_LOST:
                    raise
                if last or not self._may_recover():
                    raise self._network_error() from None
            else:
                self._link.waited(time.perf_counter() - asked)
                if body.status in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
                    self._check_unchanged(body)
                    self._check_start(body, start)
                    return body
                body.cancel()
                if body.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    if self.size is not None:
                        raise FileChanged
                    return body
                if last or body.status not in RETRY_STATUSES:
                    raise self._http_error(body)
            await asyncio.sleep(BACKOFF_S[tries])
        raise AssertionError("the last try returns or raises")

    def _check_unchanged(self, body: Any) -> None:
        size, etag = body.size, str(body.etag)
        if self.size is not None and not isnan(size) and int(size) != self.size:
            body.cancel()
            raise FileChanged
        if self.etag and etag and etag != self.etag:
            body.cancel()
            raise FileChanged

    def _check_start(self, body: Any, start: int) -> None:
        """Refuse other bytes than were asked for, where the server says which it sends."""
        if body.status == HTTPStatus.PARTIAL_CONTENT and not isnan(body.start) and int(body.start) != start:
            body.cancel()
            raise WispError(
                f"The server at {self.host} sent another part of the file than was asked for. Download the file and "
                "open it from this computer.",
                "network_error",
                SERVER_ERROR,
            )

    def _may_recover(self) -> bool:
        """Whether a retry may help after a request without a response.

        Not when the browser is offline, nor when the server has never answered: then the address or the CORS headers
        are wrong.
        """
        return bool(js.navigator.onLine) and self.size is not None

    @property
    def host(self) -> str:
        """The server's name and port."""
        return host_of(self.url)

    def _http_error(self, body: Any) -> WispError:
        status = f"{body.status} {body.statusText}".strip()
        missing = body.status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
        advice = {
            HTTPStatus.NOT_FOUND: "Check the address.",
            HTTPStatus.UNAUTHORIZED: SIGN_IN,
            HTTPStatus.FORBIDDEN: SIGN_IN,
        }.get(body.status, "Try again later.")
        return WispError(
            f"The server answered {status} for {self.url}. {advice}",
            "http_error",
            NOT_FOUND if missing else SERVER_ERROR,
        )

    def _network_error(self) -> WispError:
        host, here = self.host, str(js.location.host)
        if not js.navigator.onLine:
            why = f"This browser is offline and the model from {host} is not fully cached. Connect, and try again."
        elif host == here:
            why = f"The server {host} does not answer. Check that it runs, and try again."
        elif parts_of(self.url).scheme == "http" and parts_of(self.url).hostname not in ("127.0.0.1", "localhost"):
            why = f"The page may read models over https only, and {self.url} is http. Use its https address."
        elif self.size is not None:
            why = f"The connection to {host} was lost. Check the network and load again: what has arrived is cached."
        else:
            why = (
                f"The server {host} does not answer, or it does not allow other sites to read the file (CORS). Check "
                "the address, or download the file and open it from this computer."
            )
        return WispError(why, "network_error", SERVER_ERROR)
