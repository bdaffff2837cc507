"""Pictures as rows of patches, in the order that vision.py expects, with the positions of the patches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt
from typing import TypeAlias

import numpy as np

from py_engine.encode.batch import LAYOUTS, Array, EncoderBatch
from py_engine.encode.convolutions import plane_taps
from py_engine.encode.positions import resized, turns
from py_engine.errors import WispError
from py_engine.media.kinds import FINE, LLAVA, MOBILE_VLM
from py_engine.media.layout import Layout
from py_engine.media.prepared import FramePair
from py_engine.models.projectors import step
from py_engine.models.projectors.position_table import KERNELS, TWO_TABLES
from py_engine.models.projectors.tower import Tower
from py_engine.plan.encoder import EncoderPlan

UNPLACED = ("nemotron_v2_vl",)  # types whose class tokens and registers have no positions
BY_COLUMNS = ("llama4",)  # types whose tokens go down each column of squares first


@dataclass(frozen=True)
class Grid:
    """The patches of one picture. `place`: the row and the column of each patch, in the order of the encoder's rows."""

    height: int
    width: int
    place: Array  # (height * width, 2)
    order: Array  # the row of each token's result among the picture's results
    windows: list[int]  # patches of each window


Given: TypeAlias = Array | FramePair


def arrange(tower: Tower, plan: EncoderPlan, pictures: Sequence[Given]) -> EncoderBatch:
    """The inputs for pictures, uint8 (height, width, 3) each, or pairs. Their sizes are multiples of merged patches.

    Those of types in FINE are (2 * height, width, 3): whole values, then their 256ths.
    """
    pairs = tuple(isinstance(picture, FramePair) for picture in pictures)
    layout = _layout(tower, plan, tuple(_size(tower, picture) for picture in pictures), pairs)
    pixels = [_whole_words(_pixels(picture).reshape(-1)) for picture in pictures]
    begins = np.cumsum([0, *map(len, pixels)]).tolist()
    return layout.with_contents([("pixels", at, flat) for at, flat in zip(begins, pixels, strict=False)])


def _pixels(picture: Given) -> Array:
    return picture.pixels if isinstance(picture, FramePair) else picture


def _size(tower: Tower, picture: Given) -> tuple[int, int]:
    """Height and width in pixels, of a pair those of a frame."""
    height, width, _ = _pixels(picture).shape
    return height // (1 + (tower.kind in FINE or isinstance(picture, FramePair))), width


def _whole_words(data: Array) -> Array:
    return np.pad(data, (0, -len(data) % 4)) if len(data) % 4 else data


