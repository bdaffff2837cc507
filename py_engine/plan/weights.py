"""The plan's weights, from the names and shapes that a model expects, checked against the file's tensors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import prod

from py_engine.errors import WispError
from py_engine.files.draft_header import DRAFT, described, field_of
from py_engine.files.gguf_header import Header, TensorInfo
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import quants
from py_engine.plan.matrix_scales import MAX_STACKED, scale_of, unsupported_scale
from py_engine.plan.plan import ZEROS, Plan, Weight

# Matrices of all experts (stack * experts * rows, cols), and their biases (stack * experts, rows).
ExpertMatrices = tuple[Weight, Weight | None]

# biases that llama.cpp's loader takes and its graph does not apply, by architecture
UNREAD: dict[str, tuple[str, ...]] = {
    "apertus": ("attn_q_norm.bias", "attn_k_norm.bias"),
    "dream": ("output.bias",),
    "ernie4_5": ("attn_output.bias",),
    "ernie4_5-moe": ("attn_output.bias",),
    "falcon-h1": ("attn_output.bias",),
    "llada": ("attn_output.bias", "ffn_gate.bias", "ffn_up.bias", "ffn_down.bias"),
    "mimo2": ("attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_qkv.bias"),
    "nomic-bert": ("ffn_up.bias", "ffn_down.bias"),
    "qwen2vl": ("output.bias",),
    "qwen4exp": ("attn_q.bias", "attn_k.bias", "attn_v.bias"),
    "refact": ("attn_output.bias", "ffn_gate.bias", "ffn_up.bias", "ffn_down.bias"),
}
LAYER = re.compile(r"blk\.\d+\.")


def missing_tensor(tensor: str, architecture: str) -> WispError:
    """The error for a file without a tensor that its architecture needs."""
    if tensor.startswith(DRAFT):
        return WispError(
            f"The draft model's file has no tensor {tensor.removeprefix(DRAFT)}, which it needs. Download the file "
            "again, or use another conversion of the draft model.",
            "missing_tensor",
            param="draft",
        )
    return WispError(
        f"The file has no tensor {tensor}, which the {architecture} architecture needs. Download the file again, or "
        "use another conversion of the model.",
        "missing_tensor",
    )


class Weights:
    """The plan's weights, each created once. Shapes are (rows, cols): rows are outputs, cols inputs."""

    def __init__(self, header: Header, plan: Plan) -> None:
        self.header, self.plan = header, plan
        self._given: set[str] = set()  # tensors that scale() has given

    def __contains__(self, tensor: str) -> bool:
        if tensor not in self.header.tensors:
            return False
        unread = UNREAD.get(self.header.architecture)  # seldom: planning asks for thousands of tensors
        return unread is None or LAYER.sub("", tensor) not in unread

    def rows(self, tensor: str) -> int:
        """Rows of a matrix in the file; 0 if there is no such matrix."""
        info = self.header.tensors.get(tensor)
        return info.shape[1] if info and len(info.shape) > 1 else 0

    def cols(self, tensor: str) -> int:
        """Columns of a matrix in the file; 0 if there is no such matrix."""
        info = self.header.tensors.get(tensor)
        return info.shape[0] if info and len(info.shape) > 1 else 0

    def in_halves(self, tensor: str) -> bool:
        """Whether the file has a tensor of numbers of 16 bits."""
        info = self.header.tensors.get(tensor)
        return info is not None and info.type in (Q.F16, Q.BF16)

    def size(self, tensor: str) -> int:
        """Number of values in a tensor of the file."""
        return prod(self.header.tensors[tensor].shape)

    def _tensor(self, tensor: str, *shape: int, scaled: bool = False) -> TensorInfo:
        """A tensor of this shape. `scaled`: the caller applies the scale beside it, if there is one."""
        info = self.header.tensors.get(tensor)
        if info is None:
            raise missing_tensor(tensor, self.header.architecture)
        got = tuple(reversed(info.shape))
        if [n for n in got if n != 1] != [n for n in shape if n != 1]:
            raise WispError(
                f"{described(tensor)} is {' x '.join(map(str, got))}; the metadata requires "
                f"{' x '.join(map(str, shape))}.",
                "bad_tensor_shape",
                param=field_of(tensor),
            )
        quants.layout(info.type, tensor)
        if not scaled and self._has_scale(tensor):
            raise unsupported_scale(tensor)
        return info

    def _has_scale(self, tensor: str) -> bool:
        scale = scale_of(tensor)
        return scale in self and scale not in self._given

    def _scaled(self, weight: Weight, length: int = 1) -> Weight:
        """The weight with the scales (of `length` values) that are beside all of its tensors, or beside none."""
        tensors = list(dict.fromkeys(tensor for tensor, _, _ in weight.sources))
        if not self._has_scale(tensors[0]):
            return weight
        return replace(weight, scales=self.vector(*((scale_of(tensor), length) for tensor in tensors)))

    def scale(self, matrix: str, length: int) -> Weight | None:
        """The scales beside a matrix, if the file has them, for a caller that applies them. To be called before it."""
        tensor = matrix + ".scale"
        self._given.add(tensor)
        return self.optional_vector((tensor, length))

    def _add(self, weight: Weight) -> Weight:
        return self.plan.weights.setdefault(weight.name, weight)

    def matrix(self, tensor: str, rows: int, cols: int) -> Weight:
        """A matrix of one tensor."""
        info = self._tensor(tensor, rows, cols, scaled=True)
        return self._add(self._scaled(Weight(tensor, info.type, rows, cols, ((tensor, 0, rows),))))

    def experts(self, names: list[str], n: int, rows: int, cols: int, limit: int) -> list[ExpertMatrices]:
        """Tensors (n, rows, cols) as matrices (n * rows, cols), with biases (n, rows) if the file has them.

        Tensors of one type are stacked if the stack fits into a binding of `limit` bytes.
        """
        kinds = {
            (self._tensor(tensor, n, rows, cols, scaled=True).type, self._has_scale(tensor))
            for tensor in (name + ".weight" for name in names)
        }
        stack = self._stacked([name + ".weight" for name in names], n, rows, cols, scaled=True)
        groups = [names] if len(kinds) == 1 and len(stack.split(limit)) == 1 else [[name] for name in names]
        return [
            (
                self._add(
                    self._scaled(self._stacked([name + ".weight" for name in group], n, rows, cols, scaled=True), n)
                ),
                self._add(self._stacked([name + ".bias" for name in group], n, rows))
                if self.has_all([name + ".bias" for name in group])
                else None,
            )
            for group in groups
        ]

    def gated_experts(self, tensor: str, n: int, rows: int, cols: int, limit: int) -> list[ExpertMatrices]:
        """As experts(), of one tensor (n, 2 * rows, cols): each network's gate, then its other input matrix."""
        if (bias := tensor.removesuffix("weight") + "bias") in self:
            raise WispError(f"Tensor {bias} is not supported yet.", "unsupported_architecture")
        type = self._tensor(tensor, n, 2 * rows, cols).type
        gates, others = (
            Weight(
                f"{tensor}.{name}", type, n * rows, cols, tuple((tensor, first + 2 * i * rows, rows) for i in range(n))
            )
            for name, first in (("gate", 0), ("up", rows))
        )
        whole = Weight(f"{tensor}.gate+up", type, 2 * n * rows, cols, gates.sources + others.sources)
        weights = [whole] if len(whole.split(limit)) == 1 else [gates, others]
        return [(self._add(weight), None) for weight in weights]

    def slices(self, tensor: str, n: int, rows: int, cols: int) -> list[Weight]:
        """The n matrices (rows, cols) of a tensor (n, rows, cols)."""
        type = self._tensor(tensor, n, rows, cols).type
        parts = (Weight(f"{tensor}.{i}", type, rows, cols, ((tensor, i * rows, rows),)) for i in range(n))
        return [self._add(part) for part in parts]

    def flattened(self, tensor: str, n: int, rows: int, cols: int) -> Weight:
        """A tensor (n, rows, cols) as one matrix (n * rows, cols)."""
        return self._add(self._stacked([tensor], n, rows, cols))

    def _stacked(self, tensors: list[str], *shape: int, scaled: bool = False) -> Weight:
        """Tensors of one shape and type as one matrix, end to end."""
        rows, type = prod(shape[:-1]), self._tensor(tensors[0], *shape, scaled=scaled).type
        return Weight("+".join(tensors), type, len(tensors) * rows, shape[-1], tuple((t, 0, rows) for t in tensors))

    def stack(self, parts: list[tuple[str, int]], cols: int) -> list[Weight]:
        """Stack (tensor, rows) matrices by rows: one weight for each run of tensors of the same type."""
        return self.joined([self.part(tensor, rows, cols, [(0, rows)]) for tensor, rows in parts])

    def part(self, tensor: str, rows: int, cols: int, ranges: list[tuple[int, int]], name: str = "") -> Weight:
        """Ranges (first row, rows) of a tensor as a matrix `name`, which is only of use for joined()."""
        type = self._tensor(tensor, rows, cols, scaled=True).type
        sources = tuple((tensor, first, count) for first, count in ranges)
        return Weight(name or tensor, type, sum(count for _, count in ranges), cols, sources)

    def joined(self, parts: list[Weight]) -> list[Weight]:
        """Matrices end to end: one weight for each run of matrices of the same type."""
        runs: list[list[Weight]] = []
        for part in parts:
            if runs and self._joins(runs[-1], part):
                runs[-1].append(part)
            else:
                runs.append([part])
        return [
            self._add(
                self._scaled(
                    Weight(
                        "+".join(part.name for part in run),
                        run[0].type,
                        sum(part.rows for part in run),
                        run[0].cols,
                        tuple(source for part in run for source in part.sources),
                    )
                )
            )
            for run in runs
        ]

    def _joins(self, run: list[Weight], part: Weight) -> bool:
        """Whether a matrix can follow others in one weight."""
        scaled = self._has_scale(part.sources[0][0])
        alike = run[-1].type == part.type and self._has_scale(run[-1].sources[0][0]) == scaled
        return alike and not (scaled and len(run) == MAX_STACKED)

    def vector(self, *tensors_lengths: tuple[str, int], optional: Sequence[tuple[str, int]] = ()) -> Weight:
        """Concatenate (tensor, length) vectors into one row. A tensor of several rows is flattened.

        Vectors are F32 in every GGUF. `optional`: further ones, with zeros for those that the file does not have.
        """
        present = [tensor for tensor, _ in optional if tensor in self]
        return self._vector([*(tensor for tensor, _ in tensors_lengths), *present], (*tensors_lengths, *optional))

    def optional_vector(self, *tensors_lengths: tuple[str, int]) -> Weight | None:
        """vector(), with zeros for tensors that the file does not have; None if it has none of them."""
        present = [tensor for tensor, _ in tensors_lengths if tensor in self]
        return self._vector(present, tensors_lengths) if present else None

    def _vector(self, present: list[str], tensors_lengths: tuple[tuple[str, int], ...]) -> Weight:
        """vector(), with zeros for tensors that are not `present`."""
        shapes = {tensor: self.header.tensors[tensor].shape for tensor, _ in tensors_lengths if tensor in self}
        rows = {tensor: prod(shapes.get(tensor, ())[1:]) for tensor, _ in tensors_lengths}
        for tensor, length in tensors_lengths:
            if tensor in present:
                self._f32(tensor, *((rows[tensor], length // rows[tensor]) if rows[tensor] > 1 else (length,)))
        names = [t for t, _ in tensors_lengths]
        cols = sum(n for _, n in tensors_lengths)
        sources = tuple((t, 0, rows[t]) if t in present else (ZEROS, 0, length) for t, length in tensors_lengths)
        return self._add(Weight("+".join(names), Q.F32, 1, cols, sources))

    def table(self, tensors: list[str], cols: int) -> Weight:
        """Vectors of `cols` values, or matrices of them, as the rows of a table."""
        counts = [max(1, self.rows(tensor)) for tensor in tensors]
        for tensor, count in zip(tensors, counts, strict=True):
            self._f32(tensor, count, cols)
        sources = tuple((tensor, 0, count) for tensor, count in zip(tensors, counts, strict=True))
        return self._add(Weight("+".join(tensors), Q.F32, sum(counts), cols, sources))

    def _f32(self, tensor: str, *shape: int) -> None:
        """Check a vector's shape and type."""
        info = self._tensor(tensor, *shape)
        if info.type != Q.F32:
            raise WispError(
                f"{described(tensor)} is {info.type.name}; vectors must be F32.",
                "unsupported_quantization",
                param=field_of(tensor),
            )

    def integers(self, tensor: str, rows: int, cols: int) -> Weight:
        """A table of 32-bit integers (rows, cols). Declared as F32, whose bytes are uploaded as they are."""
        info = self.header.tensors.get(tensor)
        if info is None:
            raise missing_tensor(tensor, self.header.architecture)
        if info.type != Q.I32 or tuple(reversed(info.shape)) not in ((rows, cols), (rows,) if cols == 1 else ()):
            raise WispError(
                f"{described(tensor)} must be I32, {rows} x {cols}.", "bad_tensor_shape", param=field_of(tensor)
            )
        return self._add(Weight(tensor, Q.F32, rows, cols, ((tensor, 0, rows),)))

    def has_all(self, tensors: list[str]) -> bool:
        """Whether the file has these optional tensors. WispError unsupported_architecture if it has some of them."""
        missing = [tensor for tensor in tensors if tensor not in self]
        if missing and len(missing) < len(tensors):
            present = next(tensor for tensor in tensors if tensor in self)
            raise WispError(
                f"The file has the tensor {present}, but not {missing[0]}. Wisp needs both or neither.",
                "unsupported_architecture",
            )
        return bool(tensors) and not missing
