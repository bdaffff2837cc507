"""Sizes of resized pictures, with llama.cpp's float32 arithmetic: another rounding can be another pixel."""

from __future__ import annotations

import struct
from math import ceil, floor, inf, log, sqrt

Size = tuple[int, int]  # (width, height)

_FLOAT = struct.Struct("<f")


def f32(value: float) -> float:
    """Round to float32. The float64 result of one operation on float32 numbers, rounded, is float32's own result."""
    rounded: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    return rounded


def half_up(value: float) -> int:
    """Round a positive number like C's round()."""
    return floor(value + 0.5)


def smart_size(size: Size, align: int, min_pixels: int, max_pixels: float) -> Size:
    """The size with sides that are multiples of `align`, nearly the picture's shape, and an area within the limits."""
    width, height = (max(align, half_up(f32(side / align)) * align) for side in size)
    area = f32(f32(size[0]) * f32(size[1]))
    if width * height > max_pixels:
        beta = f32(sqrt(f32(area / max_pixels)))
        width, height = (max(align, floor(f32(f32(side / beta) / align)) * align) for side in size)
    elif width * height < min_pixels:
        beta = f32(sqrt(f32(min_pixels / area)))
        width, height = (ceil(f32(f32(side * beta) / align)) * align for side in size)
    return width, height


def stepped_size(size: Size, align: int, max_pixels: int) -> Size:
    """The size rounded up to multiples of `align`, scaled down in steps of 2 % until the area is within the limit."""
    scale = 1.0
    while True:
        width, height = (max(align, ceil(f32(f32(side * scale) / align)) * align) for side in size)
        if width * height <= max_pixels or scale <= 0:
            return width, height
        scale = f32(scale - f32(0.02))


def corner_sizes(size: Size, align: int, min_pixels: int, max_pixels: int) -> tuple[Size, Size]:
    """GLM-5V: a canvas of multiples of `align` with an area within the limits, and the size of the picture on it."""
    width, height = size
    canvas = _up(width, align), _up(height, align)
    if canvas[0] * canvas[1] < min_pixels:
        scale = sqrt(min_pixels / (height * width))
        canvas = _up(max(1, ceil(width * scale)), align), _up(max(1, ceil(height * scale)), align)
    if canvas[0] * canvas[1] > max_pixels:
        canvas = _largest_canvas(size, align, max_pixels)
    scale = min(canvas[1] / height, canvas[0] / width)
    if height * width >= min_pixels:
        scale = min(1.0, scale)
    across, down = (max(1, min(most, floor(side * scale))) for most, side in zip(canvas, size, strict=True))
    return canvas, (across, down)


