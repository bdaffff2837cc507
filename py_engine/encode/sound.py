"""Frames of sound as rows, and the taps of convolutions, as sound.py of models/projectors/ expects them."""

from __future__ import annotations

import numpy as np

from py_engine.encode.batch import Array, EncoderBatch
from py_engine.encode.convolutions import line_taps, plane_taps
from py_engine.errors import WispError
from py_engine.models.projectors.conformer import KERNEL, WINDOW
from py_engine.models.projectors.sound import FRAMES, POOLED
from py_engine.models.projectors.tower import Tower
from py_engine.plan.encoder import EncoderPlan


def arrange(tower: Tower, plan: EncoderPlan, mel: Array) -> EncoderBatch:
    """The inputs for one spectrum, float32 (mel bins, frames)."""
    if len(mel) != tower.mels or not mel.size:
        raise WispError(
            f"A spectrum of {mel.shape[0]} bins and {mel.shape[1]} frames does not suit this projector's "
            f"{tower.mels} bins.",
            "invalid_value",
        )
    batch = EncoderBatch(plan, "audio")
    {"qwen3a": _hundreds, "gemma4a": _conformer}.get(tower.kind, _whisper)(tower, batch, mel)
    most = [name for name, count in batch.rows.items() if count > plan.capacity.get(name, count)]
    if most:
        raise WispError(f"A spectrum of {mel.shape[1]} frames is too long for this projector.", "invalid_value")
    return batch


def _whisper(tower: Tower, batch: EncoderBatch, mel: Array) -> None:
    frames = mel.shape[1]
    halves = frames // 2
    padded = np.pad(mel, ((0, 0), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 3, axis=1)  # (bins, frames, 3)
    batch.write("frames", np.ascontiguousarray(windows.transpose(1, 0, 2)).reshape(frames, -1).astype(np.float32))
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


def _hundreds(tower: Tower, batch: EncoderBatch, mel: Array) -> None:
    """Each hundred frames is convolved on its own."""
    parts = mel.shape[1] // FRAMES
    planes = mel[:, : parts * FRAMES].T.reshape(parts, FRAMES, tower.mels)
    ids, weights, frames, bins = plane_taps(parts, FRAMES, tower.mels)
    batch.write("frames", (planes.reshape(-1)[ids] * weights).astype(np.float32))
    batch.rows = {"first": len(ids)}
    for name in ("second", "third"):
        ids, weights, frames, bins = plane_taps(parts, frames, bins)
        batch.write_taps(name, ids, weights)
        batch.rows[name] = len(ids)
    tokens = parts * frames
    batch.write_taps("bins", np.arange(tokens * bins).reshape(tokens, bins))
    batch.write_taps("positions", np.tile(np.arange(frames), parts)[:, None])
    batch.rows["tokens"], batch.tokens = tokens, [tokens]


def _conformer(tower: Tower, batch: EncoderBatch, mel: Array) -> None:
    frames, bins = mel.shape[1], tower.mels
    ids, weights, frames, bins = plane_taps(1, frames, bins, rows_first=True)
    batch.write("frames", (mel.T.reshape(-1)[ids] * weights).astype(np.float32))
    batch.rows = {"first": len(ids), "first_frames": frames, "distances": WINDOW}
    ids, weights, tokens, bins = plane_taps(1, frames, bins, rows_first=True)
    batch.write_taps("second", ids, weights)
    batch.rows |= {"second": len(ids), "tokens": tokens}
    if batch.takes("bins"):
        batch.write_taps("bins", np.arange(tokens * bins).reshape(tokens, bins))
    recent = np.arange(tokens)[:, None] + np.arange(1 - KERNEL, 1)
    batch.write_taps("recent", np.maximum(recent, 0), recent >= 0)
    batch.tokens = [tokens]
