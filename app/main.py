"""The boundary between JavaScript and the worker's Python: receive messages of clients, post answers.

handlers.py decides what to do about each kind of message; it knows no JavaScript.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import js
from pyodide.ffi import JsBuffer, JsException, JsProxy, create_proxy, to_js

from app import json_output
from app.browser import ModelPlatform
from app.client import Call, Client
from app.handlers import Worker
from app.models.catalog import Catalog
from app.models.progress import OnProgress
from py_engine import json_input
from py_engine.errors import SERVER_ERROR, WispError
from py_engine.options import LoadOptions
from py_engine.tasks import begin

_MAX_ARRAY = 16 << 20  # bytes of an array in a request: each of its numbers becomes an object
_ARRAYS = ("logits", "embedding", "pixels", "mel", "positions")  # fields of a result that are sent as typed arrays
_keys, _is_array, _to_json = js.Object.keys, js.Array.isArray, js.JSON.stringify
_FILES = ("model", "projector", "adapters", "draft")  # fields of a load that may be File objects


def connect(post_object: Callable[[Any], None], post_json: Callable[..., None]) -> Client:
    """Connect a client.

    `post_object(message)` sends it a JavaScript object, `post_json(text)` a message that is JSON, and
    `post_json(text, vectors)` one with embeddings.
    """

    def post(message: dict[str, Any]) -> None:
        """Post a message as JSON: one crossing, None becomes null, no proxies to free."""
        result = message.get("result")
        arrays: dict[str, Any] = {}
        in_chunks: list[dict[str, Any]] = []
        if isinstance(result, dict):
            arrays = _arrays_of(result)
            in_chunks = [_arrays_of(chunk) for chunk in result.get("chunks", ())]
        loads = message.get("loads", [])
        files = [{name: load[name] for name in _FILES if name in load} for load in loads]
        if loads:
            message = {**message, "loads": [{**load, **dict.fromkeys(_FILES)} for load in loads]}
        # embeddings: as JSON, their numbers would take longer than the model
        text, vectors = json_output.written(message)
        if not (arrays or any(files) or any(in_chunks)):
            post_json(text, *([to_js(vectors)] if vectors else []))
            return
        out = js.JSON.parse(text)
        for i, names in enumerate(files):
            for name, parts in names.items():
                setattr(out.loads[i], name, to_js(parts))
        if arrays:
            _set_arrays(out.result, arrays)
        for i, of_chunk in enumerate(in_chunks):
            _set_arrays(out.result.chunks[i], of_chunk)
        post_object(out)

    return _worker.connect(post)


def _arrays_of(result: dict[str, Any]) -> dict[str, Any]:
    """Take the fields out of a result that are sent as typed arrays; lists are sent as they are."""
    return {name: result.pop(name) for name in _ARRAYS if not isinstance(result.get(name), list | None)}


def _set_arrays(result: Any, arrays: dict[str, Any]) -> None:
    """Set typed arrays in a result that is a JavaScript object."""
    for name, values in arrays.items():
        if not isinstance(values, JsProxy):
            values = to_js(values.ravel() if hasattr(values, "ravel") else memoryview(values))  # noqa: PLW2901
        setattr(result, name, values)


def leave(client: Client) -> None:
    """Disconnect a client."""
    _worker.leave(client)


def handle(client: Client, message: Any) -> "asyncio.Task[None]":
    """Answer one message of a client, a JavaScript object {id, kind, ...}."""
    return begin(_answer(client, message))


async def _answer(client: Client, message: Any) -> None:
    try:
        fields = _fields(message)
    except WispError as error:
        Call(client, message.id).fail(error)
        return
    await _worker.handle(fields, client)


def _fields(message: Any) -> dict[str, Any]:
    """A message's fields as Python types. WispError for what cannot be one."""
    if hasattr(message, "request") and not hasattr(message, "file"):  # only JSON: one crossing
        with suppress(ValueError, TypeError, JsException):  # else its fields say what is wrong
            found: dict[str, Any] = json_input.parse(_to_json(message))
            return found
    return {key: _value(getattr(message, key)) for key in _keys(message)}