@lru_cache(LAYOUTS)
def _layout(
    tower: Tower, plan: EncoderPlan, shapes: tuple[tuple[int, int], ...], pairs: tuple[bool, ...]
) -> EncoderBatch:
    """The inputs for pictures of these heights and widths, without their pixels. `pairs`: which are two frames."""
    batch = EncoderBatch(plan, "image")
    grids = [_grid(tower, *shape) for shape in shapes]
    count = tower.merge**2
    sizes = [len(grid.place) + tower.class_rows for grid in grids]
    batch.tokens = [tower.queries or len(grid.place) // count for grid in grids]
    batch.rows = {"patches": sum(sizes), "tokens": sum(batch.tokens)}
    _places_of_pixels(tower, batch, shapes, pairs, grids)
    batch.write_segments("pictures", sizes)
    if tower.window:
        batch.write_segments("windows", [size for grid in grids for size in grid.windows])
    if tower.bands:
        _bands(batch, tower.bands.reach, tower.merge, grids)
    if tower.merged_after >= 0:
        _quarters(batch, sizes)
    if tower.queries:
        _queries(tower, batch, grids, sizes)
    _positions(tower, batch, grids)
    _joined(tower, batch, grids, sizes)
    return batch


def groups(tower: Tower, plan: EncoderPlan, pictures: list[Given]) -> Iterator[list[Given]]:
    """Pictures in groups that are encoded together. WispError for one that is too large."""
    group: list[Given] = []
    used, most = 0, plan.capacity["patches"]
    count = plan.capacity["tokens"] // tower.queries if tower.queries else len(pictures)
    if len({_size(tower, picture) for picture in pictures}) == 1:  # tiles: groups of one size, or nearly so
        fit = max(1, min(count, most // _rows(tower, pictures[0])))
        count = -(-len(pictures) // -(-len(pictures) // fit))
    for picture in pictures:
        height, width = _size(tower, picture)
        rows = _rows(tower, picture)
        if rows > most:
            raise WispError(
                f"A picture of {width} x {height} pixels has {rows} patches; this projector takes up to {most}.",
                "invalid_value",
            )
        if used + rows > most or len(group) == count:
            yield group
            group, used = [], 0
        group.append(picture)
        used += rows
    if group:
        yield group


def _rows(tower: Tower, picture: Given) -> int:
    height, width = _size(tower, picture)
    return (height // tower.patch) * (width // tower.patch) + tower.class_rows


def _grid(tower: Tower, height: int, width: int) -> Grid:
    """The patches of a picture of so many pixels."""
    side = tower.patch * tower.merge
    if height % side or width % side or not height * width:
        raise WispError(
            f"A picture of {width} x {height} pixels is not made of squares of {side} pixels.", "invalid_value"
        )
    h, w, s = height // tower.patch, width // tower.patch, tower.square
    squares = _squares(np.arange(h * w).reshape(h, w), s)
    if tower.kind in BY_COLUMNS:
        squares = squares.swapaxes(0, 1)
    squares = squares.reshape(-1, s * s)
    if tower.merged_after >= 0:  # the squares in a square, which become one first
        squares = _squares(squares.reshape(-1, s, s), 2).reshape(-1, s * s)
    order, windows = np.arange(len(squares)), [h * w]
    if tower.window:
        order, windows = _windows(h // s, w // s, tower.window // side)
        squares, order = squares[order], np.argsort(order)
        windows = [size * s * s for size in windows]
    place = np.stack(np.divmod(squares.reshape(-1), w), axis=1)
    return Grid(h, w, place, order, windows)


def _squares(grids: Array, side: int) -> Array:
    """The squares of grids, row by row in each: (..., height / side, width / side, side, side)."""
    *outer, h, w = grids.shape
    return np.swapaxes(grids.reshape(*outer, h // side, side, w // side, side), -3, -2)


def _windows(height: int, width: int, side: int) -> tuple[Array, list[int]]:
    """The tokens of a picture, window by window, and the size of each window."""
    tokens = np.arange(height * width).reshape(height, width)
    found = [tokens[y : y + side, x : x + side] for y in range(0, height, side) for x in range(0, width, side)]
    return np.concatenate([window.reshape(-1) for window in found]), [window.size for window in found]


def _places_of_pixels(
    tower: Tower,
    batch: EncoderBatch,
    shapes: tuple[tuple[int, int], ...],
    pairs: tuple[bool, ...],
    grids: list[Grid],
) -> None:
    """Where each patch begins in the bytes of the pictures, and in their 256ths or second frames.

    A class token has no pixels. Both frames of a still picture are the picture.
    """
    places, below, begin, fine = [], [], 0, tower.kind in FINE
    for (height, width), pair, grid in zip(shapes, pairs, grids, strict=True):
        stride = 3 * width
        first = begin + tower.patch * (grid.place[:, 0] * stride + 3 * grid.place[:, 1])
        places.append(np.stack([first, np.full_like(first, stride)], axis=1))
        places.append(np.zeros((tower.class_rows, 2), np.int64))
        below.append(np.stack([first + (fine or pair) * height * stride, np.full_like(first, stride)], axis=1))
        begin += -(-3 * height * width * (1 + (fine or pair)) // 4) * 4
    for name in ("fractions", "second_frames"):
        if batch.takes(name):
            batch.write(name, np.concatenate(below).astype(np.uint32)[:, None])
    if batch.takes("colours"):
        count = sum(map(len, places))
        batch.write_taps("colours", np.arange(3 * count).reshape(count, 3))
    batch.write("patches", np.concatenate(places).astype(np.uint32)[:, None])


def _positions(tower: Tower, batch: EncoderBatch, grids: list[Grid]) -> None:
    if batch.takes("positions"):
        taps = [_position_taps(tower, grid) for grid in grids]
        most = max(ids.shape[1] for ids, _ in taps)
        ids, weights = (
            np.concatenate([np.pad(t[i], ((0, 0), (0, most - t[i].shape[1]))) for t in taps]) for i in (0, 1)
        )
        batch.write_taps("positions", ids, weights)
    if batch.takes("turns"):
        unmoved = ((0, tower.class_rows), (0, 0))
        straight = np.concatenate([np.pad(turns(tower, grid.place), unmoved) for grid in grids])
        batch.write("turns", straight)
        if batch.takes("column_turns"):
            batch.write("column_turns", straight[batch.writes["columns"][:, 0, 0]])
    if batch.takes("kinds"):  # the table's first rows are the class tokens', the last is the patches' bias
        bias, own = tower.class_rows, np.arange(tower.class_rows)
        kinds = np.concatenate([np.append(np.full(len(grid.place), bias), own) for grid in grids])[:, None]
        batch.write_taps("kinds", kinds, np.ones_like(kinds))


def _position_taps(tower: Tower, grid: Grid) -> tuple[Array, Array]:
    """Rows of the position table that each patch's position is made of, and their weights."""
    row, column = grid.place.T
    if tower.kind in TWO_TABLES:
        half = tower.positions // 2
        ids = np.stack([np.where(column < half, column, tower.positions), row + half], axis=1)
    elif tower.kind in ("resampler", "minicpmv4_6"):
        side = isqrt(tower.positions)
        ids = (row * side // grid.height * side + column * side // grid.width)[:, None]
    elif tower.kind in KERNELS:
        return resized(isqrt(tower.positions), grid.height, grid.width, grid.place, KERNELS[tower.kind])
    else:
        ids = (row * grid.width + column)[:, None]
        if tower.class_rows and tower.kind not in UNPLACED:
            ids = np.append(ids, [[len(ids)]], axis=0)
    if ids.max() >= tower.positions:
        raise WispError(
            f"A picture of {grid.width} x {grid.height} patches has more positions than this projector.",
            "invalid_value",
        )
    if tower.kind in UNPLACED:
        ids = np.pad(ids, ((0, tower.class_rows), (0, 0)), constant_values=tower.positions)
    return ids, np.ones(ids.shape)


def _bands(batch: EncoderBatch, reach: int, merge: int, grids: list[Grid]) -> None:
    """Each row sees its picture's near ones, in two orders: squares line by line, and column by column."""
    seen: list[Array] = []
    columns: list[Array] = []
    begin, unit = 0, merge**2
    for number, grid in enumerate(grids):
        count = len(grid.place)
        own = np.arange(begin, begin + count)
        first, end = np.maximum(own - reach, begin), np.minimum(own + reach + 1, begin + count)
        seen.append(np.stack([first, end, np.full(count, number)], axis=1))
        squares = own.reshape(grid.height // merge, grid.width // merge, unit)
        columns.append(squares.swapaxes(0, 1).reshape(-1))
        begin += count
    batch.tables[batch.plan.segments["windows"]] = np.concatenate(seen).astype(np.uint32)
    if batch.takes("columns"):
        order = np.concatenate(columns)
        batch.write_taps("columns", order[:, None])
        batch.write_taps("lines", np.argsort(order)[:, None])


def _quarters(batch: EncoderBatch, sizes: list[int]) -> None:
    """Each square of four patches attends to itself, and becomes one row."""
    count = sum(sizes) // 4
    batch.write_segments("windows", [4] * count)
    batch.write_segments("quarters", [size // 4 for size in sizes])
    ids = np.arange(4 * count).reshape(count, 4)
    batch.write_taps("quarters", ids, np.full(ids.shape, 0.25))
    batch.rows["quarters"] = count


def _queries(tower: Tower, batch: EncoderBatch, grids: list[Grid], sizes: list[int]) -> None:
    """Every picture's queries see its patches, whose keys get the sinusoids of their column and row."""
    side = max(max(grid.height, grid.width) for grid in grids)
    most, cols = batch.plan.inputs["image.sinusoids"]
    if side > most:
        raise WispError(
            f"A picture has {side} patches along a side; this projector takes up to {most}.", "invalid_value"
        )
    batch.write("sinusoids", _sinusoids(side, cols))
    batch.write_taps("places", np.concatenate([grid.place[:, ::-1] for grid in grids]))
    batch.write_taps("queries", np.tile(np.arange(tower.queries), len(grids))[:, None])
    ends = np.cumsum(sizes)
    seen = np.stack([ends - sizes, ends, np.arange(len(sizes))], axis=1)
    batch.tables[batch.plan.segments["windows"]] = np.repeat(seen, tower.queries, axis=0).astype(np.uint32)


def _sinusoids(count: int, width: int) -> Array:
    """Sines, then cosines, of each place along a side: (count, width)."""
    half = width // 2
    angles = np.arange(count)[:, None] / 10000 ** (np.arange(half) / half)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def _joined(tower: Tower, batch: EncoderBatch, grids: list[Grid], sizes: list[int]) -> None:
    """Which rows become one, and in which order the results are."""
    if tower.queries:
        return
    if tower.kind == "step3vl":
        _halved(batch, grids)
        return
    count = tower.merge**2
    begins = np.cumsum([0, *sizes])
    skip = int(tower.kind in LLAVA)  # llama.cpp drops the first patch in place of the class token
    members = [
        begin + skip + np.arange(len(grid.place)).reshape(-1, count) for begin, grid in zip(begins, grids, strict=False)
    ]
    ids = np.concatenate(members)
    if batch.takes("merge"):
        batch.write_taps("merge", ids)
    if batch.takes("pool"):
        scale = tower.embedding_length**0.5 if tower.kind == "gemma4v" else 1.0
        batch.write_taps("pool", ids, np.full(ids.shape, scale / count))
    if tower.kind in MOBILE_VLM:
        _mobile(batch, grids, ids.reshape(-1))
    layout = tower.layout
    if layout.breaks:
        _with_breaks(layout, batch, [(grid.height // tower.merge, grid.width // tower.merge) for grid in grids])
    if layout.ends:
        _with_ends(batch)
    elif not layout.breaks and batch.takes("order"):
        firsts = np.cumsum([0, *batch.tokens])
        order = np.concatenate([first + grid.order for first, grid in zip(firsts, grids, strict=False)])
        batch.write_taps("order", order[:, None])


def _halved(batch: EncoderBatch, grids: list[Grid]) -> None:
    """Set the taps and rows of step3vl's convolutions over the patches of each picture. Each halves the sides."""
    shapes = [(grid.height, grid.width) for grid in grids]
    for name, rows in ((step.HALVES, "halves"), (step.QUARTERS, "tokens")):
        firsts = np.cumsum([0, *(height * width for height, width in shapes)])
        found = [plane_taps(1, *shape, rows_first=True) for shape in shapes]
        ids = np.concatenate([first + each[0] for first, each in zip(firsts, found, strict=False)])
        batch.write_taps(name, ids, np.concatenate([each[1] for each in found]))
        batch.rows[rows], shapes = len(ids), [(height, width) for *_, height, width in found]


def _mobile(batch: EncoderBatch, grids: list[Grid], chosen: Array) -> None:
    """The convolutions of MobileVLM's blocks, over patches and over every other one, and the rows of each picture.

    Of its second version: the chosen patches of each square, and a convolution over the squares.
    """
    pictures, height, width = len(grids), grids[0].height, grids[0].width
    if batch.takes("squares"):
        if height % 2 or width % 2:
            raise WispError(f"Pictures of {width} x {height} patches have no squares of four.", "invalid_value")
        squares = _squares(chosen.reshape(pictures, height, width), 2).reshape(-1, 4)
        batch.write_taps("squares", squares, np.full(squares.shape, 0.25))
        batch.write_taps("tokens_kernel", *plane_taps(pictures, height // 2, width // 2, 1, rows_first=True)[:2])
        batch.rows["tokens"], batch.tokens = len(squares), [height * width // 4] * pictures
        return
    for stage, stride in (("grid", 1), ("tokens", 2)):
        ids, inside, height, width = plane_taps(pictures, height, width, stride, rows_first=True)
        count = height * width
        batch.write_taps(f"{stage}_kernel", ids, inside)
        members = np.arange(pictures * count).reshape(pictures, count)
        batch.write_taps(f"{stage}_members", members, np.full(members.shape, 1 / count))
        batch.write_taps(f"{stage}_picture", np.repeat(np.arange(pictures), count)[:, None])
        batch.rows[stage] = pictures * count
    batch.rows["pictures"], batch.tokens = pictures, [height * width] * pictures


def _with_breaks(layout: Layout, batch: EncoderBatch, shapes: list[tuple[int, int]]) -> None:
    """Put rows of the file after lines of tokens. `shapes`: rows and columns of each picture's tokens."""
    order, breaks, first = [], [], 0
    for h, w in shapes:
        count = layout.in_lines(w, h)
        tokens = first + np.arange(h * w).reshape(h, w)
        order.append(np.pad(tokens, ((0, 0), (0, 1)), "edge").reshape(-1)[:count])
        breaks.append(np.tile(np.arange(w + 1) == w, h)[:count])
        first += h * w
    batch.tokens = [len(rows) for rows in order]
    is_break = np.concatenate(breaks).astype(float)[:, None]
    batch.write_taps("order", np.concatenate(order)[:, None], 1 - is_break)
    batch.write_taps("breaks", np.zeros_like(is_break), is_break)
    batch.rows["lines"] = sum(batch.tokens)


def _with_ends(batch: EncoderBatch) -> None:
    """Put a row before all of a picture's tokens and one after them."""
    firsts = np.cumsum([0, *batch.tokens])
    between = [np.pad(first + np.arange(n), 1, "edge") for first, n in zip(firsts, batch.tokens, strict=False)]
    is_end = np.concatenate([np.pad(np.zeros(n), 1, constant_values=1) for n in batch.tokens])[:, None]
    batch.write_taps("between", np.concatenate(between)[:, None], 1 - is_end)
    batch.write_taps("ends", np.cumsum(is_end).reshape(-1, 1) % 2 == 0, is_end)
    batch.tokens = [n + 2 for n in batch.tokens]
    batch.rows["ended"] = sum(batch.tokens)
