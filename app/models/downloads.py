"""The download queue: models on their way into the browser's storage, for all tabs, continued on a later visit.

A download is a load that ends before the weights are uploaded: its records are stored, and what is stored is never
downloaded again. A load of a model that is being downloaded takes the download over with what has arrived.

Tabs may have engines of their own: two versions of the page have. Each engine has the queue, and tells the others what
its user changes. One of them downloads a file (py_engine/files/download_turn.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from app.models.loading import Options, download
from app.models.progress import OnProgress, Progress
from app.openai.fields import whole
from py_engine import json_input
from py_engine.errors import NOT_FOUND, WispError
from py_engine.tasks import quietly

NAME = "downloads"  # of the stored text
CHANNEL = "wisp.downloads"  # among this browser's engines
LIMIT, MOST = 2, 6  # downloads at once: by default, and at most
REPEAT_S = 1.0  # between two reports of a download of which nothing comes
SLOW = 1_000_000  # bytes a second: a link that is slower has one download at a time
Fields = dict[str, Any]  # of a message
Change = Callable[[Fields], Awaitable[Any]]
RUNNING, QUEUED, PAUSED, FAILED, DONE, LENT = "running", "queued", "paused", "failed", "done", "loading"


class Platform(Protocol):
    """What the queue needs of the browser."""

    async def open_source(self, part: Any, on_progress: OnProgress) -> Any:
        """py_engine.files.shards.open_source."""

    async def read_text(self, name: str) -> str | None:
        """A text that an earlier visit stored. WispError storage_unreadable."""

    async def write_text(self, name: str, text: str) -> None:
        """Store a text for later visits. WispError quota_exceeded, storage_failed."""

    def channel(self, name: str, receive: Callable[[Fields], None]) -> Callable[[Fields], None]:
        """Join a channel: `receive` gets what other engines send; the returned function sends to them."""


@dataclass
class Download:
    """One model of the queue."""

    id: str
    options: Options
    state: str = QUEUED
    loaded: int = 0  # bytes, of all its files
    total: int = 0
    speed: float = 0.0  # bytes a second
    error: dict[str, Any] | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def urls(self) -> list[str]:
        """Addresses of its files."""
        return [str(part) for part in self.options.parts]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON, as the SDK has it."""
        rest = self.total - self.loaded
        left = rest / self.speed if self.state == RUNNING and self.speed > 0 else None
        speed = self.speed if self.state == RUNNING else 0
        return {
            "id": self.id, "model": self.options.choice.id, "urls": self.urls, "state": self.state,
            "loaded": self.loaded, "total": self.total, "speed": speed, "seconds_left": left, "error": self.error,
        }  # fmt: skip


