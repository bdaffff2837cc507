"""The hyperparameters of one encoder of a projector: those of media/projector.py, and what its computation needs."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt, prod

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.media.encoders import Audio, Coded, Sam, Speech, Vision, Windowed
from py_engine.media.kinds import LFM2, LLAVA, WHISPER, WITHOUT_BLOCKS
from py_engine.media.layout import PLAIN, Layout
from py_engine.media.projector import Projector
from py_engine.media.reader import deepstack_blocks
from py_engine.models.common import MAX_BLOCKS, natural, switch

ERF = (
    *WHISPER,
    "qwen3a",
    "mimo_audio",
    "minimax_m3",
    "muse-glimmer",
)  # encoders that have GELU by the error function, whatever the metadata says
LIMITS = {
    "patch": 256,
    "merge": 32,
    "mels": 1024,
    "stack": 64,
    "queries": 4096,
    "class_rows": 256,
}  # larger ones are damage
WINDOW = 112  # pixels of a window's side in qwen2.5vl
MAX_WINDOW = 4096  # pixels
# Types whose tables of positions are resized.
SQUARE_TABLES = ("kimik25", "ling3vl", "glm5v", "muse-glimmer", "step3vl")
WITH_CLASS = ("llama4", "nemotron_v2_vl")  # types that cannot do without class tokens
MUSE_PERIOD = 4  # of muse-glimmer's blocks, the last of so many attends to the whole picture
LFM2_TILE = 512  # pixels of a side


WHOLE, IN_LINES, IN_COLUMNS = -1, 0, 1  # what a block of mimovl attends to


@dataclass(frozen=True)
class Bands:
    """How mimovl's blocks attend: to the whole picture, or to near rows in the order of its lines or of its columns."""

    modes: tuple[int, ...]  # of each block
    reach: int  # rows to either side


@dataclass(frozen=True)
class Tower:
    """One encoder. `merge`: patches along a side of the square that becomes one token."""

    kind: str  # the projector's type
    modality: str  # "image" or "audio"
    block_count: int
    embedding_length: int
    head_count: int
    eps: float
    activation: str
    head_width: int = 0  # of a head; 0: as wide as heads side by side fill a row
    key_heads: int = 0  # of keys and values; 0: as many as of queries
    patch: int = 0  # pixels
    merge: int = 1
    min_patches: int = 0  # of a picture; 0: its size is not free
    max_patches: int = 0
    positions: int = 0  # rows of the position table
    class_rows: int = 0  # class tokens and registers, which follow the patches
    mean: tuple[float, ...] = ()  # of the colours
    deviation: tuple[float, ...] = ()
    mels: int = 0  # bins of a frame of sound
    stack: int = 1  # frames that become one token
    window: int = 0  # pixels of the side of a window that most blocks attend to; 0: to the whole picture
    whole: frozenset[int] = frozenset()  # the blocks that attend to the whole picture nevertheless
    layout: Layout = PLAIN  # of a picture's tokens
    queries: int = 0  # tokens of a picture, where learned queries attend to its patches
    merged_after: int = -1  # the block after which squares of 2 x 2 patches become one row; -1: none
    sam: Sam | None = None  # of deepseekocr2
    windowed: Windowed | None = None  # of granite4_vision
    most_tokens: int = 0  # of a picture
    bands: Bands | None = None  # of mimovl
    speech: Speech | None = None  # of granite_speech
    kernel: int = 0  # rows of a FastConformer's convolutions
    coded: Coded | None = None  # of mimo_audio
    deepstack: tuple[int, ...] = ()  # blocks whose output goes to a layer of the text model
    features: tuple[int, ...] = ()  # after how many blocks LLaVA's projector reads rows
    experts_used: int = 0  # of dots3note_v
    pairs: bool = False  # two frames of a video may be one picture

    @property
    def blocks_used(self) -> int:
        """Blocks that are computed. LLaVA's projector reads rows before the last block, if the file does not say."""
        if self.features:
            return self.features[-1]
        return self.block_count - (self.kind in LLAVA)

    @property
    def features_width(self) -> int:
        """Values of a row that LLaVA's projector reads."""
        return self.embedding_length * max(1, len(self.features))

    @property
    def square(self) -> int:
        """Patches along a side of the squares by which patches are ordered. step3vl's are ordered line by line."""
        return 1 if self.kind == "step3vl" else self.merge

    @property
    def prefix(self) -> str:
        """The beginning of its tensors' names."""
        return "v." if self.modality == "image" else "a."

    @property
    def head_dim(self) -> int:
        """Values of a head."""
        return self.head_width or self.embedding_length // self.head_count

    @property
    def heads(self) -> tuple[int, int, int]:
        """(n_head, n_head_kv, head_dim)."""
        return self.head_count, self.key_heads or self.head_count, self.head_dim

    @property
    def widths(self) -> tuple[int, int]:
        """Values of a row of queries, and of a row of keys."""
        queries, keys, dim = self.heads
        return queries * dim, keys * dim


