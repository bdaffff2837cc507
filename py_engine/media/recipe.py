"""How a picture becomes the pixels that an encoder takes: a list of resizings and cuts, planned from its size alone.

pictures.js does what a recipe says. The arithmetic is Pillow's, so that pixels are equal to llama.cpp's, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from py_engine.media.encoders import Vision
from py_engine.media.kinds import (
    BICUBIC,
    DOTS,
    IN_TILES,
    LANCZOS,
    LFM2,
    MOBILE_VLM,
    MROPE,
    SAM_SIDE,
    SAM_TILES,
    STEP_TILE,
)
from py_engine.media.layout import Shown, shown
from py_engine.media.sizes import (
    Size,
    best_canvas,
    corner_sizes,
    f32,
    fitted_size,
    longest_edge_size,
    near_grid,
    smart_size,
    step_tile,
    step_tiles,
    stepped_size,
    uhd_canvas,
    uhd_grid,
    uhd_size,
)

BLACK = (0, 0, 0)
COLOURS = {  # of the margins of squares
    **dict.fromkeys(IN_TILES, (122, 116, 104)),
    **dict.fromkeys(("janus_pro", *SAM_TILES), (127, 127, 127)),
}

NO_TILES = (0, 0)  # the grid of a picture whose overview is all, where others have tiles
STEP_NARROW = 32  # pixels: a long picture of step3vl with a shorter side is padded to a square
STEP_LONG = 4.0  # longer over shorter side: beyond it, a picture of step3vl is long
LFM2_TILE = 512  # pixels of a side
LFM2_TILES = range(2, 11)  # how many tiles a picture may have


@dataclass(frozen=True)
class Canvas:
    """A picture resized to `size`, at `at` on a canvas of a colour."""

    source: int  # 0: the picture; k: the k-th canvas, from 1
    size: Size
    filter: str
    canvas: Size
    at: Size = (0, 0)
    colour: tuple[int, int, int] = BLACK


@dataclass(frozen=True)
class Cut:
    """A part of a canvas that the encoder takes as one picture."""

    source: int
    at: Size
    size: Size
    fine: Size | None = None  # resized to this size at the end, to values finer than bytes (fractions.js)

    @property
    def encoded(self) -> Size:
        """The size that the encoder reads."""
        return self.fine or self.size


@dataclass(frozen=True)
class Recipe:
    """Canvases, and the parts of them that are encoded, in order: tiles row by row, and the overview."""

    canvases: tuple[Canvas, ...]
    cuts: tuple[Cut, ...]
    grid: Size | None = None  # (columns, rows) of the tiles
    overview_first: bool = False
    fused: int = 1  # tiles of a row that are one piece, below each other
    stacked: Shown | None = None  # all parts are encoded as one, below each other


def recipe(vision: Vision, size: Size) -> Recipe:
    """Plan what an encoder takes of a picture of that size."""
    return _RECIPES[vision.type](vision, size)


def n_tokens(vision: Vision, size: Size) -> int:
    """The number of tokens that a picture of a cut's size becomes."""
    if vision.type == "resampler":
        return vision.queries
    columns, rows = grid_of(vision, size)
    if vision.type in MOBILE_VLM:
        return columns * rows // 4
    if vision.type == "deepseekocr2":  # a token after the overview
        return columns * rows + (size == (SAM_SIDE, SAM_SIDE))
    if vision.type == "deepseekocr":  # one after each line, too
        return (columns + 1) * rows + 1 if size == (SAM_SIDE, SAM_SIDE) else (rows + 1) * columns
    return vision.layout.count(columns, rows)