class Downloads:
    """The queue. `tell(list)` is called when it changes."""

    def __init__(
        self,
        platform: Platform,
        choose: Callable[[Fields], Awaitable[Options]],
        tell: Callable[[list[dict[str, Any]]], None],
    ) -> None:
        """`choose(fields)`: the options of a load request."""
        self._platform, self._choose, self._tell = platform, choose, tell
        self._items: dict[str, Download] = {}  # in order
        self.limit = LIMIT
        self._restoring: asyncio.Task[None] | None = None
        self._is_read = False  # whether the stored queue was read
        self._following: asyncio.Future[Any] | None = None  # a change of another engine
        self._send = platform.channel(CHANNEL, self._follow)

    # -- requests

    @property
    def handlers(self) -> dict[str, Change]:
        """Message kind -> what answers it."""
        return {
            "downloads.list": lambda fields: self.queue(),
            "downloads.getLimit": lambda fields: self.get_limit(),
            **{kind: self._told(kind, change) for kind, change in self._changes.items()},
        }

    @property
    def _changes(self) -> dict[str, Change]:
        """The kinds of messages that change the queue."""
        return {
            "downloads.add": self.add,
            "downloads.pause": lambda fields: self.pause(fields.get("download")),
            "downloads.resume": lambda fields: self.resume(fields.get("download")),
            "downloads.remove": lambda fields: self.remove(fields.get("download")),
            "downloads.move": lambda fields: self.move(fields.get("download"), fields.get("index")),
            "downloads.limit": lambda fields: self.set_limit(fields.get("limit")),
        }

    def _told(self, kind: str, change: Change) -> Change:
        """A change that the other engines make, too."""

        async def changed(fields: Fields) -> Any:
            result = await change(fields)
            self._send({**fields, "kind": kind})
            return result

        return changed

    def _follow(self, change: Fields) -> None:
        """Make a change of another engine. One that has not begun with the queue reads it later."""
        make = self._changes.get(str(change.get("kind")))
        if make is not None and self._restoring is not None:
            self._following = quietly(asyncio.ensure_future(make(change)))  # fails where this engine lacks the download

    async def queue(self) -> list[dict[str, Any]]:
        """The queue. The first call continues what an earlier visit has left."""
        await self._restored()
        return self._listing()

    async def add(self, fields: Fields) -> dict[str, Any]:
        """Add the model of a load request. One that is in the queue already goes on."""
        await self._restored()
        chosen = await self._choose(fields)
        if not all(isinstance(part, str) for part in chosen.parts):
            raise WispError("A file of this computer needs no download.", "invalid_value", param="model")
        key = " ".join(str(part) for part in chosen.parts)
        item = self._items.get(key)
        if item is None or item.state == DONE:
            self._items.pop(key, None)
            item = self._items[key] = Download(key, chosen)
        elif item.state in (PAUSED, FAILED):
            item.state = QUEUED
        await self._changed()
        return item.as_dict()

    async def pause(self, name: Any) -> None:
        """Stop a download; what has been stored stays."""
        await self._stop(await self._item(name), PAUSED)

    async def resume(self, name: Any) -> None:
        """Continue a download that was paused or has failed."""
        item = await self._item(name)
        if item.state in (PAUSED, FAILED):
            item.state, item.error = QUEUED, None
        await self._changed()

    async def remove(self, name: Any) -> None:
        """Take a download out of the queue; what has been stored stays in the storage."""
        item = await self._item(name)
        await self._stop(item, PAUSED)
        self._items.pop(item.id, None)
        await self._changed()

    async def move(self, name: Any, index: Any) -> None:
        """Give a download another place in the queue, from 0 on."""
        item = await self._item(name)
        if isinstance(index, bool) or not isinstance(index, int) or index < 0:
            raise WispError("index must be a number from 0 on.", "invalid_value", param="index")
        order = [other for other in self._items.values() if other is not item]
        order.insert(index, item)
        self._items = {other.id: other for other in order}
        await self._changed()

    async def get_limit(self) -> int:
        """How many downloads run at once, as this visit or an earlier one has set it."""
        await self._restored()
        return self.limit

    async def set_limit(self, limit: Any) -> None:
        """Set how many downloads run at once."""
        await self._restored()
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST:
            raise WispError(f"limit must be between 1 and {MOST}.", "invalid_value", param="limit")
        self.limit = limit
        await self._changed()

    @contextmanager
    def lent(self, parts: tuple[Any, ...]) -> Iterator[None]:
        """Leave files to a load, which continues with what has arrived. Afterwards, the queue stores the rest."""
        wanted = set(filter(lambda part: isinstance(part, str), parts))
        lent = [item for item in self._items.values() if item.state in (RUNNING, QUEUED) and wanted & set(item.urls)]
        for item in lent:
            item.state = LENT
            if item.task is not None:
                item.task.cancel()
        self._tell_all(lent)
        try:
            yield
        finally:
            for item in lent:
                if item.state == LENT:
                    item.state = QUEUED
            self._pump()
            self._tell_all(lent)

    def urls(self) -> set[str]:
        """Addresses of files that must stay in the storage."""
        return {url for item in self._items.values() if item.state != DONE for url in item.urls}

    # -- the work

    def _pump(self) -> None:
        """Start queued downloads, in order, up to the limit."""
        running = [item for item in self._items.values() if item.task is not None and not item.task.done()]
        slow = any(0 < item.speed < SLOW for item in running)
        free = (1 if slow else self.limit) - len(running)
        for item in list(self._items.values()):
            if free > 0 and item.state == QUEUED and item not in running:
                item.state, item.error = RUNNING, None
                item.task = asyncio.ensure_future(self._run(item))
                free -= 1

    async def _run(self, item: Download) -> None:
        def report(progress: dict[str, Any]) -> None:
            item.loaded, item.total, item.speed = progress["loaded"], progress["total"], progress["speed"]
            self._tell(self._listing())

        timer: asyncio.TimerHandle

        def repeat() -> None:
            nonlocal timer
            progress.repeat()
            timer = loop.call_later(REPEAT_S, repeat)

        progress, loop = Progress(report), asyncio.get_running_loop()
        timer = loop.call_later(REPEAT_S, repeat)
        try:
            item.total = await download(item.options, self._platform.open_source, progress)
            item.loaded, item.state = item.total, DONE
        except asyncio.CancelledError:  # the state says why
            pass
        except WispError as error:
            item.state, item.error = FAILED, error.as_dict()["error"]
        finally:
            timer.cancel()
            item.speed, item.task = 0.0, None
            await self._changed()

    async def _stop(self, item: Download, state: str) -> None:
        if item.state == DONE:
            return
        item.state = state
        if item.task is not None:
            task = item.task
            task.cancel()
            await asyncio.wait([task])
        await self._changed()

    # -- the list

    async def _item(self, name: Any) -> Download:
        await self._restored()
        if not isinstance(name, str) or name not in self._items:
            raise WispError(f"No download {name!r} is in the queue.", "not_found", NOT_FOUND, "id")
        return self._items[name]

    def _listing(self) -> list[dict[str, Any]]:
        return [item.as_dict() for item in self._items.values()]

    def _tell_all(self, changed: list[Download]) -> None:
        if changed:
            self._tell(self._listing())

    async def _changed(self) -> None:
        """Start what may run, tell the pages, and store the queue."""
        await self._restored()  # first: it may add what an earlier visit has stored
        self._pump()
        self._tell(self._listing())
        items = [
            {"request": item.options.request, "paused": item.state in (PAUSED, FAILED), "loaded": item.loaded,
             "total": item.total}
            for item in self._items.values()
            if item.state != DONE
        ]  # fmt: skip
        if not self._is_read:
            return  # what an earlier visit has stored would be lost
        try:
            await self._platform.write_text(NAME, json.dumps({"limit": self.limit, "items": items}))
        except WispError:  # no storage: the queue lives as long as the engine
            return

    async def _restored(self) -> None:
        if self._restoring is None:
            self._restoring = asyncio.ensure_future(self._restore())
        await asyncio.shield(self._restoring)

    async def _restore(self) -> None:
        try:
            stored = json_input.stored(await self._platform.read_text(NAME))
        except WispError:
            self._restoring = None  # the next call tries again
            return
        self._is_read = True
        self.limit = min(MOST, max(1, whole(stored.get("limit")) or LIMIT))
        items = stored.get("items")
        for entry in items if isinstance(items, list) else ():
            if not isinstance(entry, dict) or not isinstance(entry.get("request"), dict):
                continue
            try:
                chosen = await self._choose(entry["request"])
            except (WispError, KeyError, TypeError):  # of another version
                continue
            key = " ".join(str(part) for part in chosen.parts)
            state = PAUSED if entry.get("paused") else QUEUED
            loaded, total = (whole(entry.get(name)) or 0 for name in ("loaded", "total"))
            self._items.setdefault(key, Download(key, chosen, state, loaded, total))
        self._pump()
