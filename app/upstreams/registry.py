"""OpenAI-compatible servers that the user has configured, for models too large for this device.

A request whose `model` is `NAME/MODEL` of a configured upstream is forwarded to it, with `model` replaced by `MODEL`.
Its answer is returned with `NAME/` before the model's name. No other request leaves this machine. Listing the models
sends no request: an upstream's list is requested when the upstream is configured, and stored.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from app.client import Call, Fields
from app.openai.endpoints import ENDPOINTS
from app.upstreams import chunks, errors
from app.upstreams.server import Upstream, checked_name, configured, restored
from app.upstreams.server_sent_events import MAX_EVENT, Events
from py_engine import json_input
from py_engine.errors import NOT_FOUND, WispError

Handler = Callable[[Fields, Call], Awaitable[Any]]

PATHS = {kind: endpoint.path.removeprefix("v1/") for kind, endpoint in ENDPOINTS.items() if endpoint.upstream}
LISTS = ("rerank",)  # may be answered by a list: to `texts`, as Text Embeddings Inference does
STORE = "upstreams"
MAX_MODELS = 2000
# Of an answer that is not streamed. Text takes up to ten times its bytes here, since one emoji makes each character
# four bytes, and empty lists take more: with these limits, any answer takes less than 200 MB.
MAX_ANSWER = 17 << 20  # bytes: 2,048 embeddings of 1,536 numbers fit
MAX_CONTAINERS = 1 << 20  # objects and lists
LISTING_S = 10.0  # timeout of a list of models


class Reply(Protocol):
    """An HTTP response whose body is still arriving. Reading raises ConnectionError when the connection is lost."""

    status: int  # 0: a redirect; it is not followed
    type: str  # the media type, without parameters
    wait_s: float | None  # the header Retry-After, in seconds from now; None where there is none that a page may read

    async def piece(self) -> bytes:
        """The next bytes of the body; none at its end."""

    def close(self) -> None:
        """Close the connection."""


class Platform(Protocol):
    """What the browser does for upstreams."""

    origin: str  # of the page

    async def read_text(self, name: str) -> str | None:
        """A stored text, or None. WispError storage_unreadable."""

    async def write_text(self, name: str, text: str) -> None:
        """Store a text for later visits. WispError quota_exceeded, storage_failed."""

    async def request(self, method: str, url: str, headers: dict[str, str], body: str | None) -> Reply:
        """fetch() without credentials and redirects. ConnectionError where there is no answer."""


class Upstreams:
    """The configured upstreams, and the requests that go to them."""

    def __init__(
        self, platform: Platform, is_local: Callable[[str], bool], log: Callable[[str], None], done: object
    ) -> None:
        """`is_local(id)`: whether a model of this machine has that id. `log(text)` reports to all clients which request
        left, as "NAME: PATH". `done`: the result of a streamed request.
        """
        self._platform = platform
        self._is_local = is_local
        self._log = log
        self._done = done
        self._sent: dict[str, tuple[int, float]] = {}  # name -> requests, and the time of the last, seconds since 1970

    def handlers(self, local: dict[str, Handler]) -> dict[str, Handler]:
        """The worker's handlers: those of endpoints ask upstreams first; those that configure upstreams are added."""
        return {
            **local,
            **{kind: self._with_forwarding(kind, local[kind]) for kind in PATHS},
            "upstreams.list": self._list,
            "upstreams.set": self._set,
            "upstreams.remove": self._remove,
            "upstreams.refresh": self._refresh,
        }

    async def models(self) -> list[dict[str, Any]]:
        """OpenAI's model objects of all upstreams, from their last lists."""
        return [model for upstream in (await self._all()).values() for model in upstream.listing()]

    # -- configuring

    async def _all(self) -> dict[str, Upstream]:
        """All upstreams by name; none where storage cannot be read."""
        try:
            return await self._read()
        except WispError:
            return {}

    async def _read(self) -> dict[str, Upstream]:
        """Read all upstreams by name, each time, because another tab may have changed them. WispError.

        Damaged entries are left out; the next change removes them from storage.
        """
        try:
            stored = json_input.parse(await self._platform.read_text(STORE) or "[]")
        except ValueError:
            return {}
        found = [restored(fields) for fields in stored] if isinstance(stored, list) else []
        return {upstream.name: upstream for upstream in found if upstream is not None}

    async def _store(self, upstreams: dict[str, Upstream]) -> None:
        await self._platform.write_text(STORE, json.dumps([upstream.as_stored() for upstream in upstreams.values()]))

    def _about(self, upstream: Upstream) -> dict[str, Any]:
        count, last = self._sent.get(upstream.name, (0, None))
        return {**upstream.about(), "requests": count, "last_request": last}

    async def _list(self, fields: Fields, call: Call) -> dict[str, Any]:
        return {"object": "list", "data": [self._about(upstream) for upstream in (await self._all()).values()]}

    async def _set(self, fields: Fields, call: Call) -> dict[str, Any]:
        before = await self._read()
        upstream = configured(fields, before.get(str(fields.get("name"))))
        return await self._refreshed(upstream)

    async def _refresh(self, fields: Fields, call: Call) -> dict[str, Any]:
        return await self._refreshed(await self._named(fields))

    async def _remove(self, fields: Fields, call: Call) -> None:
        upstream = await self._named(fields)
        rest = await self._read()
        rest.pop(upstream.name, None)
        await self._store(rest)

    async def _named(self, fields: Fields) -> Upstream:
        name = checked_name(fields.get("name"))
        upstreams = await self._read()
        if name not in upstreams:
            known = ", ".join(upstreams) or "none"
            raise WispError(f"There is no upstream {name!r}; there are: {known}.", "not_found", NOT_FOUND, "name")
        return upstreams[name]

    async def _refreshed(self, upstream: Upstream) -> dict[str, Any]:
        """Request the upstream's models and store it. If it does not answer, it is stored with the error."""
        upstream.error = None
        if not upstream.given:
            try:
                upstream.models = await self._models_of(upstream)
            except WispError as error:
                upstream.error = error.message
        upstream.asked = time.time()
        upstreams = await self._read()
        upstreams[upstream.name] = upstream
        await self._store(upstreams)
        return self._about(upstream)

    async def _models_of(self, upstream: Upstream) -> list[str]:
        reply = await self._ask(upstream, "GET", "models", None, min(LISTING_S, upstream.timeout))
        answer = await self._whole(upstream, reply, min(LISTING_S, upstream.timeout))
        data = answer.get("data")
        if not isinstance(data, list):
            raise errors.unexpected(upstream, "a list of models", json.dumps(answer))
        ids = [model.get("id") for model in data if isinstance(model, dict)]
        return [i for i in ids if isinstance(i, str) and 0 < len(i) <= 200][:MAX_MODELS]

    # -- requests

    def _with_forwarding(self, kind: str, local: Handler) -> Handler:
        async def handler(fields: Fields, call: Call) -> Any:
            request = fields.get("request")
            found = await self._upstream_of(request.get("model")) if isinstance(request, dict) else None
            if not isinstance(request, dict) or found is None:
                return await local(fields, call)
            task = asyncio.current_task()
            if task is not None:
                call.job.check()
                call.job.on_abort(task.cancel)
            upstream, model = found
            return await self._forward(kind, upstream, {**request, "model": model}, call)

        return handler

    async def _upstream_of(self, model: Any) -> tuple[Upstream, str] | None:
        """The upstream and model that a request names; None for a model of this machine."""
        if not isinstance(model, str) or "/" not in model or self._is_local(model):
            return None
        name, _, rest = model.partition("/")
        upstream = (await self._all()).get(name)
        if upstream is None:
            return None
        if not rest:
            raise WispError(f"Name a model of {name}, as {name}/MODEL.", "invalid_value", param="model")
        return upstream, rest

    async def _forward(self, kind: str, upstream: Upstream, body: dict[str, Any], call: Call) -> Any:
        path = PATHS[kind]
        self._sent[upstream.name] = (self._sent.get(upstream.name, (0, 0.0))[0] + 1, time.time())
        self._log(f"{upstream.name}: {path}")
        reply = await self._ask(upstream, "POST", path, json.dumps(body), upstream.timeout)
        try:
            if not body.get("stream") or reply.status != 200:
                answer = await self._whole(upstream, reply, upstream.timeout, lists=kind in LISTS)
                if isinstance(answer, list):
                    return answer
                return upstream.marked(chunks.read(upstream, kind, answer, streamed=False))
            await self._forward_stream(kind, upstream, reply, call)
        finally:
            reply.close()
        return self._done

    async def _ask(self, upstream: Upstream, method: str, path: str, body: str | None, seconds: float) -> Reply:
        headers = {"Accept": "application/json, text/event-stream"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if upstream.key:
            headers["Authorization"] = f"Bearer {upstream.key}"
        asked = self._platform.request(method, f"{upstream.base_url}/{path}", headers, body)
        try:
            reply = await asyncio.wait_for(asked, seconds)
        except ConnectionError:
            raise errors.unreachable(upstream, self._platform.origin) from None
        except asyncio.TimeoutError:  # noqa: UP041, the same only from Python 3.11 on
            raise errors.silent(upstream, seconds) from None
        if reply.status == 0:
            reply.close()
            raise errors.redirected(upstream)
        return reply

    async def _piece(self, upstream: Upstream, reply: Reply, seconds: float) -> bytes:
        try:
            return await asyncio.wait_for(reply.piece(), seconds)
        except ConnectionError:
            raise errors.cut(upstream) from None
        except asyncio.TimeoutError:  # noqa: UP041
            raise errors.silent(upstream, seconds) from None

    async def _whole(self, upstream: Upstream, reply: Reply, seconds: float, *, lists: bool = False) -> Any:
        """The whole answer, an object, or with `lists` also a list. Raises the error that the upstream reports."""
        data = bytearray()
        try:
            while piece := await self._piece(upstream, reply, seconds):
                data += piece
                if len(data) > MAX_ANSWER:
                    raise errors.endless(upstream, f"{MAX_ANSWER / (1 << 20):g} MiB")
        finally:
            reply.close()
        if data.count(b"{") + data.count(b"[") > MAX_CONTAINERS:
            raise errors.endless(upstream, f"{MAX_CONTAINERS:,} objects and lists")
        text = data.decode("utf-8", "replace")
        del data
        try:
            answer = json_input.parse(text)
        except json_input.TooLarge:
            raise errors.endless(upstream, f"{json_input.MAX_BYTES >> 20} MB of values") from None
        except ValueError:
            answer = None
        if reply.status >= 400 or (isinstance(answer, dict) and answer.get("error") and "object" not in answer):
            raise errors.refused(upstream, reply.status, answer, text, reply.wait_s)
        if not isinstance(answer, (dict, list) if lists else dict):
            raise errors.unexpected(upstream, "JSON", text)
        return answer

    async def _forward_stream(self, kind: str, upstream: Upstream, reply: Reply, call: Call) -> None:
        """Forward the chunks of a stream. WispError if it is cut off."""
        if reply.type != "text/event-stream":
            answer = await self._whole(upstream, reply, upstream.timeout)
            raise errors.unexpected(upstream, "a stream", json.dumps(answer))
        events, finished = Events(), False
        while True:
            piece = await self._piece(upstream, reply, upstream.timeout)
            if events.held > MAX_EVENT:
                raise errors.endless(upstream, f"{MAX_EVENT:,} characters in an event")
            for event in events.feed(piece) if piece else events.end():
                if event.data == "[DONE]":
                    return
                try:
                    chunk = json_input.parse(event.data)
                except ValueError:
                    if not piece:  # the stream ended within the event
                        raise errors.cut(upstream) from None
                    raise errors.unexpected(upstream, "JSON in its stream", event.data) from None
                if not isinstance(chunk, dict):
                    raise errors.unexpected(upstream, "JSON in its stream", event.data)
                if (chunk.get("error") and "choices" not in chunk) or chunk.get("type") == "error":
                    raise errors.refused(upstream, 500, chunk, event.data)
                call.chunk(upstream.marked(chunks.read(upstream, kind, chunk, streamed=True)))
                finished |= _finishes(chunk)
            if not piece:
                if not finished:
                    raise errors.cut(upstream)
                return


def _finishes(chunk: dict[str, Any]) -> bool:
    """Whether an answer may end after this chunk without [DONE]. Responses and some servers do not send it."""
    if chunk.get("type") in ("response.completed", "response.incomplete", "response.failed"):
        return True
    choices = chunk.get("choices")
    return isinstance(choices, list) and any(isinstance(c, dict) and c.get("finish_reason") for c in choices)