def towers(header: Header) -> dict[str, Tower]:
    """The encoders of a projector, of "image" and "audio". WispError for a file that is none, or of an unknown type."""
    projector = Projector.from_gguf(header)
    found: dict[str, Tower] = {}
    if projector.vision is not None:
        found["image"] = _image(header, projector.vision)
    if projector.audio is not None:
        found["audio"] = _audio(header, projector.audio)
    for tower in found.values():
        last = f"{tower.prefix}blk.{tower.block_count - 1}."
        has_last = tower.kind in WITHOUT_BLOCKS or any(name.startswith(last) for name in header.tensors)
        if tower.block_count > MAX_BLOCKS or not has_last:
            raise WispError(f"The projector lacks the last of its {tower.block_count} blocks.", "corrupt_header")
        if tower.head_dim % 4:
            raise WispError(
                f"Wisp cannot run an encoder whose heads are {tower.head_dim} wide.", "unsupported_architecture"
            )
        for name, most in LIMITS.items():
            if getattr(tower, name) > most:
                raise WispError(
                    f"The projector's {name} is {getattr(tower, name)}; it must be at most {most}.", "corrupt_header"
                )
    return found


def _activation(header: Header) -> str:
    gelu, silu = switch(header, "use_gelu", False), switch(header, "use_silu", False)
    if gelu and silu:
        what = (
            "The projector says both use_gelu and use_silu; an encoder has one activation. Download the file again, or "
        )
        raise WispError(what + "use another conversion of the projector.", "corrupt_header")
    return "gelu" if gelu else "silu" if silu else "gelu_quick"


def _activation_of(header: Header, vision: Vision) -> str:
    if vision.type == "hunyuanvl":
        return "gelu"
    if vision.type in ERF:
        return "gelu_erf"
    name = _activation(header)
    if vision.type != "glm5v" or name != "silu":
        return name
    limit = header.arch("vision.swiglu_clamp", None)
    if not isinstance(limit, float) or not 0 <= limit < 1e6:
        raise WispError(f"vision.swiglu_clamp is {limit!r:.100}; it must be a number.", "corrupt_header")
    return f"clamped_silu<{limit}" if limit else name


def _head_width(header: Header, vision: Vision) -> int:
    """The width of a head, where the stacked matrix of queries, keys and values says it; else 0."""
    info = header.tensors.get("v.blk.0.attn_qkv.weight") if vision.type == "mimovl" else None
    if info is None:
        return 0
    width, left = divmod(info.shape[1] if len(info.shape) > 1 else 0, vision.n_head + 2 * vision.n_head_kv)
    if left or not width:
        raise WispError(f"Tensor {info.name} has the shape {info.shape}.", "bad_tensor_shape")
    return width


def _bands(header: Header, vision: Vision) -> Bands:
    modes, reach = header.arch("vision.wa_pattern_mode", None), natural(header, "vision.window_size")
    known = isinstance(modes, list) and all(mode in (WHOLE, IN_LINES, IN_COLUMNS) for mode in modes)
    if not known or len(modes) != vision.n_layer:
        raise WispError(f"vision.wa_pattern_mode is {modes!r:.100}; it must list -1, 0 or 1.", "corrupt_header")
    if not 0 < reach <= MAX_WINDOW:
        raise WispError(f"The projector's windows reach {reach} patches.", "corrupt_header")
    return Bands(tuple(modes), reach)


def _class_rows(header: Header, vision: Vision) -> int:
    info = header.tensors.get("v.class_embd")
    if info is None and vision.type in WITH_CLASS:
        raise WispError("The projector lacks the tensor v.class_embd.", "missing_tensor")
    if info is None:
        return 0
    return prod(info.shape[1:]) if vision.type == "nemotron_v2_vl" else 1


