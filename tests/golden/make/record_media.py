"""Record what llama.cpp makes of prompts with pictures and sound. tests/golden/vision/README.md explains the arrays.

The arrays come from a run with all weights as float32 numbers, rounded as the files have them: llama.cpp then rounds no
activations, so the values do not depend on the files' type.
"""

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from py_engine.media.kinds import FINE
from tests.golden.make.gguf_file import GgufFile, Layout
from tests.golden.make.llama_cpp_api import Library
from tests.golden.make.media_model import Chunk, MediaModel
from tests.golden.make.record import About, Arrays

ROWS = 32  # of a medium's embeddings that are recorded, at most
PIXELS = 1000  # of a picture that are recorded, about
FRAMES = 24  # of a spectrum
TAIL = FORCED = 5
GREEDY = 16
MEDIA = Path(__file__).parents[1] / "vision" / "media"


@dataclass(frozen=True)
class Prompt:
    """A case of a golden."""

    id: str
    prompt: str
    media: tuple[str, ...]


def record_media(
    library: Library, text: GgufFile, projector: GgufFile, prompts: Sequence[Prompt], seed: int
) -> tuple[Arrays, About]:
    """The arrays, and what the .json says of the pair and of each prompt."""
    arrays: Arrays = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("text.gguf", "projector.gguf")]
        for file, path in zip((text, projector), paths, strict=True):
            widened(file).write(path, "F32", Layout(), library)
        model = MediaModel(library, *paths)
        recorder = Recorder(model, arrays, dict(projector.metadata))
        cases = [recorder.case(prompt, seed + i) for i, prompt in enumerate(prompts)]
        about = {"mrope": model.mrope, "n_embd_inp": model.width, "n_vocab": model.n_vocab}
        about |= {"audio_sample_rate": model.rate, "settings": model.settings, "cases": cases}
        model.close()
    return arrays, about


def widened(file: GgufFile) -> GgufFile:
    """The same model with its float16 weights as float32 numbers."""
    wide = GgufFile(file.architecture, file.seed)
    wide.metadata = file.metadata
    for name, values in file.tensors.items():
        wide.tensors[name] = values if name in file.float32 else values.astype(np.float16).astype(np.float32)
    wide.float32 = set(wide.tensors)
    return wide


class Recorder:
    """Records the cases of one pair. `keys`: the projector's metadata."""

    def __init__(self, model: MediaModel, arrays: Arrays, keys: dict[str, Any]) -> None:
        self.model, self.arrays = model, arrays
        self.mean, self.deviation = (keys.get(f"clip.vision.image_{name}") for name in ("mean", "std"))
        self.fine = keys.get("clip.projector_type") in FINE

    def case(self, prompt: Prompt, seed: int) -> About:
        """Record one prompt; return its row of the .json."""
        model, arrays = self.model, self.arrays
        opened = [model.open(MEDIA / name) for name in prompt.media]
        chunks = model.chunks(prompt.prompt, [handle for handle, _ in opened])
        for i, chunk in enumerate(chunks):
            if not chunk.is_text:
                assert model.compute(chunk)
                self._medium(f"{prompt.id}/{i}", chunk)
        ids = chunks[-1].about["ids"]
        forced = np.random.default_rng(seed).integers(3, 250, FORCED).astype(np.int32)
        past = model.read_prompt(chunks)
        rows = model.logits([*ids, *forced.tolist()], past)
        tail = min(TAIL, len(ids))
        arrays[f"{prompt.id}/forced"], arrays[f"{prompt.id}/logits"] = forced, rows[len(ids) - tail :]
        greedy, margins = self._greedy(chunks, rows[len(ids) - 1])
        arrays[f"{prompt.id}/greedy"] = np.array(greedy, np.int32)
        for handle, _ in opened:
            model.forget(handle)
        about = {"id": prompt.id, "prompt": prompt.prompt, "media": list(prompt.media)}
        return about | {"chunks": [chunk.about for chunk in chunks], "n_tail": tail, "greedy_margin": margins}

    def _greedy(self, chunks: Sequence[Chunk], row: np.ndarray) -> tuple[list[int], list[float]]:
        """Ids that continue the prompt, and by how much each was the best."""
        past = self.model.read_prompt(chunks)
        ids = chunks[-1].about["ids"]
        self.model.logits(ids, past)
        found: list[int] = []
        margins: list[float] = []
        for k in range(GREEDY):
            second, first = np.sort(row)[-2:]
            found.append(int(row.argmax()))
            margins.append(round(float(first - second), 4))
            if k + 1 < GREEDY:
                row = self.model.logits(found[-1:], past + len(ids) + k)[0]
        return found, margins

    def _medium(self, key: str, chunk: Chunk) -> None:
        """Record a medium's embeddings, its places, and what its encoder was given."""
        arrays, rows, given = self.arrays, chunk.rows, chunk.given
        assert rows is not None
        assert given is not None
        kept = np.arange(0, len(rows), -(-len(rows) // ROWS), dtype=np.int32)
        arrays[f"{key}/embd"], arrays[f"{key}/mean"] = rows[kept], rows.mean(0)
        if len(kept) < len(rows):
            arrays[f"{key}/rows"] = kept
        chunk.about["rms"] = float(f"{np.sqrt((rows.astype(np.float64) ** 2).mean()):.6g}")
        if chunk.places is not None:
            arrays[f"{key}/pos"] = chunk.places
        if chunk.about["kind"] == "image":
            pixels = self.pixels(given)
            step = max(1, int(np.ceil(np.sqrt(pixels.shape[0] * pixels.shape[1] / PIXELS))))
            arrays[f"{key}/pixels"] = pixels[::step, ::step]
            chunk.about["pixels"] = {"height": pixels.shape[0], "width": pixels.shape[1], "step": step}
            if pixels.dtype == np.uint8:
                chunk.about["pixels"]["sha256"] = hashlib.sha256(pixels.tobytes()).hexdigest()
            return
        bins, count = given.shape[-2:]
        mel = given.reshape(bins, count)
        frames = np.unique(np.linspace(0, count - 1, FRAMES).astype(np.int32))
        arrays[f"{key}/mel"], arrays[f"{key}/frames"] = mel[:, frames], frames
        chunk.about["mel"] = {"n_mel": bins, "n_frames": count} | {
            "mean": float(f"{mel.mean():.6g}"), "std": float(f"{mel.std():.6g}"),
        }  # fmt: skip

    def pixels(self, given: np.ndarray) -> np.ndarray:
        """The bytes (height, width, 3) that an encoder's input (1, 3, height, width) was made of.

        Of types in FINE, the numbers that are finer than bytes: float32, in units of a byte.
        """
        mean, deviation = (np.array(values, np.float32) for values in (self.mean, self.deviation))
        values = given[0].transpose(1, 2, 0)
        exact = (values.astype(np.float64) * deviation + mean) * 255
        if self.fine:
            return np.ascontiguousarray(exact, np.float32)
        found = np.rint(exact).astype(np.uint8)
        again = (found / np.float32(255) - mean) / deviation
        assert np.abs(again - values).max() < 1e-5
        return np.ascontiguousarray(found)