def _largest_canvas(size: Size, align: int, max_pixels: int) -> Size:
    """The canvas of the tallest picture of that shape whose canvas is within the limit, by bisection."""
    width, height = size
    best, low, high = (align, align), 1, height
    while low <= high:
        middle = (low + high) // 2
        canvas = _up(max(1, width * middle // height), align), _up(middle, align)
        if canvas[0] * canvas[1] <= max_pixels:
            best, low = canvas, middle + 1
        else:
            high = middle - 1
    return best


def _up(length: int, align: int) -> int:
    """The next multiple."""
    return -(-length // align) * align


def near_grid(size: Size, align: int, most: int) -> Size:
    """Muse Glimmer: columns and rows of tokens whose shape is nearest to the picture's, of the sizes around its own."""
    width, height = size
    rows, columns = height / align, width / align
    ratio = columns / rows
    if rows * columns > most:
        rows = sqrt(most / ratio)
        columns = rows * ratio
    grids = [(a, b) for a in (floor(columns), ceil(columns)) for b in (floor(rows), ceil(rows))]
    fitting = [(a, b) for a, b in grids if a and b and a * b <= most]
    if not fitting:
        return max(1, half_up(columns)), max(1, half_up(rows))
    return min(fitting, key=lambda grid: (abs(grid[1] / grid[0] - height / width), -grid[0] * grid[1]))


def longest_edge_size(size: Size, align: int, longest: int) -> Size:
    """The size whose longer side is `longest`, rounded up to multiples of `align`."""
    scale = min(f32(longest / side) for side in size)
    width, height = (ceil(f32(f32(side * scale) / align)) * align for side in size)
    return width, height


def fitted_size(size: Size, canvas: Size, *, nearest: bool = False) -> Size:
    """The size of the picture on a canvas that shows all of it: rounded up, or to the nearest whole number but 0."""
    scale = min(f32(c / s) for c, s in zip(canvas, size, strict=True))
    whole = (lambda side: max(1, half_up(side))) if nearest else ceil
    width, height = (min(whole(f32(s * scale)), c) for c, s in zip(canvas, size, strict=True))
    return width, height


def best_canvas(size: Size, canvases: tuple[Size, ...]) -> Size:
    """The canvas that keeps most pixels of the picture, and among those the one that leaves least of itself empty."""
    best, most, least = canvases[0], 0, inf
    for canvas in canvases:
        scale = min(f32(c / s) for c, s in zip(canvas, size, strict=True))
        width, height = (int(f32(side * scale)) for side in size)
        used = min(width * height, size[0] * size[1])
        empty = canvas[0] * canvas[1] - used
        if used > most or (used == most and empty < least):
            best, most, least = canvas, used, empty
    return best


def step_tile(size: Size, small: int, usual: int, long: float) -> int:
    """Step3-VL: the side of a picture's tiles before they are resized; 0: it has none.

    Of sides up to `small`, only an oblong picture has tiles. The shorter side limits its tiles, and those of a picture
    whose sides' ratio is above `long`; others have the side `usual`.
    """
    shorter, longer = sorted(size)
    ratio = f32(longer / shorter)
    if longer <= small:
        return shorter if ratio > 1.5 else 0
    return min(shorter, usual) if ratio > long else usual


def step_tiles(length: int, tile: int) -> int:
    """Step3-VL: a side resized to whole tiles, one more if it exceeds them by a fifth; a side below a tile stays."""
    ratio = f32(length / tile)
    if ratio < 1:
        return length
    return tile * (floor(ratio) + (ratio - floor(ratio) > f32(0.2)))


def uhd_size(size: Size, tile: int, patch: int, enlarge: bool) -> Size:
    """MiniCPM-V: the size with the area of a tile, if the picture is larger than it or is to be enlarged."""
    width, height = size
    if width * height > tile * tile or enlarge:
        ratio = f32(width / height)
        height = int(f32(tile / f32(sqrt(ratio))))
        width = int(f32(height * ratio))
    return _whole(width, patch), _whole(height, patch)


def uhd_grid(size: Size, tile: int, most: int = 9) -> Size:
    """MiniCPM-V: the columns and rows of about as many tiles as the picture has area, in nearly its shape."""
    log_ratio = f32(log(f32(size[0] / size[1])))
    wanted = min(ceil(f32(f32(f32(size[0]) * size[1]) / (tile * tile))), most)
    best, least = (1, 1), inf
    for count in (wanted - 1, wanted, wanted + 1):
        if count == 1 or count > most:
            continue
        for columns in range(1, count + 1):
            error = f32(abs(log_ratio - log(columns / (count // columns)))) if count % columns == 0 else inf
            if error < least:
                best, least = (columns, count // columns), error
    return best


def uhd_canvas(size: Size, grid: Size, tile: int, patch: int) -> Size:
    """MiniCPM-V: the canvas of a grid whose tiles have the area of `tile` squared, and nearly the picture's shape."""
    cell = tuple(_whole(side, n) // n for side, n in zip(size, grid, strict=True))
    width, height = uhd_size((cell[0], cell[1]), tile, patch, enlarge=True)
    return width * grid[0], height * grid[1]


def _whole(length: int, unit: int) -> int:
    """The multiple of `unit` next to a length, not 0."""
    return max(half_up(f32(length / unit)) * unit, unit)