def _value(value: Any) -> Any:
    """Convert a field to Python types; File objects stay JavaScript objects."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if not isinstance(value, JsProxy):  # null
        return None
    if _is_array(value) and any(_is_file(part) for part in value):
        return list(value)
    if _is_file(value):
        return value
    if isinstance(value, JsBuffer):
        if value.byteLength > _MAX_ARRAY:
            raise WispError(
                f"The request has an array of more than {_MAX_ARRAY >> 20} MiB. Send less.", "invalid_value"
            )
        return value.to_py().tolist()
    try:
        return json_input.parse(_to_json(value))
    except (json_input.TooDeep, json_input.TooLarge) as error:
        raise WispError(f"The request's {error}. {error.advice}", "invalid_value") from None
    except (JsException, TypeError):  # BigInt, cycles
        raise WispError(
            "The request has a value that JSON cannot express, such as a BigInt or a cycle.", "invalid_type"
        ) from None


def _is_file(value: Any) -> bool:
    return isinstance(value, JsProxy) and hasattr(value, "arrayBuffer") and hasattr(value, "size")


class Browser(ModelPlatform):
    """What the browser does for the worker: the Platform of handlers.py."""

    def __init__(self) -> None:
        self.boot_ms = float(js.performance.now())
        self.origin = str(js.location.origin)
        self._hashes: dict[str, dict[int, str]] = {}  # URL of a catalog's model -> offset -> SHA-256 of each record

    async def catalog(self) -> Catalog:
        """The page's catalog.json; empty where the page has none."""
        address = str(getattr(js.wispAssets, "catalog", None) or "")
        if not address:
            return Catalog([])
        try:
            response = await js.fetch(address)
            entries = json_input.parse(await response.text())
        except (JsException, ValueError):
            raise WispError(
                f"The list of models at {address} cannot be read. Check the connection and reload the page.",
                "network_error",
            ) from None
        for entry in entries:
            for name in ("url", "projector"):
                if name in entry:
                    entry[name] = str(js.URL.new(entry[name], address).href)
            for name, key in (("url", "records"), ("projector", "projector_records")):
                hashes = entry.pop(key, {})  # offset -> SHA-256; JSON's keys are strings
                if name in entry:
                    self._hashes[entry[name]] = {int(offset): digest for offset, digest in hashes.items()}
        return Catalog(entries)

    async def open_source(self, part: Any, on_progress: OnProgress) -> Any:
        from py_engine.files.shards import open_source

        await self._authorize()
        hashes = self._hashes.get(part) if isinstance(part, str) else None
        return await open_source(part, on_progress, hashes, _worker.urls_in_use)

    async def _authorize(self) -> None:
        """Let downloads from the user's hub carry the token that app/hub/settings.js stored."""
        try:
            hub = json_input.stored(await self.read_text("hub"))
        except WispError:  # no storage
            return
        js.wispShards.authorize(str(hub.get("baseURL") or self.origin), str(hub.get("token") or ""))

    async def cached_models(self) -> list[dict[str, Any]]:
        from py_engine.files.model_cache import cached_models

        return await cached_models()

    async def delete_cached(self, url: str) -> None:
        from py_engine.files.model_cache import forget

        await forget(url)

    async def has_newer(self, url: str) -> bool:
        from py_engine.files.updates import newer

        await self._authorize()
        return await newer(url)

    async def update_cached(self, url: str, on_progress: OnProgress) -> None:
        from py_engine.files.updates import update

        await self._authorize()
        await update(url, on_progress, _worker.urls_in_use)

    async def pin_cached(self, url: str, pinned: bool) -> None:
        from py_engine.files.model_cache import pin

        await pin(url, pinned)

    async def prefix_usage(self) -> dict[str, int]:
        from py_engine.files.prefixes import prefix_usage

        return await prefix_usage()

    async def limit_prefixes(self, limit: int) -> None:
        from py_engine.files.prefixes import limit_prefixes

        await limit_prefixes(limit)

    async def clear_prefixes(self) -> None:
        from py_engine.files.prefixes import clear_prefixes

        await clear_prefixes()

    async def inspect_engine(
        self, source: Any, header: Any, options: LoadOptions, capacity: int, estimated: bool
    ) -> dict[str, Any]:
        from py_engine.inspection import Capacity, inspect

        return await inspect(source, header, options, Capacity(capacity, estimated))

    async def read_media(self, file: Any) -> bytes:
        """The bytes of a Blob."""
        if not _is_file(file):
            raise WispError("media must be a list of files (Blobs).", "invalid_type", param="media")
        return bytes((await file.arrayBuffer()).to_bytes())

    async def read_text(self, name: str) -> str | None:
        """A text that an earlier visit stored. WispError storage_unreadable."""
        try:
            return await js.wispTextStore.read(name)
        except JsException as error:
            raise WispError(str(error).removeprefix("Error: "), "storage_unreadable", SERVER_ERROR) from None

    async def write_text(self, name: str, text: str) -> None:
        """Store a text in IndexedDB. WispError quota_exceeded, storage_failed."""
        try:
            await js.wispTextStore.write(name, text)
        except JsException as error:
            code = "quota_exceeded" if error.code == "quota_exceeded" else "storage_failed"
            raise WispError(str(error).removeprefix("Error: "), code, SERVER_ERROR) from None

    def channel(self, name: str, receive: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
        """A BroadcastChannel of JSON objects. Other programs of the origin may send anything."""
        opened = js.BroadcastChannel.new(name)
        opened.onmessage = create_proxy(lambda event: receive(json_input.stored(str(event.data))))
        return lambda message: opened.postMessage(json.dumps(message))

    async def request(self, method: str, url: str, headers: dict[str, str], body: str | None) -> "Reply":
        """fetch() another server without cookies or referrer."""
        controller = js.AbortController.new()
        options = {
            "method": method,
            "headers": headers,
            "signal": controller.signal,
            "mode": "cors",
            "credentials": "omit",
            "redirect": "manual",
            "cache": "no-store",
            "referrerPolicy": "no-referrer",
        }
        if body is not None:
            options["body"] = body
        try:
            return Reply(await js.fetch(url, to_js(options, dict_converter=js.Object.fromEntries)), controller)
        except JsException as error:
            raise ConnectionError(str(error)) from None
        except BaseException:  # aborted, or timed out
            controller.abort()
            raise

    def device_memory(self) -> float | None:
        """GiB of memory as the browser reports them: rounded and capped. None where it does not."""
        reported = getattr(js.navigator, "deviceMemory", None)
        return float(reported) if reported else None

    def heap(self) -> int:
        """Bytes of the WASM heap."""
        import pyodide_js

        return int(pyodide_js._module.HEAP8.length)


class Reply:
    """An HTTP response whose body is still arriving: the Reply of upstreams/registry.py."""

    def __init__(self, response: Any, controller: Any) -> None:
        self.status = int(response.status)
        self.type = str(response.headers.get("content-type") or "").split(";")[0].strip().lower()
        self.wait_s = _seconds_until(response.headers.get("retry-after"))
        self._reader = response.body.getReader() if response.body else None
        self._controller = controller

    async def piece(self) -> bytes:
        """The next bytes of the body; none at its end."""
        if self._reader is None:
            return b""
        try:
            step = await self._reader.read()
        except JsException as error:
            raise ConnectionError(str(error)) from None
        return b"" if step.done else bytes(step.value.to_bytes())

    def close(self) -> None:
        """Close the connection."""
        self._controller.abort()


def _seconds_until(after: Any) -> float | None:
    """A header Retry-After, which has seconds or a date."""
    text = str(after or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:20])
    until = float(js.Date.parse(text))
    return None if until != until else max(0.0, (until - float(js.Date.now())) / 1000)  # noqa: PLR0124, not a number


_browser = Browser()
_worker = Worker(_browser)
