"""What the browser does for models: it loads engines and projectors, fetches media, and imports the grammar engine.

Needs the names of engine_globals.js.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import js
from pyodide.ffi import JsException, to_js

from app.models.progress import OnProgress
from app.openai.video import MAX_VIDEOS
from app.recently_read import RecentlyRead
from py_engine.errors import WispError
from py_engine.media.formats import MAX_FILE
from py_engine.options import LoadOptions

if TYPE_CHECKING:
    from app.models.loaded import Loaded
    from app.models.projector import LoadedProjector


async def _limited(response: Any, url: str) -> bytes:
    """The body of a response. WispError media_too_large before there is more of it in memory than a file may have."""
    if not response.body:  # of a status such as 204
        return b""
    parts, size = [], 0
    reader = response.body.getReader()
    while not (read := await reader.read()).done:
        size += read.value.length
        if size > MAX_FILE:
            await reader.cancel()
            message = f"{url:.200} has more than {MAX_FILE >> 20} MiB, the most that is allowed. Send a smaller file."
            raise WispError(message, "media_too_large")
        parts.append(read.value.to_bytes())
    return b"".join(parts)


# The next turns of a chat have the same files.
_pdf_texts = RecentlyRead[str](8)
_frames = RecentlyRead[list[tuple[float, bytes]]](MAX_VIDEOS)


class ModelPlatform:
    """Loads models, and fetches what their requests name."""

    async def estimate_engine(self, source: Any, header: Any, options: LoadOptions) -> dict[str, Any]:
        from py_engine.engine import Engine

        return await Engine.estimate(source, header, options)

    async def load_engine(self, source: Any, header: Any, options: LoadOptions, on_progress: OnProgress) -> Any:
        from py_engine.engine import Engine
        from py_engine.files.prefixes import Prefixes

        engine = await Engine.load(source, header, options, on_progress, js.wispLoadPackage)
        try:
            await engine.persist_prefixes(Prefixes)
        except BaseException:
            await engine.unload()
            raise
        return engine

    async def load_projector(
        self, model: "Loaded", source: Any, header: Any, options: LoadOptions, on_progress: OnProgress
    ) -> "LoadedProjector":
        from app.models.projector import LoadedProjector, chunker_of
        from py_engine.encoder import Encoder, fitted
        from py_engine.media.decoder import prepare
        from py_engine.media.projector import Projector

        encoder = await Encoder.load(
            source, header, replace(options, context_length=None), on_progress, js.wispLoadPackage
        )
        projector = fitted(Projector.from_gguf(header[0]), encoder.engine.plan)
        return LoadedProjector(projector, chunker_of(model, projector), encoder, prepare, encoder.identity)

    async def fetch_media(self, url: str) -> bytes:
        """Fetch a picture, a sound or a video without cookies or referrer."""
        options = {"credentials": "omit", "mode": "cors", "referrerPolicy": "no-referrer"}
        try:
            response = await js.fetch(url, to_js(options, dict_converter=js.Object.fromEntries))
            if not response.ok:
                raise WispError(f"{url:.200} answers with status {response.status}.", "http_error")
            return await _limited(response, url)
        except JsException:
            raise WispError(
                f"{url:.200} cannot be fetched: it is not there, or its server allows no other site (CORS). Send the "
                "file itself.",
                "network_error",
            ) from None

    async def read_pdf(self, data: bytes) -> str:
        """The text of a PDF file, which a page reads."""
        return await _pdf_texts.get(data, lambda signal: js.wispReadPdf(to_js(data), signal), str)

    async def read_video(self, data: bytes, fps: float, most: int) -> list[tuple[float, bytes]]:
        """Pictures of a video, which a page decodes (app.answers.page_files.PageReader)."""

        def frames(found: Any) -> list[tuple[float, bytes]]:
            return [(frame.seconds, frame.bytes.to_bytes()) for frame in found]

        def read(signal: Any) -> Any:
            return js.wispReadVideo(to_js(data), fps, most, signal)

        return await _frames.get(data, read, frames, f"{fps} {most}")

    async def load_grammar(self, instance: int) -> Any:
        """Import grammar.js on first use. Each instance has a WebAssembly module and memory of its own."""
        return await js.wispImport(f"{js.wispAssets.grammar}#{instance}")
