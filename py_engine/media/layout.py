"""Rows of the projector's file among a picture's tokens: after its lines, before all and after all."""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.media.sizes import Size, f32


@dataclass(frozen=True)
class Layout:
    """Which of these rows a picture has."""

    breaks: bool = False  # a row after each line of tokens
    last_break: bool = False  # also after the last line
    ends: bool = False  # a row before all, and one after all

    def line(self, columns: int) -> int:
        """Rows from the beginning of a line to that of the next."""
        return columns + self.breaks

    def in_lines(self, columns: int, rows: int) -> int:
        """The tokens and the rows after their lines."""
        return self.line(columns) * rows - (self.breaks and not self.last_break)

    def count(self, columns: int, rows: int) -> int:
        """All rows of a picture."""
        return self.in_lines(columns, rows) + 2 * self.ends

    def most_in_lines(self, tokens: int) -> int:
        """Rows in lines of so many tokens, if each line is of one."""
        return tokens * self.line(1)

    def most(self, tokens: int) -> int:
        """All rows of so many tokens, if each is a picture."""
        return tokens * (self.line(1) + 2 * self.ends)


PLAIN = Layout()
WITH_LINE_BREAKS = Layout(breaks=True)  # Pixtral: [IMG_BREAK]
LAYOUTS = {
    **dict.fromkeys(("adapter", "cogvlm"), Layout(ends=True)),
    "hunyuanvl": Layout(breaks=True, last_break=True, ends=True),
}


@dataclass(frozen=True)
class Shown:
    """An overview and tiles that become one sequence: which tokens of the tiles show the picture, not its margins.

    The overview's tokens come first. A row of the file follows each line of the tiles' tokens.
    """

    grid: Size  # columns and rows of tiles
    at: Size  # column and row of the first token that shows the picture
    size: Size  # columns and rows of these tokens

    @property
    def in_lines(self) -> int:
        """Tokens of the tiles, with the rows after their lines."""
        return self.size[1] * (self.size[0] + 1)


def shown(size: Size, grid: Size, side: int) -> Shown:
    """Of a picture letterboxed in tiles that have `side` tokens a side. As many are left out on both sides."""
    columns, rows = (side * count for count in grid)
    width, height = size
    if f32(width / height) > f32(columns / rows):
        at = 0, (rows - int(height * columns / width + 1e-7)) // 2
    else:
        at = (columns - int(width * rows / height + 1e-7)) // 2, 0
    return Shown(grid, at, (columns - 2 * at[0], rows - 2 * at[1]))
