"""A loaded projector: pictures and sound in, embeddings for the text model out.

    load      as a model: header -> plan of its encoders -> weights on the GPU, else the CPU (engine.py)
    encode    pixels or mel frames -> rows that the encoder computes with -> the embeddings of each input's tokens

It knows no files of pictures or sound: `media/` decodes and resizes them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from py_engine.engine import DEFAULTS, Engine
from py_engine.errors import WispError
from py_engine.files.convolutions import PROJECTOR
from py_engine.files.gguf_header import Header
from py_engine.files.parts import Parts
from py_engine.loader import LoadPackage, OnProgress
from py_engine.media.chunks import MediaChunk
from py_engine.media.prepared import FramePair, Piece, Stacked
from py_engine.media.projector import Projector
from py_engine.models.projectors.tower import Tower, towers
from py_engine.options import LoadOptions
from py_engine.plan.plan import Plan

if TYPE_CHECKING:
    from py_engine.files.source import Source

Embeddings = tuple[Any, tuple[int, int]]  # float32 (n_tokens, width) as Engine.evaluate() returns it, and its shape


class Encoder:
    """One loaded projector. `modalities`: what it encodes, of "image" and "audio"."""

    def __init__(self, engine: Engine, found: dict[str, Tower]) -> None:
        self.engine, self.towers = engine, found  # hyperparameters by modality
        self.modalities = tuple(found)
        self._one_at_a_time = asyncio.Lock()

    @classmethod
    async def load(
        cls,
        source: Source | list[Source],
        header: Header | list[Header],
        options: LoadOptions = DEFAULTS,
        on_progress: OnProgress | None = None,
        load_package: LoadPackage | None = None,
    ) -> Encoder:
        """Load a projector, as Engine.load() loads a model. WispError not_a_projector for any other file."""
        whole = Parts.of(source, header).header
        if whole.architecture != PROJECTOR:
            raise WispError(
                f"This file is a {whole.architecture} model, not a projector. Choose the model's mmproj file.",
                "not_a_projector",
            )
        found = towers(whole)
        if load_package is not None:
            await load_package("numpy")  # arranges the inputs
        return cls(await Engine.load(source, header, options, on_progress, load_package), found)

    @property
    def identity(self) -> str:
        """Identifies the projector's bytes; where they are not identified, this load of it."""
        return self.engine.content or f"load {id(self)}"

    async def encode_chunks(self, chunks: Sequence[MediaChunk]) -> list[Embeddings]:
        """encode() of a prompt's chunks, which are all of one kind."""
        import numpy as np

        inputs: list[Any] = []
        for chunk in chunks:
            part = chunk.part
            if isinstance(part, Piece):
                pixels = np.frombuffer(part.pixels, np.uint8).reshape(part.shape)
                paired = FramePair(pixels) if part.paired else pixels
                inputs.append(Stacked(pixels, part.stacked) if part.stacked else paired)
            else:
                inputs.append(part.mel)
        return await self.encode(chunks[0].kind, inputs)

    def width(self, modality: str) -> int:
        """Values of a token: those of the text model's embeddings, then of deepstack slices."""
        return self.engine.plan.encoders[modality].width

    async def encode(self, modality: str, inputs: Sequence[Any]) -> list[Embeddings]:
        """Encode inputs of one kind: the embeddings of each, in order.

        A picture is uint8 (height, width, 3), Stacked or FramePair, as the projector's preprocessing leaves it; sound
        is float32 (mel bins, frames). As many pictures as the plan has rows for are encoded in one batch. The GPU goes
        on to the next batch while the host reads the results.
        """
        from py_engine.encode.arrange import batches, parts

        at_once = 2 if self.engine.runner.queues else 1  # batches on the device
        if modality not in self.towers:
            raise WispError(f"This projector does not encode {modality}.", "unsupported_parameter")
        found: list[Embeddings] = []
        divided = [parts(self.towers[modality], given) for given in inputs]
        of_all = [part for each, _ in divided for part in each]
        async with self._one_at_a_time:
            running = deque[tuple[list[int], asyncio.Future[Any]]]()  # the tokens of each batch's inputs, its results
            try:
                for batch in batches(self.towers[modality], self.engine.plan.encoders[modality], of_all):
                    if len(running) == at_once:
                        found += await self._results(modality, *running.popleft())
                    running.append((batch.tokens, asyncio.ensure_future(self.engine.encode(modality, batch.inputs()))))
                    await asyncio.sleep(0)  # it is submitted
                while running:
                    found += await self._results(modality, *running.popleft())
            finally:
                for _, rest in running:
                    rest.cancel()
        results = iter(found)
        return [joined([next(results) for _ in each], spans) for each, spans in divided]

    async def _results(self, modality: str, tokens: list[int], running: asyncio.Future[Any]) -> list[Embeddings]:
        """The embeddings of each input of a batch."""
        rows, width, at = await running, self.width(modality), 0
        found: list[Embeddings] = []
        for count in tokens:
            part = rows[at : at + count] if self.engine.runner.numpy else _slice(rows, at, count, width)
            found.append((part, (count, width)))
            at += count
        return found

    async def unload(self) -> None:
        """Free all memory. The encoder cannot be used afterwards."""
        await self.engine.unload()


def joined(parts: list[Embeddings], spans: list[tuple[int, int, int]]) -> Embeddings:
    """The embeddings of an input by those of its parts: these (part, first row, rows), or those of its one part."""
    if not spans:
        return parts[0]
    (first, (_, width)), shape = parts[0], (sum(count for _, _, count in spans), parts[0][1][1])
    if hasattr(first, "reshape"):  # numpy's, of the CPU
        import numpy as np

        return np.concatenate([parts[i][0].reshape(-1, width)[at : at + count] for i, at, count in spans]), shape
    rows, row = first.constructor.new(shape[0] * width), 0
    for i, at, count in spans:
        rows.set(parts[i][0].subarray(at * width, (at + count) * width), row * width)
        row += count
    return rows, shape


def fitted(projector: Projector, plan: Plan) -> Projector:
    """The projector with pictures no larger than its plan has rows for: of a device with little memory."""
    vision = projector.vision
    if vision is None or not vision.max_pixels:
        return projector
    most = plan.encoders["image"].capacity["patches"] * vision.patch_size**2
    return replace(projector, vision=replace(vision, max_pixels=min(vision.max_pixels, most)))


def _slice(rows: Any, first: int, count: int, width: int) -> Any:
    """Rows of a flat Float32Array."""
    if count * width == rows.length:  # a copy of all would take as long as reading them back
        return rows
    return rows.slice(first * width, (first + count) * width)
