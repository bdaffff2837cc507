"""Models in a browser: the JavaScript parts that the wheel carries, and files that URLs, paths and bytes name."""

import asyncio
import os
from pathlib import Path
from typing import Any

import js
from pyodide.code import run_js
from pyodide.ffi import to_js

from app.browser import ModelPlatform
from app.models.progress import OnProgress

FILES = Path(__file__).parent / "files"  # made by tools/wheel.py
_TYPES = {".js": "text/javascript", ".wasm": "application/wasm"}
_started: asyncio.Future[None] | None = None


class BrowserModels(ModelPlatform):
    """Models of this browser."""

    async def open_source(self, part: Any, on_progress: OnProgress) -> Any:
        """The source of a file: py_engine.files.shards.open_source."""
        from py_engine.files.shards import open_source

        return await open_source(part, on_progress)

    def part(self, file: Any) -> Any:
        """What open_source() takes: an absolute URL, or a File of the browser."""
        if isinstance(file, bytes):
            return js.File.new(to_js([file]), "model.gguf")
        if isinstance(file, os.PathLike) or (isinstance(file, str) and Path(file).is_file()):
            return js.File.new(to_js([Path(file).read_bytes()]), Path(file).name)
        if isinstance(file, str):
            return str(js.URL.new(file, js.location.href).href)
        return file


async def start() -> BrowserModels:
    """Give the engine's Python its JavaScript, once per interpreter."""
    global _started
    if _started is None:
        _started = asyncio.ensure_future(_start())
    await _started
    return BrowserModels()


async def _start() -> None:
    load = run_js("(url) => import(url)")
    host = await load(_url("host.js"))
    modules = {path.stem.removeprefix("cpu-"): _url(path.name) for path in FILES.glob("cpu-*.wasm")}
    cpu = {"worker": _url("compute.js")} | modules
    assets = {"grammar": _url("grammar.js"), "media": _url("media.js"), "cpu": cpu}
    host.start(to_js(assets, dict_converter=js.Object.fromEntries))


def _url(name: str) -> str:
    """An address of a file of the wheel, as long as the page lives."""
    options = to_js({"type": _TYPES[Path(name).suffix]}, dict_converter=js.Object.fromEntries)
    return str(js.URL.createObjectURL(js.Blob.new(to_js([(FILES / name).read_bytes()]), options)))