def grid_of(vision: Vision, size: Size) -> Size:
    """Columns and rows of a picture's tokens."""
    if vision.windowed is not None:
        return vision.tile_tokens, vision.tile_tokens
    columns, rows = (-(-side // vision.align) if vision.type in LFM2 else side // vision.align for side in size)
    return columns, rows


def _whole(canvas: Canvas, grid: Size | None = None) -> Recipe:
    """A recipe whose result is one canvas."""
    return Recipe((canvas,), (Cut(1, (0, 0), canvas.canvas),), grid)


def _stretch(source: int, size: Size, filter: str) -> Canvas:
    return Canvas(source, size, filter, size)


def _letterbox(
    size: Size, canvas: Size, filter: str, colour: tuple[int, int, int] = BLACK, *, nearest: bool = False
) -> Canvas:
    """The picture as large as the canvas allows, in its middle. `nearest`: its size and place are rounded."""
    if size == canvas:
        return Canvas(0, size, filter, canvas)
    fitted = fitted_size(size, canvas, nearest=nearest)
    x, y = ((c - f + nearest) // 2 for c, f in zip(canvas, fitted, strict=True))
    return Canvas(0, fitted, filter, canvas, (x, y), colour)


def _tiles(source: int, canvas: Size, tile: Size) -> list[Cut]:
    """Cut a canvas row by row."""
    return [
        Cut(source, (x, y), tile)
        for y in range(0, canvas[1] - tile[1] + 1, tile[1])
        for x in range(0, canvas[0] - tile[0] + 1, tile[0])
    ]


def _tiled(canvas: Canvas, overview: Canvas, tile: Size, first: bool = False) -> Recipe:
    """Tiles of one canvas, and another canvas as the overview."""
    tiles = _tiles(1, canvas.canvas, tile)
    cut = Cut(2, (0, 0), overview.canvas)
    grid = canvas.canvas[0] // tile[0], canvas.canvas[1] // tile[1]
    return Recipe((canvas, overview), (cut, *tiles) if first else (*tiles, cut), grid, first)


def _square(vision: Vision, size: Size) -> Recipe:
    """gemma3, LLaVA-1.5, Janus-Pro: all of the picture in a square."""
    side = vision.image_size
    colour = COLOURS.get(vision.type, BLACK)
    return _whole(_letterbox(size, (side, side), vision.filter, colour))


def _sized(vision: Vision, size: Size) -> Recipe:
    """qwen, glm4v, paddleocr, dots_ocr, kimivl, phi4, pixtral, gemma4: nearly the picture's shape, in whole tokens."""
    canvas = smart_size(size, vision.align, vision.min_pixels, vision.max_pixels)
    if vision.type in ("hunyuanvl", "minimax_m3"):
        return _whole(_stretch(0, canvas, vision.filter))
    return _whole(_letterbox(size, canvas, vision.filter))


def _stretched(vision: Vision, size: Size) -> Recipe:
    """Reka Edge: all of the picture, stretched to a square."""
    return _whole(_stretch(0, (vision.image_size, vision.image_size), vision.filter))


def _stepped(vision: Vision, size: Size) -> Recipe:
    """Youtu-VL: stretched to whole tokens."""
    return _whole(_stretch(0, stepped_size(size, vision.align, vision.max_pixels), vision.filter))


def _in_corner(vision: Vision, size: Size) -> Recipe:
    """GLM-5V: no larger than it is unless it is too small, in the corner of a canvas of whole tokens."""
    canvas, content = corner_sizes(size, vision.align, vision.min_pixels, vision.max_pixels)
    return _whole(Canvas(0, content, vision.filter, canvas))


def _near_shape(vision: Vision, size: Size) -> Recipe:
    """Muse Glimmer: stretched to the whole tokens that are nearest to the picture's shape."""
    columns, rows = near_grid(size, vision.align, vision.max_pixels // vision.align**2)
    return _whole(_stretch(0, (columns * vision.align, rows * vision.align), vision.filter))


def _longest(vision: Vision, size: Size) -> Recipe:
    """LightOnOCR: a fixed longest side, in whole tokens."""
    return _whole(_letterbox(size, longest_edge_size(size, vision.align, vision.longest_edge), vision.filter))


def _grid(vision: Vision, size: Size) -> Recipe:
    """LLaVA-1.6, InternVL, Llama 4: tiles of the best canvas and a stretched overview. A small picture: that alone."""
    side = vision.image_size
    if not vision.canvases:
        return _square(vision, size)
    overview = _stretch(0, (side, side), vision.filter)
    if max(size) <= side:
        return _whole(overview, NO_TILES)
    canvas = _letterbox(size, best_canvas(size, vision.canvases), vision.filter)
    return _tiled(canvas, overview, (side, side))


def _nearest_scale(vision: Vision, size: Size) -> Recipe:
    """Command A Vision: stretched tiles of the canvas that a picture is enlarged to least, else shrunk to least."""
    side = vision.image_size
    overview = _stretch(0, (side, side), vision.filter)
    scales = {canvas: min(canvas[0] / size[0], canvas[1] / size[1]) for canvas in vision.canvases}
    larger = [canvas for canvas in scales if scales[canvas] >= 1]
    canvas = min(larger, key=scales.__getitem__) if larger else max(scales, key=scales.__getitem__)
    if canvas == (side, side):
        return _whole(overview, NO_TILES)
    return _tiled(_stretch(0, canvas, vision.filter), overview, (side, side))


def _idefics3(vision: Vision, size: Size) -> Recipe:
    """Three resizings: to the longest side, to whole tiles, and from there to the overview. All pictures have tiles."""
    if not vision.longest_edge:
        return _old_idefics3(vision, size)
    width, height = size
    longest, tile, ratio = vision.longest_edge, vision.image_size, width / height
    if width >= height:
        fitted = longest, _even(int(longest / ratio))
    else:
        fitted = _even(int(longest * ratio)), longest
    columns, rows = (max(1, -(-side // tile)) for side in fitted)
    whole = columns * tile, rows * tile
    canvases = (_stretch(0, fitted, LANCZOS), _stretch(1, whole, LANCZOS), _stretch(2, (tile, tile), LANCZOS))
    return Recipe(canvases, (*_tiles(2, whole, (tile, tile)), Cut(3, (0, 0), (tile, tile))), (columns, rows))


def _old_idefics3(vision: Vision, size: Size) -> Recipe:
    """What llama.cpp does for older files, which lack the longest side: tiles near the picture's own size."""
    side = vision.image_size
    canvas = smart_size(size, side, 0, inf)
    return _tiled(_letterbox(size, canvas, BICUBIC), _stretch(0, (side, side), BICUBIC), (side, side))


def _even(side: int) -> int:
    return max(side + side % 2, 1)


def _lfm2(vision: Vision, size: Size) -> Recipe:
    """Tiles of a canvas in nearly the picture's shape, and a stretched thumbnail; a smaller picture: that alone."""
    thumbnail = _stretch(0, smart_size(size, vision.align, vision.min_pixels, vision.max_pixels), vision.filter)
    width, height = (max(vision.patch_size, round(side / vision.align) * vision.align) for side in size)
    if width * height <= 2 * vision.max_pixels:
        return _whole(thumbnail)
    columns, rows = _tile_grid(size, LFM2_TILE, LFM2_TILES)
    canvas = columns * LFM2_TILE, rows * LFM2_TILE
    place = _letterbox(size, canvas, vision.filter) if vision.type == "lfm2" else _stretch(0, canvas, vision.filter)
    return _tiled(place, thumbnail, (LFM2_TILE, LFM2_TILE))


def _deepseek(vision: Vision, size: Size) -> Recipe:
    """DeepSeek-OCR: stretched tiles of a canvas in nearly the picture's shape, then the letterboxed overview.

    Of the first version, a row of tiles is one piece.
    """
    tile = SAM_TILES[vision.type]
    square = SAM_SIDE, SAM_SIDE
    overview = _letterbox(size, square, vision.filter, COLOURS[vision.type], nearest=True)
    if max(size) <= tile:
        return _whole(overview)
    columns, rows = _tile_grid(size, tile, range(vision.tiles[0], vision.tiles[1] + 1))
    parts = _tiled(_stretch(0, (columns * tile, rows * tile), vision.filter), overview, (tile, tile))
    return parts if vision.type == "deepseekocr2" else replace(parts, grid=(1, rows), fused=columns)


def _stacked(vision: Vision, size: Size) -> Recipe:
    """Granite Vision: a stretched overview, and tiles of the best canvas; all become one sequence of tokens."""
    side = vision.image_size
    canvas = best_canvas(size, vision.canvases)
    grid = canvas[0] // side, canvas[1] // side
    parts = _tiled(
        _letterbox(size, canvas, vision.filter), _stretch(0, (side, side), vision.filter), (side, side), True
    )
    return Recipe(parts.canvases, parts.cuts, stacked=shown(size, grid, vision.tile_tokens))


def _tile_grid(size: Size, tile: int, tiles: range) -> Size:
    """The grid of nearly the picture's shape. Of several, the largest whose tiles the picture would fill by half."""
    grids = [(a, b) for a in range(1, tiles.stop) for b in range(1, tiles.stop) if a * b in tiles]
    ratio, best, least = f32(size[0] / size[1]), (1, 1), inf
    for grid in sorted(grids, key=lambda grid: grid[0] * grid[1]):
        error = f32(abs(ratio - f32(grid[0] / grid[1])))
        fills = 2 * size[0] * size[1] > grid[0] * grid[1] * tile**2
        if error < least or (error == least and fills):
            best, least = grid, error
    return best


def _uhd(vision: Vision, size: Size) -> Recipe:
    """MiniCPM-V: the overview, then tiles; all in nearly the picture's shape. A small picture: the overview alone."""
    tile, align = vision.image_size, vision.align
    if vision.type == "minicpmv4_6" and vision.merge == 2 and size[0] * size[1] <= tile * tile:
        return _whole(_stretch(0, uhd_size(size, tile, align, enlarge=True), vision.filter), NO_TILES)
    if max(size) <= tile:
        return _whole(_stretch(0, (tile, tile), vision.filter), NO_TILES)
    overview = _stretch(0, uhd_size(size, tile, align, enlarge=False), vision.filter)
    grid = uhd_grid(size, tile)
    canvas = uhd_canvas(size, grid, tile, align)
    tile_size = canvas[0] // grid[0], canvas[1] // grid[1]
    return _tiled(_letterbox(size, canvas, vision.filter), overview, tile_size, first=True)


def _step(vision: Vision, size: Size) -> Recipe:
    """Step3-VL: square tiles, then a stretched overview.

    A long picture that is very narrow is padded to a square first. A small picture has no tiles, unless it is oblong.
    """
    canvases, side, tile = list[Canvas](), vision.image_size, (STEP_TILE, STEP_TILE)
    if min(size) < STEP_NARROW and not 1 / STEP_LONG <= f32(size[0] / size[1]) <= STEP_LONG:
        canvases.append(Canvas(0, size, vision.filter, (max(size), max(size))))
        size = canvases[-1].canvas
    if max(size) > vision.longest_edge:
        scale = f32(vision.longest_edge / max(size))
        size = max(1, int(f32(size[0] * scale))), max(1, int(f32(size[1] * scale)))
        canvases.append(_stretch(len(canvases), size, vision.filter))
    overview = Cut(len(canvases), (0, 0), size, (side, side))
    window = step_tile(size, side, STEP_TILE, STEP_LONG)
    if not window:
        return Recipe(tuple(canvases), (overview,), NO_TILES)
    fitted = step_tiles(size[0], window), step_tiles(size[1], window)
    canvas = max(fitted[0], window), max(fitted[1], window)
    canvases.append(Canvas(len(canvases), fitted, vision.filter, canvas))
    tiles = [replace(cut, fine=tile) for cut in _tiles(len(canvases), canvas, (window, window))]
    return Recipe(tuple(canvases), (*tiles, overview), (canvas[0] // window, canvas[1] // window))


_RECIPES: dict[str, Callable[[Vision, Size], Recipe]] = {
    **dict.fromkeys(
        ("pixtral", "gemma4v", "gemma4uv", *DOTS, "kimivl", "kimik25", "minimax_m3", "phi4", *MROPE), _sized
    ),
    **dict.fromkeys((*IN_TILES, "internvl", "llama4"), _grid),
    **dict.fromkeys(("gemma3", "gemma3nv", "janus_pro", "adapter", "nemotron_v2_vl"), _square),
    "cohere2v": _nearest_scale,
    "glm5v": _in_corner,
    "muse-glimmer": _near_shape,
    "step3vl": _step,
    "idefics3": _idefics3,
    **dict.fromkeys(LFM2, _lfm2),
    "lightonocr": _longest,
    "youtuvl": _stepped,
    "yasa2": _stretched,
    **dict.fromkeys(SAM_TILES, _deepseek),
    "granite4_vision": _stacked,
    **dict.fromkeys(("resampler", "minicpmv4_6"), _uhd),
}
