"""The projector of a loaded model: from files of pictures and sounds to token ids, and to embeddings where needed.

A second question about a picture prepares and encodes nothing: what was prepared is known by the bytes of its file, and
embeddings by the hash of what the encoder takes.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from app.models.loaded import Loaded
from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.generate.media import Media, media_ids
from py_engine.loader import OnProgress
from py_engine.media.chunker import Chunker
from py_engine.media.chunks import Chunk, MediaChunk, TextChunk
from py_engine.media.formats import bad_media
from py_engine.media.pieces import paired
from py_engine.media.prepared import Medium, Picture
from py_engine.media.projector import Projector
from py_engine.models.common import deepstack, dimension, has_axes
from py_engine.options import LoadOptions, MediaOptions
from py_engine.recovery import Reload

PREPARED_BYTES = 64 << 20  # of pixels and spectra that are kept, and of their files
EMBEDDING_BYTES = 256 << 20  # of embeddings that are kept

ON_CPU = ("model_too_large", "out_of_memory", "wrong_results")  # errors of a GPU that the CPU does not have
Opened = tuple[list[Any], list[Header]]  # sources and headers of a projector's files
LoadProjector = Callable[["Loaded", list[Any], list[Header], LoadOptions, OnProgress], Awaitable["LoadedProjector"]]

Prepare = Callable[[Projector, bytes], Awaitable[Medium]]
Key = TypeVar("Key", bytes, str)
Value = TypeVar("Value")


@dataclass(frozen=True)
class ChunkedPrompt:
    """A prompt's chunks, its ids with those that stand for media, and what stands for each chunk of media, in order."""

    chunks: list[Chunk]
    ids: list[int]
    media: list[Media]


@dataclass(eq=False)
class PreparedMedia(Media):
    """A medium of a prompt with what its embeddings are computed from."""

    chunk: MediaChunk | None = None
    content: str = ""  # identifies it, with its projector


class Recent(Generic[Key, Value]):
    """Values by key; the least recently used are dropped when all together exceed `most` bytes."""

    def __init__(self, most: int) -> None:
        self._most, self._bytes = most, 0
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """The value of a key."""
        found = self._values.get(key)
        if found is None:
            return None
        self._values.move_to_end(key)
        return found[0]

    def put(self, key: Key, value: Value, size: int) -> None:
        """Keep a value of `size` bytes."""
        self._bytes += size - self._values.pop(key, (None, 0))[1]
        self._values[key] = value, size
        while self._bytes > self._most and len(self._values) > 1:
            self._bytes -= self._values.popitem(last=False)[1][1]


