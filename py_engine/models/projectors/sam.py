"""Segment Anything's encoder of pictures (Kirillov et al. 2023), whose attention depends on places in a grid.

Most blocks attend within windows. Convolutions then join 4 x 4 patches. A row is a patch, row by row.
Source: deepseekocr.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from py_engine.media.encoders import Sam
from py_engine.media.kinds import SAM_MERGE, SAM_PATCH, SAM_SIDE
from py_engine.models.projectors.block import Norms
from py_engine.models.projectors.colours import byte_values
from py_engine.models.projectors.heads import hidden
from py_engine.models.projectors.stages import Stages
from py_engine.plan import products, rows
from py_engine.plan.ops import AttentionOptions
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.products import Product
from py_engine.plan.rows import GridHeads

EPS = 1e-6
WHOLE = (2, 5, 8, 11)  # blocks that attend to the whole picture, whatever the metadata says
GRID = SAM_SIDE // SAM_PATCH  # patches along a side, at most
KERNEL = 9  # places of a convolution


def window_rows(sam: Sam) -> int:
    """Rows of the windows of the largest picture."""
    return (-(-GRID // sam.window) * sam.window) ** 2


class Encoder:
    """Appends the parts of the encoder."""

    def __init__(self, s: Stages, sam: Sam) -> None:
        self.s, self.w, self.sam, self.n = s, s.w, sam, sam.n_embd
        self.norms = Norms(s, rms=False, eps=EPS)
        self.tables = self._tables()

    def build(self) -> Buffer:
        """Append the encoder's stages; its result has a row for each 4 x 4 patches."""
        s, w, n = self.s, self.w, self.n
        ops, pixels = s.begin("patches", GRID**2), 3 * SAM_PATCH**2
        bytes_ = s.words("pixels", GRID**2 * pixels // 4)
        patches = rows.patches(ops, bytes_, s.taps("patches", 1), byte_values(s), SAM_PATCH)
        x = ops.project("x", patches, *self._weight_and_bias("v.sam.patch_embd", n, pixels))
        table = w.matrix("v.sam.pos_embd.weight", GRID**2, n)
        rows.gather(ops, table, n, s.taps("positions", 16), x, add=True)
        for i in range(self.sam.n_layer):
            self._add_block(f"v.sam.blk.{i}.", x, i)
        return self._joined(x)

    def _weight_and_bias(self, name: str, count: int, cols: int) -> tuple[Weight, Weight]:
        return self.w.matrix(name + ".weight", count, cols), self.w.vector((name + ".bias", count))

    def _side(self, block: int) -> int:
        return GRID if block in WHOLE else self.sam.window

    def _tables(self) -> list[tuple[Buffer, Buffer]]:
        """The keys of all distances of each block: of columns, and of lines."""
        found, dim = [], self.n // self.sam.n_head
        for i in range(self.sam.n_layer):
            count = 2 * self._side(i) - 1
            stage = "distances" if i in WHOLE else "window_distances"
            ops, both = self.s.begin(stage, count), list[Buffer]()
            for axis in "wh":
                name = f"v.sam.blk.{i}.attn.pos_{axis}.weight"
                both.append(ops.buffer(f"image.{name}", (count, -(-dim // 32) * 32)))
                rows.gather(ops, self.w.matrix(name, count, dim), dim, self.s.taps(stage, 2), both[-1])
            found.append((both[0], both[1]))
        return found

    def _add_block(self, b: str, x: Buffer, block: int) -> None:
        """x += attention; x += a network."""
        s, n = self.s, self.n
        ops = s.begin("patches", GRID**2)
        normed = self.norms.apply(b + "pre_ln", x, "normed_places", cols=n)
        whole = block in WHOLE
        if not whole:
            ops = s.begin("windowed", window_rows(self.sam))
            inside = ops.rows("inside", n)
            rows.gather(ops, normed, n, s.taps("windowed", 1), inside)  # places beyond the picture are zeros
            normed = inside
        y = self._attended(b, normed, block, "pictures" if whole else "windows")
        if not whole:
            ops = s.begin("patches", GRID**2)
            gathered = ops.rows("gathered", n)
            rows.gather(ops, y, n, s.taps("unwindowed", 1), gathered)
            y = gathered
        ops.linear(y, *self._weight_and_bias(b + "attn.out", n, n), x)
        normed = self.norms.apply(b + "post_ln", x, "normed", for_product=True, cols=n)
        mid, width = hidden(s, normed, b + "mlp.lin1", n, s.tower.activation)
        ops.linear(mid, *self._weight_and_bias(b + "mlp.lin2", n, width), x)

    def _attended(self, b: str, x: Buffer, block: int, table: str) -> Buffer:
        """What the heads have attended to, (n, n_embd)."""
        s, n, ops = self.s, self.n, self.s.ops
        heads = GridHeads(self.sam.n_head, n // self.sam.n_head, self._side(block))
        qkv = ops.project("qkv", x, *self._weight_and_bias(b + "attn.qkv", 3 * n, n))
        cache = s.cache(heads.count * heads.wide)
        cells = s.taps("cells" if table == "pictures" else "window_cells", 1)
        q, first = rows.grid_heads(ops, qkv, self.tables[block], cells, heads, cache), len(ops.ops)
        shape = heads.count, heads.count, heads.wide
        attended = ops.attention(q, cache, shape, AttentionOptions(heads.dim**-0.5, causal=False))
        s.segments(first, table)
        y = ops.rows("values", n)
        parts = rows.Parts(attended, 0, heads.wide, heads.count), rows.Parts(y, 0, heads.dim, heads.count)
        rows.copy_columns(ops, *parts, heads.dim)
        return y

    def _joined(self, x: Buffer) -> Buffer:
        """Append a product, a convolution, and two that halve the number of places along a side."""
        s, w, ops = self.s, self.w, self.s.ops
        cols = w.rows("v.sam.neck.0.weight")
        y = ops.project("neck", x, w.matrix("v.sam.neck.0.weight", cols, self.n), None)
        y = self.norms.apply("v.sam.neck.1", y, "neck_norm", cols=cols)
        unfolded = rows.unfold(ops, y, cols, s.taps("near", KERNEL))
        y = ops.project("second_neck", unfolded, w.matrix("v.sam.neck.2.weight", cols, KERNEL * cols), None)
        y = self.norms.apply("v.sam.neck.3", y, "second_neck_norm", cols=cols)
        for name, stage, most in (("net_2", "halves", GRID // 2), ("net_3", "quarters", GRID // SAM_MERGE)):
            ops, out = s.begin(stage, most**2), w.rows(f"v.sam.{name}.weight")
            unfolded = rows.unfold(ops, y, cols, s.taps(stage, KERNEL))
            y = ops.rows(name, out)
            products.append(ops, Product(unfolded, w.matrix(f"v.sam.{name}.weight", out, KERNEL * cols), y))
            cols = out
        return y
