"""What Wisp makes of a prompt with pictures and sounds otherwise than llama.cpp: the first difference, in words."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from py_engine.cpu.runner import CpuRunner
from py_engine.engine import Engine
from py_engine.errors import WispError
from py_engine.generate.media import Media, PromptMedia, media_ids
from py_engine.media.chunker import Chunker
from py_engine.media.chunks import Chunk, MediaChunk, TextChunk
from py_engine.media.kinds import FINE
from py_engine.media.mel import log_mels, n_tokens
from py_engine.media.prepared import Medium, Sound, Spectrum
from py_engine.media.projector import Projector
from py_engine.models.common import dimension, has_axes
from py_engine.text.tokenizer import load_tokenizer
from tests.golden.make import media_model
from tests.golden.make.llama_cpp_api import Library
from tests.golden.make.media_model import MediaModel
from tests.golden.make.random_media import MARKER, Drawn, Heard, RandomPrompt
from tests.support.cpu_models import load
from tests.support.encoders import CpuEncoder, array_of
from tests.support.media import header_of, picture

NOT_COMPARED = "llama.cpp does not run it"
EMBEDDINGS, MEAN = 0.08, 0.008  # of their root mean square: the largest difference, and the mean one
LOGITS = 0.12  # of numbers of deviation 3
MEL = 2e-3
N_CTX = 4096
FORCED = [5, 77, 130]


@dataclass(frozen=True)
class Pair:
    """Files of a text model, of its projector for llama.cpp, and of the same for Wisp."""

    text: Path
    theirs: Path
    ours: Path


def difference(library: Library, pair: Pair, prompt: RandomPrompt) -> str:
    """The first difference; "" if there is none. WispError if Wisp refuses what llama.cpp runs."""
    try:
        model = MediaModel(library, pair.text, pair.theirs)
    except RuntimeError as error:
        return accepted(pair, f"llama.cpp does not load it: {str(error).split('; ')[-1]}")
    handles = [
        model.picture(medium.pixels()) if isinstance(medium, Drawn) else model.clip(medium.samples())
        for medium in prompt.media
    ]
    try:
        wanted = model.chunks(prompt.prompt, handles)
    except RuntimeError:  # shapes of pictures that it does not cut into tiles
        return NOT_COMPARED
    for chunk in wanted:
        if not chunk.is_text and not model.compute(chunk):
            return NOT_COMPARED  # of pixtral, llama.cpp multiplies what memory happens to hold by 0
    wisp = Wisp(pair)
    chunks = wisp.chunks(prompt)
    if found := of_chunks(wanted, chunks):
        return found
    media = [(want, chunk) for want, chunk in zip(wanted, chunks, strict=True) if isinstance(chunk, MediaChunk)]
    for want, given in media:
        if found := of_inputs(want, given, wisp.projector):
            return found
    rows = wisp.rows([chunk for _, chunk in media])
    for (want, _), got in zip(media, rows, strict=True):
        assert want.rows is not None
        if got.shape != want.rows.shape:
            return f"embeddings shaped {got.shape}, {want.rows.shape} in llama.cpp"
        rms = float(np.sqrt((want.rows.astype(np.float64) ** 2).mean()))
        off = np.abs(got - want.rows) / max(rms, 1e-9)
        mean = float(np.sqrt((off**2).mean()))
        if not (off.max() <= EMBEDDINGS and mean <= MEAN):
            return f"embeddings differ by {off.max():.3g}, {mean:.2g} on average"
    if not wanted[-1].is_text or not wanted[-1].about["ids"]:
        return ""
    # by llama.cpp's embeddings: those that differ slightly may choose other experts
    return of_logits(model, wanted, wisp, chunks, [want.rows for want, _ in media if want.rows is not None])


def accepted(pair: Pair, why: str) -> str:
    """Whether Wisp runs what llama.cpp does not load."""
    try:
        Wisp(pair)
    except WispError:
        return ""
    return f"accepted, {why}"


def of_chunks(wanted: list[media_model.Chunk], chunks: list[Chunk]) -> str:
    """Differences of kinds, ids, counts and places."""
    ours, theirs = [list(map(shown, chunks)), [shown_of(chunk) for chunk in wanted]]
    if ours != theirs:
        return f"chunks {ours}, {theirs} in llama.cpp"
    for want, chunk in zip(wanted, chunks, strict=True):
        if isinstance(chunk, MediaChunk) and want.about["kind"] == "image":
            if want.places is not None and not np.array_equal(want.places, np.array(chunk.positions())):
                return "places differ"
            if want.about["non_causal"] != chunk.non_causal:
                return f"causal in one of both: {want.about['non_causal']} in llama.cpp"
    return ""


def shown(chunk: Chunk) -> tuple[Any, ...]:
    if isinstance(chunk, TextChunk):
        return ("text", *chunk.ids)
    return chunk.kind, chunk.n_tokens, chunk.n_pos


def shown_of(chunk: media_model.Chunk) -> tuple[Any, ...]:
    if chunk.is_text:
        return ("text", *chunk.about["ids"])
    return chunk.about["kind"], chunk.about["n_tokens"], chunk.about["n_pos"]


def of_inputs(want: media_model.Chunk, chunk: MediaChunk, projector: Projector) -> str:
    """Differences of pixels and spectra. Stacked tiles are compared by what is made of them."""
    given, ours = want.given, array_of(chunk)
    if given is None or not isinstance(ours, np.ndarray):
        return ""
    if chunk.kind == "audio":
        theirs = given.reshape(given.shape[-2:])
        if theirs.shape != ours.shape:
            return f"a spectrum of {ours.shape}, {theirs.shape} in llama.cpp"
        if projector.need_audio().type == "mimo_audio":  # logarithms magnify float32's noise where it is quiet
            theirs, ours = np.exp(theirs), np.exp(ours)
        off = float(np.abs(theirs - ours).max())
        return "" if off <= MEL * max(1, float(np.abs(theirs).max())) else f"spectra differ by {off:.3g}"
    vision = projector.need_vision()
    mean, deviation = (np.array(values, np.float32) for values in (vision.mean, vision.std))
    theirs, limit = given[0].transpose(1, 2, 0), 1e-4
    if vision.type in FINE:
        whole, parts = np.split(ours.astype(np.float32), 2)
        ours, limit = whole + parts / 256, 1 / (255 * 256 * float(deviation.min()))
    if theirs.shape != ours.shape:
        return f"a picture of {ours.shape}, {theirs.shape} in llama.cpp"
    off = float(np.abs((ours / np.float32(255) - mean) / deviation - theirs).max())
    return "" if off <= limit else f"pixels differ by {off * float(deviation.min()) * 255:.3g}"


class Wisp:
    """A pair in Wisp: numpy's executor."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.projector = Projector.from_gguf(header_of(pair.ours))
        self.encoder = CpuEncoder(pair.ours)
        self.header = header_of(pair.text)

    def chunks(self, prompt: RandomPrompt) -> list[Chunk]:
        """The chunks of a prompt, as app/models/projector.py makes them."""
        n_embd = dimension(self.header, "embedding_length")
        words, mrope = load_tokenizer(self.header.metadata), has_axes(self.header)
        chunker = Chunker(words, self.projector, n_embd=n_embd, mrope=mrope)
        return chunker.chunks(prompt.prompt, [self._prepared(medium) for medium in prompt.media], MARKER)

    def _prepared(self, medium: Drawn | Heard) -> Medium:
        if isinstance(medium, Drawn):
            return picture(self.projector.need_vision(), medium.pixels())
        audio = self.projector.need_audio()
        mels = log_mels(audio, medium.samples())
        return Sound(tuple(Spectrum(mel, n_tokens(audio, mel.shape[1])) for mel in mels))

    def rows(self, chunks: list[MediaChunk]) -> list[np.ndarray]:
        """The embeddings of each."""
        found: dict[int, np.ndarray] = {}
        for kind in ("image", "audio"):
            of_kind = [i for i, chunk in enumerate(chunks) if chunk.kind == kind]
            if of_kind:
                rows = self.encoder.encode(kind, [array_of(chunks[i]) for i in of_kind])
                found |= dict(zip(of_kind, rows, strict=True))
        return [found[i] for i in range(len(chunks))]

    def logits(self, chunks: list[Chunk], rows: list[np.ndarray]) -> np.ndarray:
        """Those after the last medium, and after each token of FORCED."""
        ids: list[int] = []
        media: list[Media] = []
        for chunk in chunks:
            if isinstance(chunk, TextChunk):
                ids += chunk.ids
                continue
            made = media_ids(f"{chunk.hash} {chunk.number}", chunk.n_tokens)
            grid = chunk.grid if chunk.mrope else None
            media.append(Media(made, rows[len(media)], grid, chunk.non_causal, chunk.number))
            ids += made
        whole = [len(one.ids) for one in media if one.whole]
        width = self.projector.n_embd_inp
        cpu = load(self.pair.text, N_CTX, batch=max(16, *whole, 16), media_width=width, whole_media=bool(whole))
        runner = CpuRunner(cpu.plan)
        runner._cpu = cpu
        found, _ = asyncio.run(Engine(cpu.plan, runner, "cpu", 1).evaluate(ids + FORCED, PromptMedia(media)))
        return np.asarray(found)


def of_logits(
    model: MediaModel, wanted: list[media_model.Chunk], wisp: Wisp, chunks: list[Chunk], rows: list[np.ndarray]
) -> str:
    """Differences of the logits after the last medium."""
    if sum(chunk.about["n_tokens"] for chunk in wanted) > N_CTX - len(FORCED):
        return ""
    past = model.read_prompt(wanted)
    ids = wanted[-1].about["ids"]
    want = model.logits([*ids, *FORCED], past)
    got = wisp.logits(chunks, rows)[-len(want) :]
    off = float(np.abs(want - got).max()) * 3 / max(3.0, float(want.std()))
    return "" if off <= LOGITS else f"logits differ by {off:.3g}"
