"""LoRA adapters and control vectors that are loaded beside a model: their files' headers, checked against the model's.

A LoRA adapter (Hu et al. 2021) has two small matrices for each matrix W of the model that it changes: A (rank, cols)
and B (rows, rank); for matrices of experts, those of each expert. W x becomes W x + scale * alpha / rank * B (A x). A
control vector has a direction (n_embd,) for some layers, which is added to the hidden state after the layer. Formats:
llama.cpp's convert_lora_to_gguf.py, src/llama-adapter.cpp and common/common.cpp.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from py_engine.errors import WispError
from py_engine.files.adapter_header import CONTROL_VECTOR, check_model, is_adapter, prefix
from py_engine.files.gguf_header import Header, TensorInfo
from py_engine.options import AdapterOptions

EMBEDDINGS = "token_embd.weight"  # A and B of this tensor are (vocab, rank) and (n_embd, rank)
MAX_RANK = 2048  # a workgroup of add_low_rank.wgsl holds so many columns
MAX_SCALE = 1000  # of a request, either sign
OF_EXPERTS = re.compile(r"\.ffn_(gate|up|down|gate_up)_(exps|chexps)\.weight$")  # they have a matrix for each expert
NEVER = 1 << 24  # a first position after every context; float32 holds it exactly


@dataclass(frozen=True)
class Pair:
    """A and B of one adapter for one tensor of the model. `factor`: alpha / rank."""

    adapter: int
    a: TensorInfo
    b: TensorInfo
    rank: int
    factor: float


@dataclass(frozen=True)
class Direction:
    """What a control vector adds after one layer."""

    adapter: int
    tensor: str
    width: int  # n_embd


@dataclass
class Adapters:
    """All adapters of a plan, LoRA adapters and control vectors, numbered as their files were given."""

    defaults: list[float] = field(default_factory=list)  # the scale of each where a request says nothing
    pairs: dict[str, list[Pair]] = field(default_factory=dict)  # by tensor of the model
    directions: dict[int, list[Direction]] = field(default_factory=dict)  # by layer
    invocations: dict[int, tuple[int, ...]] = field(default_factory=dict)  # adapter -> its invocation tokens (aLoRA)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.defaults)

    def of(self, tensor: str) -> Sequence[Pair]:
        """The pairs of a tensor of the model."""
        return self.pairs.get(tensor, ())

    def checked(self, scales: Sequence[float]) -> tuple[float, ...]:
        """Check that there is a scale for each adapter, none out of range. WispError invalid_value."""
        if len(scales) != self.count or not all(abs(scale) <= MAX_SCALE for scale in scales):
            raise WispError(
                f"There must be a scale for each of {self.count} adapters, from -{MAX_SCALE} to {MAX_SCALE}.",
                "invalid_value",
                param="lora",
            )
        return tuple(scales)

    def pack(self, scales: Sequence[float], prompt: Sequence[int] = ()) -> bytes:
        """A sequence's row of the buffer of scales (low_rank.py): of each adapter its scale and its first position."""
        firsts = [self.first_position(i, prompt) if scale else 0 for i, scale in enumerate(scales)]
        words = (word for pair in zip(scales, firsts, strict=True) for word in pair)
        return struct.pack(f"<{2 * self.count}f", *words)

    def first_position(self, adapter: int, prompt: Sequence[int]) -> int:
        """The position from which an adapter is active: of an aLoRA, where its last invocation in the prompt begins."""
        invocation = list(self.invocations.get(adapter, ()))
        if not invocation:
            return 0
        size, found = len(invocation), list(prompt)
        starts = range(len(found) - size, -1, -1)
        return next((at for at in starts if found[at : at + size] == invocation), NEVER)


NO_ADAPTERS = Adapters()
NOT_ADAPTED = ("per_layer_model_proj.weight", "altup_router.weight")  # llama.cpp ignores adapters of these


def read_adapters(model: Header, headers: Sequence[Header], options: Sequence[AdapterOptions]) -> Adapters:
    """Check adapters against the model. `headers`: with prefixed names; `options`: of each.

    WispError not_an_adapter, adapter_mismatch, corrupt_header.
    """
    adapters = Adapters()
    for number, header in enumerate(headers):
        given = options[number] if number < len(options) else AdapterOptions()
        adapters.defaults.append(given.scale)
        try:
            if header.get("general.architecture") == CONTROL_VECTOR:
                _add_directions(adapters, number, model, header, given)
            else:
                _add_pairs(adapters, number, model, header)
        except WispError as error:
            raise WispError(f"lora[{number}]: {error.message}", error.code, param="lora") from None
    return adapters


def check_files(headers: Sequence[Header], count: int) -> None:
    """Check the kinds of the files of a load: `count` of a model, then adapters for it.

    WispError unsupported_architecture, not_an_adapter or adapter_mismatch.
    """
    check_model(headers[0])
    for number, header in enumerate(headers[count:]):
        try:
            check_adapter(headers[0], header)
        except WispError as error:
            raise WispError(f"lora[{number}]: {error.message}", error.code, param="lora") from None


def _mismatch(why: str) -> WispError:
    return WispError(f"{why} Use an adapter that was made for this model.", "adapter_mismatch")


