"""Data of bindings that hold indices, positions, pixels or tokens: random words would be out of range."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from py_engine.cpu.call import Array
from py_engine.plan.plan import Buffer, Op
from py_engine.proof.batches import Batch
from py_engine.proof.random_data import RandomData

PIXEL_WORDS = 1 << 14  # of a case's picture


def _index_mask(random: RandomData, batch: Batch, op: Op, b: Buffer) -> Array:
    """Random positions. Each token sees itself."""
    words = random.words((batch.n + 1, *b.shape[1:]))
    for m, (position, _) in enumerate(batch.places):
        words[m, position // 32] |= np.uint32(1 << position % 32)
    return words


def _spectrum_length(random: RandomData, batch: Batch, op: Op, b: Buffer) -> Array:
    """The length of a spectrum, whose last frames are no whole row."""
    return np.array([4 * batch.n - 2] + [0] * (b.shape[0] - 1), np.uint32)


def _pixels(random: RandomData, batch: Batch, op: Op, b: Buffer) -> Array:
    return random.words((min(b.shape[0], PIXEL_WORDS),))


def _places(random: RandomData, batch: Batch, op: Op, b: Buffer) -> Array:
    """Rows of pictures that are some pixels wider than a patch."""
    found = random.numbers.integers(0, 1024, (batch.n + 1, *b.shape[1:])).astype(np.uint32)
    found[..., 1] = 3 * (int(op.params["PATCH"]) + 5)
    return found


def _cells(random: RandomData, batch: Batch, op: Op, b: Buffer) -> Array:
    """Columns and lines of grids of different sides."""
    most = int(op.params["SIDE"])
    sides, x, y = random.numbers.integers(1, most + 1, (3, batch.n + 1, 1))
    x, y = x % sides, y % sides
    return np.stack([x + (y << 16), sides], axis=2).astype(np.uint32)


def _turns(random: RandomData, batch: Batch, op: Op, b: Buffer) -> Array:
    """The turns of each token."""
    return random.words((batch.n + 1, *b.shape[1:]))


def _tokens(random: RandomData, batch: Batch, op: Op, b: Buffer) -> Array:
    row0, end = int(op.consts.get("row0", 0)), int(op.consts.get("row0", 0) + op.consts.get("rows", 0))
    used = max(position for position, _ in batch.places) + 1
    tokens = random.histories((batch.sequences, b.shape[1]), end + 2, used)
    batch.write_edges(tokens, row0, end)
    batch.write_media(tokens)
    return tokens


def _taps(random: RandomData, batch: Batch, op: Op, b: Buffer) -> Array:
    """Taps of random rows, some without weight."""
    rows = int(op.consts["row0"] + op.consts["rows"]) + 2 if "rows" in op.consts else batch.n
    shape = batch.n + 1, *b.shape[1:]
    found = np.empty(shape, np.uint32)
    found[..., 0] = random.numbers.integers(0, rows, shape[:-1])
    weights = random.normal(shape[:-1])
    found[..., 1] = np.where(weights > 1, np.float32(0), weights).view(np.uint32)
    found[-2, 0] = max(0, rows - 3), np.float32(1).view(np.uint32)  # one that counts, also in a batch of one token
    return found


# Binding -> what makes its data
WITH_MEANING: dict[str, Callable[[RandomData, Batch, Op, Buffer], Array]] = {
    "index_mask": _index_mask,
    "taps": _taps,
    "length": _spectrum_length,
    "pixels": _pixels,
    "places": _places,
    "cells": _cells,
    "rope_freqs": _turns,
    "tokens": _tokens,
}