def _deepstack(header: Header, vision: Vision) -> tuple[int, ...]:
    if vision.windowed is not None:
        return tuple(sorted(set(vision.windowed.features)))
    return tuple(deepstack_blocks(header))


def _image(header: Header, vision: Vision) -> Tower:
    table = header.tensors.get("v.position_embd.weight")
    side = vision.image_size
    if vision.type in LFM2:
        side = max(LFM2_TILE, 16 * vision.align)
    elif vision.type == "lightonocr":
        side = max(side, vision.longest_edge)
    area = vision.max_pixels if vision.type not in LFM2 and vision.max_pixels else side * side
    if table and vision.type in SQUARE_TABLES and isqrt(rows := prod(table.shape[1:])) ** 2 != rows:
        raise WispError(f"The projector's table of positions has the shape {table.shape}.", "bad_tensor_shape")
    if vision.windowed is not None:
        area *= 1 + vision.most_tiles
    return Tower(
        kind=vision.type,
        modality="image",
        block_count=vision.n_layer,
        embedding_length=vision.n_embd,
        head_count=vision.n_head,
        eps=vision.eps,
        activation=_activation_of(header, vision),
        patch=vision.patch_size,
        merge=vision.merge,
        min_patches=vision.min_pixels // vision.patch_size**2,
        max_patches=area // vision.patch_size**2,
        positions=prod(table.shape[1:]) if table else 0,
        class_rows=_class_rows(header, vision),
        key_heads=vision.n_head_kv,
        head_width=_head_width(header, vision),
        bands=_bands(header, vision) if vision.type == "mimovl" else None,
        mean=vision.mean,
        deviation=vision.std,
        window=_window(header, vision),
        whole=_whole(header, vision),
        layout=vision.layout,
        sam=vision.sam,
        windowed=vision.windowed,
        most_tokens=vision.most_tokens,
        queries=vision.queries,
        merged_after=vision.merged_after,
        deepstack=_deepstack(header, vision),
        features=vision.features,
        experts_used=vision.experts_used,
        pairs=vision.pairs,
    )


def _window(header: Header, vision: Vision) -> int:
    if vision.type in ("qwen2.5vl_merger", "exaone4_5"):
        return WINDOW if natural(header, "vision.n_wa_pattern") else 0
    if vision.type == "muse-glimmer":  # as large as the table of positions
        return vision.patch_size * _table_side(header, vision)
    if vision.type != "youtuvl" or not _whole(header, vision):
        return 0
    window = natural(header, "vision.window_size")
    if not vision.align <= window <= MAX_WINDOW:
        raise WispError(f"The projector's windows are {window} pixels wide.", "corrupt_header")
    return window


def _table_side(header: Header, vision: Vision) -> int:
    table = header.tensors.get("v.position_embd.weight")
    side = isqrt(prod(table.shape[1:])) if table else 0
    if not side or side % vision.merge:
        raise WispError("The projector's table of positions has no side of whole tokens.", "bad_tensor_shape")
    return side


def _whole(header: Header, vision: Vision) -> frozenset[int]:
    """The blocks that attend to the whole picture, of types with windows."""
    if vision.type in ("qwen2.5vl_merger", "exaone4_5"):
        period = natural(header, "vision.n_wa_pattern")
        return frozenset(range(period - 1, vision.n_layer, period)) if period else frozenset()
    if vision.type == "muse-glimmer":
        return frozenset((*range(MUSE_PERIOD - 1, vision.n_layer, MUSE_PERIOD), vision.n_layer - 1))
    if vision.type != "youtuvl":
        return frozenset()
    blocks = header.arch("vision.wa_layer_indexes", None)
    if not isinstance(blocks, list) or not all(type(i) is int and 0 <= i < vision.n_layer for i in blocks):
        raise WispError(f"vision.wa_layer_indexes is {blocks!r:.100}; it must list blocks.", "corrupt_header")
    return frozenset(blocks)


def _audio(header: Header, audio: Audio) -> Tower:
    return Tower(
        kind=audio.type,
        modality="audio",
        block_count=audio.n_layer,
        embedding_length=audio.n_embd,
        head_count=audio.n_head,
        eps=audio.eps,
        activation=_activation(header) if audio.type == "dots3note_a" else "gelu_erf" if audio.type in ERF else "silu",
        mels=audio.n_mel,
        stack=audio.stack,
        speech=audio.speech,
        kernel=audio.kernel,
        coded=audio.coded,
    )
