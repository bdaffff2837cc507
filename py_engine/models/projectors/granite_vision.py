"""Granite Vision's projectors: each makes a slice of the tokens from a block's output, window by window.

A window's queries are learned, and begin with its patches: with one of each square, or with the mean of each square. A
Q-Former's layer reads the window for them. An overview and tiles then become one sequence, with a row of the file after
each line. Source: granite4-vision.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from py_engine.errors import WispError
from py_engine.media.encoders import Windowed
from py_engine.models.projectors.block import Norms
from py_engine.models.projectors.qformer import EPS, QFormerLayer
from py_engine.models.projectors.stages import Stages
from py_engine.plan import products, rows
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.op_list import pad
from py_engine.plan.plan import Buffer
from py_engine.plan.products import Product

HEAD = 64  # width of a head of the Q-Formers, as llama.cpp has it
NEWLINE = "v.image_newline"


class Projectors:
    """The slices of the results, beside each other."""

    def __init__(self, s: Stages, windowed: Windowed) -> None:
        self.s, self.windowed = s, windowed
        self.slice, self.count = s.w.rows("v.proj_blk.0.linear.weight"), len(windowed.features)
        if s.tower.positions != windowed.patches**2:
            raise WispError("The projector's table of positions is not one of its tiles.", "bad_tensor_shape")
        if s.tower.embedding_length % HEAD or s.tower.class_rows:
            raise WispError(
                f"Wisp needs an encoder whose width is a multiple of {HEAD}, without a class token. This one differs.",
                "unsupported_architecture",
            )

    @property
    def _tokens(self) -> int:
        return self.s.most // self.windowed.side**2 * self.windowed.queries**2

    def add(self, x: Buffer, block: int) -> None:
        """Append the stages of all projectors that read a block's output x."""
        for i, feature in enumerate(self.windowed.features):
            if feature == block:
                self._add(x, i)

    def _add(self, x: Buffer, number: int) -> None:
        s, w, n, b = self.s, self.s.w, self.s.tower.embedding_length, f"v.proj_blk.{number}."
        layer = QFormerLayer(s, b, n // HEAD, "quarters", "windows", "gelu_erf")
        s.begin("patches", s.most)
        normed = Norms(s, rms=False, eps=s.tower.eps).apply(b + "norm", x, "projector_norm")
        ops = s.begin("windowed", s.most)
        inside = ops.rows("inside", n)
        rows.gather(ops, normed, n, s.taps("windowed", 1), inside)
        places = w.matrix(b + "img_pos", self.windowed.side**2, n)
        rows.gather(ops, places, n, s.taps("places", 1), inside, add=True)
        window = layer.windows(inside, n)
        ops = s.begin("tokens", self._tokens)
        queries, offset = ops.rows("queries", n), self.windowed.offsets[number]
        squares = (self.windowed.side // self.windowed.queries) ** 2
        begin = s.taps("means", squares) if offset < 0 else s.taps(f"corners_{offset}", 1)
        rows.gather(ops, normed, n, begin, queries)
        learned = w.matrix(b + "query", self.windowed.queries**2, n)
        rows.gather(ops, learned, n, s.taps("queries", 1), queries, add=True)
        y = layer.add(Norms(s, rms=False, eps=EPS).apply(b + "post_norm", queries, "queries_norm"), window)
        bias = w.vector(*((f"v.proj_blk.{i}.linear.bias", self.slice) for i in range(self.count)))
        weight = w.matrix(b + "linear.weight", self.slice, n)
        products.append(ops, Product(y, weight, self._output(), bias, row0=number * self.slice))

    def _output(self) -> Buffer:
        return self.s.ops.buffer(f"{self.s.tower.modality}.slices", (self._tokens, pad(self.slice * self.count)))

    def finish(self) -> EncoderPlan:
        """Append the stage that puts the tokens in order, with rows of the file."""
        s, width, found = self.s, self.slice * self.count, self._output()
        ops = s.begin("lines", s.tower.most_tokens)
        y = ops.buffer(f"{s.tower.modality}.output", (ops.batch, pad(width)))
        rows.gather(ops, found, width, s.taps("order", 1), y)
        newline, breaks = s.w.vector((NEWLINE, self.slice)), s.taps("breaks", self.count)
        for part in range(self.count):
            rows.gather(ops, newline, self.slice, rows.OneTap(breaks, part), y, add=True)
        return s.finish(y, width)


def build(s: Stages, x: Buffer) -> EncoderPlan:
    """The end of the encoder. The projectors have read the blocks' outputs."""
    assert s.tower.windowed is not None
    return Projectors(s, s.tower.windowed).finish()
