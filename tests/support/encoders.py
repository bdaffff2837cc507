"""Encoders of the goldens' projectors: their inputs, their results with numpy, and how far results may be off."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from py_engine import planner
from py_engine.cpu import executor as cpu
from py_engine.encode.arrange import batches, parts
from py_engine.encoder import joined
from py_engine.files.convolutions import flattened
from py_engine.files.gguf_header import parse
from py_engine.media.chunks import MediaChunk
from py_engine.media.prepared import FramePair, Piece, Stacked
from py_engine.models.projectors.tower import Tower, towers
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.kernels import Device
from py_engine.plan.plan import ZEROS
from tests.support.media import VISION, Golden

# Largest difference of an embedding from llama.cpp's on F32 weights, over the rms of its chunk: with sums and
# activations in f32, and with activations in f16. A mistake costs 0.03 to 6.
LIMITS = {"f32": 8e-3, "f16": 1.5e-2}

SOFTWARE = Device(software=True)


class CpuEncoder:
    """A projector's file on the numpy executor."""

    def __init__(self, path: Path, device: Device = SOFTWARE) -> None:
        data = path.read_bytes()
        header = flattened(parse(data, len(data)))

        def raw(tensor: str, first: int, rows: int) -> bytes:
            if tensor == ZEROS:
                return bytes(4 * rows)
            info = header.tensors[tensor]
            size = info.nbytes // max(1, int(np.prod(info.shape[1:])))
            begin = header.data_offset + info.offset + first * size
            return data[begin : begin + rows * size]

        self.towers: dict[str, Tower] = towers(header)
        options = planner.PlanOptions(1, 1, "f32")
        self.plan = planner.make_plan(header, device, options)
        weights = {
            w.name: cpu.dequantize(w, np.frombuffer(b"".join(raw(*s) for s in w.sources), np.uint8))
            for w in self.plan.weights.values()
        }
        self.host = cpu.Cpu(self.plan, weights)

    @classmethod
    def of(cls, golden: Golden, device: Device = SOFTWARE) -> "CpuEncoder":
        """A golden's projector."""
        return cls(VISION / golden.about["mmproj"], device)

    def encode(self, modality: str, inputs: Sequence[Any]) -> list[np.ndarray]:
        """The embeddings of each input."""
        encoder, found = self.plan.encoders[modality], []
        divided = [parts(self.towers[modality], given) for given in inputs]
        for batch in batches(self.towers[modality], encoder, [part for each, _ in divided for part in each]):
            rows = self._run(encoder, batch.inputs())
            found += np.split(rows, np.cumsum(batch.tokens)[:-1])
        results = iter(found)
        return [joined([(rows := next(results), rows.shape) for _ in each], spans)[0] for each, spans in divided]

    def _run(self, encoder: EncoderPlan, inputs: Any) -> np.ndarray:
        for name, at, contents in inputs.writes:
            self.host.write(name, contents, at)
        for stage in encoder.stages:
            self.host.states[0] = 0, inputs.rows[stage.rows], 0, 0
            self.host.run(stage.list)
        return self.host.buffers[encoder.output][: inputs.tokens, : encoder.width].copy()


def media_of(golden: Golden, case: dict[str, Any], modality: str) -> list[tuple[int, Any]]:
    """The index of each chunk of one kind among a case's chunks, and what its encoder takes."""
    chunks = enumerate(golden.chunks(case))
    return [(i, array_of(c)) for i, c in chunks if isinstance(c, MediaChunk) and c.kind == modality]


def array_of(chunk: MediaChunk) -> Any:
    """A picture's pixels (height, width, 3), an overview with tiles, a pair, or a spectrum (mel bins, frames)."""
    part = chunk.part
    if isinstance(part, Piece):
        pixels = np.frombuffer(part.pixels, np.uint8).reshape(part.shape)
        paired = FramePair(pixels) if part.paired else pixels
        return Stacked(pixels, part.stacked) if part.stacked else paired
    return part.mel


def distance(golden: Golden, case: dict[str, Any], index: int, got: np.ndarray) -> float:
    """The largest difference of a chunk's embeddings, or of their mean, over their rms."""
    about, key = case["chunks"][index], f"{case['id']}/{index}"
    assert got.shape[0] == about["n_tokens"]
    arrays = golden.arrays
    rows = arrays[f"{key}/rows"] if f"{key}/rows" in arrays else slice(None)
    off = np.abs(got[rows] - arrays[f"{key}/embd"]).max(), np.abs(got.mean(0) - arrays[f"{key}/mean"]).max()
    return float(max(off)) / float(about["rms"])
