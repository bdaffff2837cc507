"""Models outside a browser: headers, tokenizers, templates and plans of files on the disk. Nothing computes."""

from pathlib import Path
from typing import Any

from app.models.progress import OnProgress
from py_engine.errors import WispError
from py_engine.files.gguf_header import FIRST_READ
from py_engine.options import LoadOptions


class LocalFile:
    """A .gguf file on the disk, as the source of its header."""

    url, header_bytes = None, FIRST_READ

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.size = path, path.name, path.stat().st_size
        self.expected: str | None = None
        self.notices: list[str] = []
        self.stats: dict[str, float] = {}

    async def read(self, offset: int, length: int) -> bytes:
        """Read a part of the file."""
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def close(self) -> None:
        """Nothing is open."""


class LocalModels:
    """Models of this machine's disk."""

    def part(self, file: Any) -> LocalFile:
        """What open_source() takes. WispError where there is no such file."""
        path = Path(file)
        if not path.is_file():
            raise WispError(f"There is no file {path}. Outside a browser, Wisp reads local files.", "invalid_value")
        return LocalFile(path)

    async def open_source(self, part: LocalFile, on_progress: OnProgress) -> LocalFile:
        """The file itself."""
        return part

    async def estimate_engine(self, source: Any, header: Any, options: LoadOptions) -> dict[str, Any]:
        """py_engine.engine.Engine.estimate, for the CPU engine."""
        from dataclasses import replace

        from py_engine.engine import Engine

        return await Engine.estimate(source, header, replace(options, backend="cpu"))

    async def load_engine(self, *_: Any) -> Any:
        """Raise WispError: weights need a browser."""
        raise WispError("Models compute in a browser only. Here, load them with vocab_only=True.", "no_webgpu")

    load_projector = fetch_media = load_grammar = load_engine
