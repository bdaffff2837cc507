"""Frames of sound as rows, and the taps of convolutions, as sound.py of models/projectors/ expects them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from py_engine.encode import dots3_sound, mimo_audio
from py_engine.encode.batch import LAYOUTS, Array, EncoderBatch
from py_engine.encode.convolutions import line_taps, plane_taps
from py_engine.errors import WispError
from py_engine.media.kinds import LFM2_SOUND, POOLED
from py_engine.models.projectors import fastconformer
from py_engine.models.projectors.conformer import KERNEL, WINDOW
from py_engine.models.projectors.sound import FRAMES
from py_engine.models.projectors.tower import Tower
from py_engine.plan.encoder import EncoderPlan

Taps = tuple[Array, Array]  # of a convolution: rows, and whether each is inside of the input


def arrange(tower: Tower, plan: EncoderPlan, mel: Array) -> EncoderBatch:
    """The inputs for one spectrum, float32 (mel bins, frames)."""
    if len(mel) != tower.mels or not mel.size:
        raise WispError(
            f"A spectrum of {mel.shape[0]} bins and {mel.shape[1]} frames does not suit this projector's "
            f"{tower.mels} bins.",
            "invalid_value",
        )
    layout, taps = _layout(tower, plan, mel.shape[1])
    most = [name for name, count in layout.rows.items() if count > plan.capacity.get(name, count)]
    if most:
        raise WispError(f"A spectrum of {mel.shape[1]} frames is too long for this projector.", "invalid_value")
    frames = np.ascontiguousarray(mel.T, np.float32)
    if taps is None:
        return layout.with_contents([("frames", 0, layout.padded("frames", frames))])
    unfolded = ((name, frames.reshape(-1)[ids] * inside.astype(np.float32)) for name, (ids, inside) in taps.items())
    return layout.with_contents([(name, 0, layout.padded(name, rows)) for name, rows in unfolded])


@lru_cache(LAYOUTS)
def _layout(tower: Tower, plan: EncoderPlan, frames: int) -> tuple[EncoderBatch, dict[str, Taps] | None]:
    """The inputs for so many frames, without them.

    If the frames are unfolded for a convolution in two dimensions, also its taps, by the name of the unfolded input.
    """
    batch = EncoderBatch(plan, "audio")
    return batch, BUILDERS.get(tower.kind, _whisper)(tower, batch, frames)


def _whisper(tower: Tower, batch: EncoderBatch, frames: int) -> None:
    halves = frames // 2
    batch.write_taps("first", *line_taps(frames, frames, 1))
    batch.write_taps("second", *line_taps(halves, frames, 2))
    batch.write_taps("positions", np.arange(halves)[:, None])
    batch.rows = {"frames": frames, "halves": halves}
    encoded = halves
    if tower.kind in POOLED:
        encoded = halves // 2
        ids = np.arange(2 * encoded).reshape(-1, 2)
        batch.write_taps("pool", ids, np.full(ids.shape, 0.5))
        batch.rows["pooled"] = encoded
    tokens = encoded // tower.stack
    batch.rows["tokens"] = tokens
    if batch.takes("stack"):
        batch.write_taps("stack", np.arange(tokens * tower.stack).reshape(tokens, -1))
    batch.tokens = [tokens]
    if batch.takes("ends"):
        _between_ends(batch, tokens)


def _between_ends(batch: EncoderBatch, tokens: int) -> None:
    """Put a row before the tokens and one after them."""
    inside = np.ones((tokens + 2, 1))
    inside[[0, -1]] = 0
    batch.write_taps("order", np.arange(-1, tokens + 1).clip(0, tokens - 1)[:, None], inside)
    batch.write_taps("ends", np.arange(tokens + 2)[:, None] > 0, 1 - inside)
    batch.rows["ended"], batch.tokens = tokens + 2, [tokens + 2]


def _hundreds(tower: Tower, batch: EncoderBatch, frames: int) -> dict[str, Taps]:
    """Each hundred frames is convolved on its own."""
    parts = frames // FRAMES
    ids, inside, frames, bins = plane_taps(parts, FRAMES, tower.mels)
    first = ids, inside
    batch.rows = {"first": len(ids)}
    for name in ("second", "third"):
        ids, inside, frames, bins = plane_taps(parts, frames, bins)
        batch.write_taps(name, ids, inside)
        batch.rows[name] = len(ids)
    tokens = parts * frames
    batch.write_taps("bins", np.arange(tokens * bins).reshape(tokens, bins))
    batch.write_taps("positions", np.tile(np.arange(frames), parts)[:, None])
    batch.rows["tokens"], batch.tokens = tokens, [tokens]
    return {"frames": first}


def _frames(tower: Tower, batch: EncoderBatch, frames: int) -> None:
    batch.rows, batch.tokens = {"tokens": frames}, [frames]


def _conformer(tower: Tower, batch: EncoderBatch, frames: int) -> dict[str, Taps]:
    ids, inside, frames, bins = plane_taps(1, frames, tower.mels, rows_first=True)
    first = ids, inside
    batch.rows = {"first": len(ids), "first_frames": frames, "distances": WINDOW}
    ids, inside, tokens, bins = plane_taps(1, frames, bins, rows_first=True)
    batch.write_taps("second", ids, inside)
    batch.rows |= {"second": len(ids), "tokens": tokens}
    if batch.takes("bins"):
        batch.write_taps("bins", np.arange(tokens * bins).reshape(tokens, bins))
    recent = np.arange(tokens)[:, None] + np.arange(1 - KERNEL, 1)
    batch.write_taps("recent", np.maximum(recent, 0), recent >= 0)
    batch.tokens = [tokens]
    return {"frames": first}


def _near(batch: EncoderBatch, rows: int, kernel: int) -> None:
    """The rows that a convolution sees around each."""
    near = np.arange(rows)[:, None] + np.arange(kernel) - kernel // 2
    batch.write_taps("near", np.clip(near, 0, rows - 1), (near >= 0) & (near < rows))


def _granite_speech(tower: Tower, batch: EncoderBatch, frames: int) -> None:
    speech = tower.speech
    assert speech is not None
    distances = np.arange(2 * speech.block - 1)
    batch.write_taps("distances", (speech.positions + speech.block - 1 - distances)[:, None])
    _near(batch, frames, speech.kernel)
    windows = -(-frames // speech.window)
    padded = np.arange(windows * speech.window)[:, None]
    batch.write_taps("padded", np.minimum(padded, frames - 1), padded < frames)
    batch.write_taps("queries", np.tile(np.arange(speech.queries), windows)[:, None])
    batch.write_segments("pictures", [speech.queries] * windows)
    begins = np.arange(windows) * speech.window
    seen = np.stack([begins, begins + speech.window, np.arange(windows)], axis=1)
    batch.tables[batch.plan.segments["windows"]] = np.repeat(seen, speech.queries, axis=0).astype(np.uint32)
    batch.rows = {"frames": frames, "distances": len(distances), "padded": len(padded)}
    batch.rows["tokens"] = windows * speech.queries
    batch.tokens = [batch.rows["tokens"]]


def _fastconformer(tower: Tower, batch: EncoderBatch, frames: int) -> None:
    quarters, bins = -(-frames // 4), -(-tower.mels // 4)
    batch.write("length", np.array([frames, 0, 0, 0], np.uint32))
    batch.rows = {"quarter_frames": quarters, "quarters": quarters * bins}
    ids, inside, tokens, bins = plane_taps(1, quarters, bins, rows_first=True)
    batch.write_taps("eighths", ids, inside)
    batch.write_taps("bins", np.arange(tokens * bins).reshape(tokens, bins))
    _near(batch, tokens, tower.kernel)
    batch.write("distances", _sinusoids(np.arange(tokens - 1, -tokens, -1), fastconformer.positions(tower)))
    batch.rows |= {"eighths": len(ids), "distances": 2 * tokens - 1, "tokens": tokens}
    batch.tokens = [tokens]


def _sinusoids(distances: Array, width: int) -> Array:
    """Sines and cosines in turn, of falling frequencies: (distances, width)."""
    angles = distances[:, None] * np.exp(-np.log(10000) / width * 2 * np.arange(width // 2))
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(len(distances), width).astype(np.float32)


BUILDERS: dict[str, Callable[[Tower, EncoderBatch, int], dict[str, Taps] | None]] = {
    "dots3note_a": dots3_sound.arrange,
    "gemma4a": _conformer,
    "gemma4ua": _frames,
    "granite_speech": _granite_speech,
    **dict.fromkeys((*LFM2_SOUND, "parakeet"), _fastconformer),
    "mimo_audio": mimo_audio.arrange,
    "qwen3a": _hundreds,
}  # others are Whisper's