class LoadedProjector:
    """A projector with its encoders on the device. `encoder`: py_engine.encoder.Encoder; `identity`: of its file."""

    def __init__(self, projector: Projector, chunker: Chunker, encoder: Any, prepare: Prepare, identity: str) -> None:
        self.projector, self.encoder, self._identity = projector, encoder, identity
        self.encoded = 0  # media whose embeddings were computed
        self._chunker, self._prepare = chunker, prepare
        self._prepared = Recent[bytes, Medium](PREPARED_BYTES)
        self._embeddings = Recent[str, Any](EMBEDDING_BYTES)

    async def prepared(self, data: bytes, second: bytes = b"") -> Medium:
        """The pixels or spectra of a file; `second`: that of a video's next frame, which is the same picture.

        WispError for files that cannot be used.
        """
        medium = await self._prepared_file(data)
        if not second:
            return medium
        other = await self._prepared_file(second)
        if not isinstance(medium, Picture) or not isinstance(other, Picture):
            raise bad_media("a frame of a video is no picture")
        return paired(self.projector.need_vision(), medium, other)

    async def _prepared_file(self, data: bytes) -> Medium:
        medium = self._prepared.get(data)
        if medium is None:
            medium = await self._prepare(self.projector, data)
            self._prepared.put(data, medium, len(data) + _size(medium))
        return medium

    def prompt(self, text: str, media: list[Medium], marker: str) -> ChunkedPrompt:
        """The chunks of a text that has the marker once for each of its media. WispError if it has not."""
        prompt = ChunkedPrompt(self._chunker.chunks(text, media, marker), [], [])
        for chunk in prompt.chunks:
            if isinstance(chunk, TextChunk):
                prompt.ids.extend(chunk.ids)
            else:
                prompt.media.append(self._media_of(chunk))
                prompt.ids.extend(prompt.media[-1].ids)
        return prompt

    def _media_of(self, chunk: MediaChunk) -> PreparedMedia:
        """What stands for a chunk in a prompt; its embeddings are there if they were computed before."""
        content = f"{self._identity} {chunk.hash}"
        grid = chunk.grid if chunk.mrope else None
        # Pictures with numbers are other tokens at each place, with the same embeddings.
        place = content if chunk.number is None else f"{content} {chunk.number}"
        return PreparedMedia(
            media_ids(place, chunk.n_tokens),
            self._embeddings.get(content),
            grid,
            chunk.non_causal,
            chunk.number,
            chunk=chunk,
            content=content,
        )

    async def encode(self, media: list[Media]) -> None:
        """Compute the embeddings of media that lack them, in one batch."""
        prepared = [one for one in media if isinstance(one, PreparedMedia)]
        lacking = {one.content: one for one in prepared if one.rows is None}
        computed: dict[str, Any] = {}  # all of them: together they may be more than is kept
        for kind in ("image", "audio"):
            chunks = {content: one.chunk for content, one in lacking.items() if one.chunk and one.chunk.kind == kind}
            if chunks:
                found = await self.encoder.encode_chunks(list(chunks.values()))
                for content, (rows, shape) in zip(chunks, found, strict=True):
                    computed[content] = rows
                    self._embeddings.put(content, rows, 4 * shape[0] * shape[1])
                    self.encoded += 1
        for one in prepared:
            if one.rows is None:
                one.rows = computed[one.content]

    def reload_after_loss(self, options: LoadOptions, reload: Reload) -> None:
        """Have its encoders come back when their GPU is lost. The text model's recovery tells the user."""
        self.encoder.engine.reload_after_loss(options, reload, lambda text: None)

    @property
    def memory(self) -> dict[str, int]:
        """Bytes on the device, by pool."""
        return dict(self.encoder.engine.stats().get("memory") or {})

    def stats(self) -> dict[str, Any]:
        """Figures as plain JSON."""
        return {
            "backend": self.encoder.engine.backend,
            "modalities": list(self.encoder.modalities),
            "encoded": self.encoded,
        }

    async def close(self) -> None:
        """Free its memory."""
        await self.encoder.unload()


async def load_beside(
    model: Loaded,
    load: LoadProjector,
    opened: Opened,
    options: LoadOptions,
    on_progress: OnProgress,
    notify: Callable[[str], None],
) -> LoadedProjector:
    """Load a projector where its text model runs; on the CPU if it does not fit there, or its kernels are wrong there.

    `options.backend`: what the user asked for. `notify(text)` tells that the projector runs on the CPU.
    """
    backend = model.engine_or_error().backend
    try:
        return await load(model, *opened, replace(options, backend=backend), on_progress)
    except WispError as error:
        if error.code not in ON_CPU or backend == "cpu" or options.backend != "auto":
            raise
        found = await load(model, *opened, replace(options, backend="cpu"), on_progress)
        notify(f"Pictures and sound are read on the CPU, which is slower: {error.message}")
        return found


def media_options(model: Loaded, headers: list[Header]) -> MediaOptions:
    """How a text model is loaded that is to read what a projector makes. WispError if they do not fit."""
    projector = Projector.from_gguf(headers[0])
    projector.check_fits(prompt_rows(model).width)
    whole = projector.reads_whole(dimension(model.header, "embedding_length"))
    return MediaOptions(projector.n_embd_inp, projector.most_tokens, whole)


def prompt_rows(model: Loaded) -> MediaOptions:
    """How a text model is loaded whose prompts may have rows of a caller in place of tokens."""
    n_embd, deep = dimension(model.header, "embedding_length"), deepstack(model.header)
    return MediaOptions(n_embd * (1 + len(deep)), 1)


def chunker_of(model: Loaded, projector: Projector) -> Chunker:
    """What makes the chunks of prompts for a text model."""
    n_embd = dimension(model.header, "embedding_length")
    return Chunker(model.tokenizer, projector, n_embd=n_embd, mrope=has_axes(model.header))


def _size(medium: Medium) -> int:
    if isinstance(medium, Picture):
        return sum(len(piece.pixels) for piece in medium.pieces)
    return sum(spectrum.mel.nbytes for spectrum in medium.spectra)
