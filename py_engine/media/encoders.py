"""Hyperparameters of a projector's encoders, as its header has them."""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.media.kinds import RATE, RATES, SAM_SIDE, SAM_TILES
from py_engine.media.layout import PLAIN, Layout


@dataclass(frozen=True)
class Encoder:
    """Hyperparameters that every encoder has."""

    type: str
    n_embd: int
    n_ff: int
    n_layer: int
    n_head: int
    eps: float
    n_embd_inp: int  # width of its embeddings; with deepstack, of all slices side by side
    n_head_kv: int


@dataclass(frozen=True)
class Sam:
    """What deepseekocr2's encoders have of their own: those of Segment Anything's, and the second one's key heads."""

    n_embd: int
    n_layer: int
    n_head: int
    window: int  # patches of a window's side
    n_head_kv: int  # of the second encoder


@dataclass(frozen=True)
class Windowed:
    """Parameters of granite4_vision's projectors. Each makes a slice of the tokens from windows of patches."""

    patches: int  # along the side of a tile
    side: int  # patches of a window's side
    queries: int  # tokens of a window's side
    features: tuple[int, ...]  # the block whose output each projector reads
    offsets: tuple[int, ...]  # of the patch in each square that a token begins with; -1: their mean


@dataclass(frozen=True)
class Vision(Encoder):
    """The encoder of pictures."""

    image_size: int  # pixels of a tile's side, or of the largest picture
    patch_size: int
    merge: int  # patches of a token's side
    mean: tuple[float, ...]  # of red, green and blue
    std: tuple[float, ...]
    filter: str
    min_pixels: int = 0  # 0: the type has no such limit
    max_pixels: int = 0
    longest_edge: int = 0
    canvases: tuple[tuple[int, int], ...] = ()  # (width, height) of what is cut into tiles
    queries: int = 0  # resampler: tokens of every tile
    version: int = 0  # resampler: of MiniCPM-V
    layout: Layout = PLAIN  # of its tokens
    sam: Sam | None = None
    windowed: Windowed | None = None
    tiles: tuple[int, int] = (0, 0)  # deepseekocr2: of a picture, at least and at most
    features: tuple[int, ...] = ()  # LLaVA's: after how many blocks the projector reads rows; (): the last but one
    merged_after: int = -1  # minicpmv4_6: the block after which 2 x 2 patches become one row; -1: none
    experts_used: int = 0  # dots3note_v: of a patch, in blocks that have a mixture
    pairs: bool = False  # two frames of a video may be one picture

    @property
    def align(self) -> int:
        """Pixels of a token's side."""
        return self.patch_size * self.merge

    @property
    def tile_tokens(self) -> int:
        """Tokens of the side of a tile."""
        windowed = self.windowed
        return windowed.patches // windowed.side * windowed.queries if windowed else self.image_size // self.align

    @property
    def most_tiles(self) -> int:
        """Tiles of a picture at most, of types whose tiles become one sequence; without the overview."""
        return max((width * height for width, height in self.canvases), default=0) // self.image_size**2

    @property
    def most_tokens(self) -> int:
        """Tokens of a picture at most."""
        if self.type == "deepseekocr":  # of an overview, or of a row of tiles
            side, tile = (pixels // self.align for pixels in (SAM_SIDE, SAM_TILES[self.type]))
            return max(side * (side + 1) + 1, tile * (tile * self.tiles[1] + 1))
        if self.windowed is None:
            return self.layout.count(1, max(self.image_size**2, self.max_pixels) // self.align**2)
        side = self.tile_tokens
        lines = max(height for _, height in self.canvases) // self.image_size * side
        return (1 + self.most_tiles) * side**2 + lines


@dataclass(frozen=True)
class Speech:
    """What granite_speech's encoder and projector have of their own."""

    block: int  # rows that see each other
    kernel: int  # rows of a convolution
    positions: int  # the largest distance that has a key
    window: int  # rows that become `queries` tokens
    queries: int
    heads: int  # of the projector
    features: tuple[int, ...]  # after how many blocks rows are joined to the last block's; 0: before the first


@dataclass(frozen=True)
class Coded:
    """What mimo_audio has of its own: residual codebooks between two encoders. The second one reads groups of codes."""

    reaches: tuple[int, ...]  # rows before its own that a row sees in each block of the first; -1: all
    codes: tuple[int, ...]  # of each codebook
    n_layer: int  # of the second encoder


@dataclass(frozen=True)
class Audio(Encoder):
    """The encoder of sound."""

    n_mel: int
    stack: int  # frames of the encoder that one token takes
    max_seconds: int = 0  # of a clip; 0: the type has no such limit
    speech: Speech | None = None
    kernel: int = 0  # rows of a convolution, of lfm2a and parakeet
    coded: Coded | None = None

    @property
    def rate(self) -> int:
        """Samples a second."""
        return RATES.get(self.type, RATE)