def check_adapter(model: Header, header: Header) -> None:
    """Check a file's metadata: that it is an adapter for a model of this architecture."""
    if not is_adapter(header):
        raise WispError(
            "This file is a whole model, or a projector, not an adapter: its general.type is not 'adapter'. "
            "Give a LoRA adapter or a control vector in GGUF.",
            "not_an_adapter",
        )
    if header.get("general.architecture") == CONTROL_VECTOR:
        hint = header.get(f"{CONTROL_VECTOR}.model_hint")
        if isinstance(hint, str) and hint and hint != model.architecture:
            raise _mismatch(
                f"The control vector is for the architecture {hint!r}, the model is {model.architecture!r}."
            )
        return
    if (kind := header.get("adapter.type")) != "lora":
        raise WispError(f"The adapter's type is {kind!r:.50}; Wisp has LoRA adapters only.", "not_an_adapter")
    if header.architecture != model.architecture:
        raise _mismatch(
            f"The adapter is for the architecture {header.architecture!r:.50}, the model is {model.architecture!r}."
        )


def _add_pairs(adapters: Adapters, number: int, model: Header, header: Header) -> None:
    check_adapter(model, header)
    alpha = header.get("adapter.lora.alpha", 0.0)
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not abs(alpha) < 1e6:
        raise WispError(f"adapter.lora.alpha is {alpha!r:.50}; it must be a number.", "corrupt_header")
    invocation = header.get("adapter.alora.invocation_tokens")
    if invocation is not None:
        if not isinstance(invocation, list) or not all(type(token) is int for token in invocation) or not invocation:
            raise WispError("adapter.alora.invocation_tokens must be a list of token ids.", "corrupt_header")
        adapters.invocations[number] = tuple(invocation)
    start, names = prefix(number), dict[str, None]()
    for name in header.tensors:
        base, dot, part = name.removeprefix(start).rpartition(".")
        if dot and part in ("lora_a", "lora_b"):
            names[base] = None
        elif not name.endswith("_norm.weight"):  # llama.cpp leaves trained norms out, too
            raise WispError(f"The adapter has a tensor {name.removeprefix(start)!r:.80}.", "not_an_adapter")
    if not names:
        raise WispError("The adapter has no tensors that end with .lora_a and .lora_b.", "not_an_adapter")
    for base in names:
        if base.endswith(NOT_ADAPTED):
            continue
        pair = _pair(number, base, model, header, float(alpha))
        adapters.pairs.setdefault(base, []).append(pair)


def _pair(number: int, base: str, model: Header, header: Header, alpha: float) -> Pair:
    """A and B for the model's tensor `base`. Shapes are in ggml's order: columns first."""
    a, b = (header.tensors.get(f"{prefix(number)}{base}.lora_{part}") for part in "ab")
    if a is None or b is None:
        raise WispError(f"The adapter has only one of the two matrices for {base}.", "corrupt_header")
    info = model.tensors.get(base)
    if info is None or len(info.shape) < 2:
        raise _mismatch(f"The adapter changes {base!r:.80}, which the model does not have.")
    if len(info.shape) > 2 and info.shape[2] > 1 and not OF_EXPERTS.search(base):
        raise WispError(
            f"The adapter changes {base}, which has a matrix for each head. Wisp cannot apply it.",
            "unsupported_adapter",
        )
    shape_a, shape_b, shape = (tuple(n for i, n in enumerate(t.shape) if i < 2 or n > 1) for t in (a, b, info))
    cols, rows = info.shape[:2]
    if base == EMBEDDINGS:
        cols, rows, rank = rows, cols, b.shape[0]
        fits = shape_a == (rank, cols) and shape_b == (rank, rows)
    else:
        rank = b.shape[0]
        fits = shape_a == (cols, rank, *shape[2:]) and shape_b == (rank, rows, *shape[2:])
    if not fits:
        raise _mismatch(
            f"The adapter's matrices for {base} are {_size(shape_a)} and {_size(shape_b)}, which do not fit the "
            f"model's {_size(shape)}."
        )
    if not 1 <= rank <= MAX_RANK:
        raise WispError(
            f"The adapter's rank for {base} is {rank}; Wisp applies adapters of at most {MAX_RANK}.",
            "unsupported_adapter",
        )
    return Pair(number, a, b, rank, alpha / rank if alpha else 1.0)


def _size(shape: Sequence[int]) -> str:
    return " x ".join(map(str, reversed(shape)))


def _add_directions(adapters: Adapters, number: int, model: Header, header: Header, options: AdapterOptions) -> None:
    """Directions by layer: tensor direction.N is added after layer N, counted from 0."""
    check_adapter(model, header)
    start, n_embd, blocks = prefix(number), model.arch("embedding_length"), int(model.arch("block_count"))
    first, last = options.layers or (1, blocks - 1)
    found = False
    for name, info in header.tensors.items():
        match = re.fullmatch(r"direction\.(\d{1,5})", name.removeprefix(start))
        if match is None:
            raise WispError(f"The control vector has a tensor {name.removeprefix(start)!r:.80}.", "not_an_adapter")
        layer = int(match[1])
        if layer < 1 or info.type.name != "F32":
            raise WispError(f"{match[0]} of the control vector is not a vector of F32 for a layer.", "corrupt_header")
        if info.shape[0] != n_embd or any(n > 1 for n in info.shape[1:]):
            raise _mismatch(f"{match[0]} of the control vector has {_size(info.shape)} values, the model {n_embd}.")
        if layer >= blocks:
            raise _mismatch(f"The control vector has {match[0]}, the model has {blocks} layers.")
        if first <= layer <= last:
            adapters.directions.setdefault(layer, []).append(Direction(number, name, n_embd))
        found = True
    if not found:
        raise WispError("The control vector has no directions.", "not_an_adapter")
