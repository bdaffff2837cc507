"""What the browser does for models: it loads engines and projectors, fetches media, and imports the grammar engine.

Needs the names of engine_globals.js.
"""

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import js
from pyodide.ffi import JsException, to_js

from app.models.progress import OnProgress
from py_engine.errors import WispError
from py_engine.options import LoadOptions

if TYPE_CHECKING:
    from app.models.loaded import Loaded
    from app.models.projector import LoadedProjector


PDF_TEXTS = 8  # that are cached at most
_pdf_texts: dict[str, str] = {}  # SHA-256 -> text, the one used last at the end


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
        """Fetch a picture or a sound without cookies or referrer."""
        options = {"credentials": "omit", "mode": "cors", "referrerPolicy": "no-referrer"}
        try:
            response = await js.fetch(url, to_js(options, dict_converter=js.Object.fromEntries))
            if not response.ok:
                raise WispError(f"{url:.200} answers with status {response.status}.", "http_error")
            return bytes((await response.arrayBuffer()).to_bytes())
        except JsException:
            raise WispError(
                f"{url:.200} cannot be fetched: it is not there, or its server allows no other site (CORS). Send the "
                "file itself.",
                "network_error",
            ) from None

    async def read_pdf(self, data: bytes) -> str:
        """The text of a PDF file, which a page reads. Cached: the next turns of a chat have the same files."""
        key = hashlib.sha256(data).hexdigest()
        try:
            text = _pdf_texts.pop(key, None) or await _pdf_text(data)
        except JsException as error:
            raise ValueError(str(error).splitlines()[0].removeprefix("Error: ")) from None
        _pdf_texts[key] = text
        if len(_pdf_texts) > PDF_TEXTS:
            del _pdf_texts[next(iter(_pdf_texts))]
        return text

    async def load_grammar(self, instance: int) -> Any:
        """Import grammar.js on first use. Each instance has a WebAssembly module and memory of its own."""
        return await js.wispImport(f"{js.wispAssets.grammar}#{instance}")


async def _pdf_text(data: bytes) -> str:
    """The text of a PDF file. A page stops reading it where this is cancelled."""
    controller = js.AbortController.new()
    try:
        return str(await js.wispReadPdf(to_js(data), controller.signal))
    finally:
        controller.abort()
