"""What the header of a projector (an `mmproj` GGUF) says: its encoders, and how they take pictures and sound."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.media.encoders import Audio, Sam, Speech, Vision, Windowed
from py_engine.media.kinds import (
    AUDIO_TYPES,
    BICUBIC,
    BILINEAR,
    CONVNEXT_SIDE,
    DEFAULT_MERGE,
    FILTERS,
    IN_TILES,
    LANCZOS,
    MAX_SECONDS,
    MERGE_KEYS,
    MOBILE_SIDE,
    MOBILE_SIZES,
    OMNI,
    OUTPUTS,
    SAM_MERGE,
    SAM_PATCH,
    SAM_SIDE,
    SAM_TILES,
    SIZED_BY_FILE,
    STACKED,
    TOKEN_LIMITS,
    VISION_TYPES,
    WITHOUT_BLOCKS,
    YI_OUTPUT,
)
from py_engine.media.layout import LAYOUTS, PLAIN, WITH_LINE_BREAKS

ARCHITECTURE = "clip"  # general.architecture of every projector
MAX_TILES = 64  # of a picture


@dataclass(frozen=True)
class Projector:
    """A projector's encoders. At least one is there."""

    header: Header
    vision: Vision | None
    audio: Audio | None

    @classmethod
    def from_gguf(cls, header: Header) -> Projector:
        """Read and check a projector's header. WispError not_a_projector, unsupported_projector and others."""
        if header.metadata.get("general.architecture") != ARCHITECTURE:
            raise WispError(
                f"This file is a model ({header.architecture}), not a projector. A projector's name usually begins "
                "with mmproj.",
                "not_a_projector",
            )
        reader = _Reader(header)
        vision = _vision(reader.of("vision")) if reader.has("vision") else None
        # Gemma 3n's encoder of sound is ignored; llama.cpp ignores it, too
        images_only = vision is not None and vision.type == "gemma3nv"
        audio = _audio(reader.of("audio")) if reader.has("audio") and not images_only else None
        if vision is None and audio is None:
            raise WispError(
                "This projector has neither an encoder of images nor one of sound. Choose another.",
                "unsupported_projector",
            )
        widths = {encoder.n_embd_inp for encoder in (vision, audio) if encoder}
        if len(widths) > 1:
            raise WispError(f"The projector's encoders differ in width: {sorted(widths)}.", "bad_tensor_shape")
        return cls(header, vision, audio)

    @property
    def n_embd_inp(self) -> int:
        """The width of the embeddings that the encoders make."""
        encoder = self.vision or self.audio
        assert encoder is not None
        return encoder.n_embd_inp

    @property
    def most_tokens(self) -> int:
        """Tokens of a picture at most."""
        return self.vision.most_tokens if self.vision else 0

    def check_fits(self, n_embd_inp: int) -> None:
        """Raise WispError projector_mismatch unless a text model takes embeddings of that width."""
        if self.n_embd_inp != n_embd_inp:
            raise WispError(
                f"The projector makes embeddings of {self.n_embd_inp} numbers, and the model takes {n_embd_inp}: they "
                "belong to different models. Choose the projector that was published with the model.",
                "projector_mismatch",
            )

    def need_vision(self) -> Vision:
        """The encoder of pictures. WispError no_projector."""
        if self.vision is None:
            raise WispError("This model hears, but does not see: its projector is for sound only.", "no_projector")
        return self.vision

    def need_audio(self) -> Audio:
        """The encoder of sound. WispError no_projector."""
        if self.audio is None:
            raise WispError("This model sees, but does not hear: its projector is for images only.", "no_projector")
        return self.audio

    @cached_property
    def digest(self) -> bytes:
        """A hash of the header: parts of the identity of everything that the projector computes."""
        found = hashlib.sha256(repr(sorted(self.header.metadata.items())).encode())
        found.update(repr([(t.name, t.shape, t.type.name, t.offset) for t in self.header.tensors.values()]).encode())
        return found.digest()


class _Reader:
    """Reads the metadata of one encoder."""

    def __init__(self, header: Header, modality: str = "") -> None:
        self.header = header
        self.modality = modality

    def of(self, modality: str) -> _Reader:
        return _Reader(self.header, modality)

    def has(self, modality: str) -> bool:
        return self.header.get(f"clip.has_{modality}_encoder") is True

    def get(self, key: str, default: Any = None) -> Any:
        return self.header.get(f"clip.{self.modality}.{key}", default)

    def count(self, key: str, default: int | None = None, most: int = (1 << 31) - 1) -> int:
        """Read a positive whole number, at most `most`. Required if there is no default."""
        value = self.get(key, default)
        if value is None:
            raise WispError(f"The projector lacks the metadata key clip.{self.modality}.{key}.", "missing_metadata")
        if type(value) is not int or not 0 < value <= most:
            limit = f", at most {most}" if most < (1 << 31) - 1 else ""
            raise self._bad(key, value, "a positive whole number" + limit)
        return value

    def numbers(self, key: str, length: int, least: float) -> tuple[float, ...]:
        """Read `length` numbers that are not below `least`."""
        value = self.get(key)
        if not isinstance(value, list) or len(value) < length:
            raise self._bad(key, value, f"a list of {length} numbers")
        if not all(type(n) in (int, float) and least <= n < 1e6 for n in value[:length]):
            raise self._bad(key, value, f"a list of {length} numbers, at least {least}")
        return tuple(float(n) for n in value[:length])

    def encoder(self, type: str) -> dict[str, Any]:
        """The fields of Encoder."""
        eps = self.get("attention.layer_norm_epsilon")
        if not isinstance(eps, float) or not 0 <= eps < 1:
            raise self._bad("attention.layer_norm_epsilon", eps, "a small number")
        n_embd, n_head, n_layer, n_ff = self.count("embedding_length"), 1, 0, 0
        if type not in WITHOUT_BLOCKS:
            n_head, n_layer = self.count("attention.head_count"), self.count("block_count")
            n_ff = self.count("feed_forward_length")
        if n_embd % n_head:
            raise self._bad("attention.head_count", n_head, f"a divisor of the width {n_embd}")
        return {
            "type": type, "n_embd": n_embd, "n_ff": n_ff, "n_layer": n_layer, "n_head": n_head, "eps": eps,
            "n_embd_inp": self.width(type),
        }  # fmt: skip

    def type(self, known: tuple[str, ...]) -> str:
        """The type of the encoder's projector."""
        name = self.header.get("clip.projector_type") or self.get("projector_type")
        name = OMNI.get(str(name), {}).get(self.modality, name)
        if name not in known:
            what = "images" if self.modality == "vision" else "sound"
            raise WispError(
                f"Projectors of the type {str(name)[:60]!r} are not supported. Supported for {what}: "
                f"{', '.join(known)}.",
                "unsupported_projector",
            )
        return str(name)

    def width(self, type: str) -> int:
        """The width of the embeddings, deepstack included."""
        tensor, dimension = OUTPUTS[type]
        if type == "mlp" and YI_OUTPUT in self.header.tensors:
            tensor = YI_OUTPUT
        info = self.header.tensors.get(tensor)
        if info is None:
            raise WispError(f"The projector lacks the tensor {tensor}, which its type {type} needs.", "missing_tensor")
        if dimension >= len(info.shape):
            raise WispError(f"The projector's tensor {tensor} has the shape {info.shape}.", "bad_tensor_shape")
        return info.shape[dimension] * (1 + len(self.deepstack()))

    def deepstack(self) -> list[int]:
        """The blocks whose outputs are added to early layers of the text model."""
        marked = self.get("is_deepstack_layers", [])
        return [i for i, layer in enumerate(marked) if layer is True] if isinstance(marked, list) else []

    def _bad(self, key: str, value: object, what: str) -> WispError:
        return WispError(
            f"clip.{self.modality}.{key} is {value!r:.100} in the projector's metadata; it must be {what}.",
            "corrupt_header",
        )

    def bad_value(self, key: str, what: str) -> WispError:
        return self._bad(key, self.get(key), what)


def _vision(reader: _Reader) -> Vision:
    type = reader.type(VISION_TYPES)
    patch, size = reader.count("patch_size"), reader.count("image_size")
    if patch > size:
        raise reader.bad_value("patch_size", f"at most the picture's {size} pixels")
    merge = DEFAULT_MERGE.get(type, 1)
    if type in MERGE_KEYS:
        merge = reader.count(MERGE_KEYS[type], merge)
    if type == "minicpmv4_6" and merge not in (2, 4):
        raise reader.bad_value(MERGE_KEYS[type], "2 or 4")
    if type == "youtuvl" and (merge != 2 or patch % 8):
        raise reader.bad_value("patch_size", "a multiple of 8, with squares of 2 x 2 patches")
    low, high = (tokens * (patch * merge) ** 2 for tokens in TOKEN_LIMITS.get(type, (0, 0)))
    if type in SIZED_BY_FILE:
        low = reader.count("image_min_pixels", low or None)
        high = reader.count("image_max_pixels", high or None)
        if high < max(low, (patch * merge) ** 2):
            raise reader.bad_value("image_max_pixels", "at least those of a token, and at least image_min_pixels")
    if type == "gemma4uv":  # its patches are as large as tokens
        patch, merge = patch * merge, 1
    if type == "gemma3nv":
        if size not in MOBILE_SIZES:
            raise reader.bad_value("image_size", f"one of {', '.join(map(str, MOBILE_SIZES))}")
        patch = size // MOBILE_SIDE
    if type in SAM_TILES:  # whatever the metadata says
        size, patch, merge = SAM_SIDE, SAM_PATCH, SAM_MERGE
    if type == "yasa2":
        merge, left = divmod(size, patch * CONVNEXT_SIDE)
        if left:
            raise reader.bad_value("image_size", f"a multiple of {CONVNEXT_SIDE} patches of {patch} pixels")
    encoder, windowed = reader.encoder(type), None
    if type == "granite4_vision":
        windowed = _windowed(reader, size // patch, encoder["n_layer"])
        encoder["n_embd_inp"] *= len(windowed.features)
    return Vision(
        **encoder,
        image_size=size,
        patch_size=patch,
        merge=merge,
        mean=reader.numbers("image_mean", 3, -1e6),
        std=reader.numbers("image_std", 3, 1e-6),
        filter=_filter(reader, type),
        min_pixels=low,
        max_pixels=high,
        longest_edge=reader.count("preproc_image_size", size) if type in ("idefics3", "lightonocr") else 0,
        canvases=_canvases(reader, type, size),
        sam=_sam(reader, type) if type in SAM_TILES else None,
        windowed=windowed,
        tiles=_tiles(reader, 2, 6 if type == "deepseekocr2" else 9) if type in SAM_TILES else (0, 0),
        queries=_queries(reader) if type == "resampler" else 0,
        version=_version(reader) if type == "resampler" else 0,
        layout=WITH_LINE_BREAKS if "v.token_embd.img_break" in reader.header.tensors else LAYOUTS.get(type, PLAIN),
        merged_after=_merged_after(reader, encoder["n_layer"]) if type == "minicpmv4_6" and merge > 2 else -1,
    )


def _filter(reader: _Reader, kind: str) -> str:
    """The filter of the resampler. LFM2's files may name another."""
    usual = FILTERS.get(kind, BICUBIC)
    name = reader.get("image_resize_algo", usual) if kind == "lfm2" else usual
    if name not in (BILINEAR, BICUBIC, LANCZOS):
        raise reader.bad_value("image_resize_algo", "bilinear, bicubic or lanczos")
    return str(name)


def _canvases(reader: _Reader, kind: str, size: int) -> tuple[tuple[int, int], ...]:
    """The canvases that pictures are resized to before they are cut into tiles."""
    if kind == "internvl":
        low, high = _tiles(reader, 1, 12)
        sides = range(low, high + 1)
        return tuple((a * size, b * size) for a in sides for b in sides if a * b <= high)
    pinpoints = reader.get("image_grid_pinpoints") or []
    stacked = kind == "granite4_vision"
    if not stacked and (kind not in IN_TILES or not pinpoints):
        return ()
    if (
        not isinstance(pinpoints, list)
        or len(pinpoints) % 2
        or not all(type_of is int and 0 < n <= 1 << 14 for n in pinpoints if (type_of := n.__class__))
    ):
        raise reader.bad_value("image_grid_pinpoints", "a list of widths and heights")
    canvases = tuple(zip(pinpoints[::2], pinpoints[1::2], strict=True))
    if stacked and not (canvases and all(_is_tiled(canvas, size) for canvas in canvases)):
        raise reader.bad_value("image_grid_pinpoints", f"sizes of up to {MAX_TILES} tiles of {size} pixels a side")
    return canvases


def _is_tiled(canvas: tuple[int, int], side: int) -> bool:
    """Whether a canvas consists of tiles."""
    return not (canvas[0] % side or canvas[1] % side) and canvas[0] * canvas[1] <= MAX_TILES * side**2


def _tiles(reader: _Reader, low: int, high: int) -> tuple[int, int]:
    """How many tiles a picture has, at least and at most, and if the file does not say it."""
    low, high = reader.count("preproc_min_tiles", low), reader.count("preproc_max_tiles", high)
    if not low <= high <= MAX_TILES:
        raise reader.bad_value("preproc_max_tiles", f"at least preproc_min_tiles, and at most {MAX_TILES}")
    return low, high


def _windowed(reader: _Reader, patches: int, n_layer: int) -> Windowed:
    """`patches`: along the side of a tile."""
    side, queries = reader.count("projector.window_side", most=64), reader.count("projector.query_side", most=64)
    if patches % side:
        raise reader.bad_value("projector.window_side", f"a divisor of {patches} patches")
    if side % queries:
        raise reader.bad_value("projector.query_side", f"a divisor of {side} patches")
    features, offsets = reader.get("feature_layer"), reader.get("projector.spatial_offsets")
    if not _whole_numbers(features, 0, n_layer - 1) or not features:
        raise reader.bad_value("feature_layer", "numbers of blocks")
    most = 3 if side == 2 * queries else -1
    if not _whole_numbers(offsets, -1, most) or len(offsets) != len(features):
        raise reader.bad_value("projector.spatial_offsets", f"one for each feature layer, from -1 to {most}")
    return Windowed(patches, side, queries, tuple(features), tuple(offsets))


def _whole_numbers(values: object, low: int, high: int) -> bool:
    return isinstance(values, list) and all(type(n) is int and low <= n <= high for n in values)


def _sam(reader: _Reader, kind: str) -> Sam:
    n_embd, n_head = reader.count("sam.embedding_length"), reader.count("sam.head_count")
    if n_embd % (4 * n_head):
        raise reader.bad_value("sam.head_count", f"a divisor of a quarter of the width {n_embd}")
    heads = reader.count("attention.head_count")
    kv = reader.count("attention.head_count_kv") if kind == "deepseekocr2" else heads
    if heads % kv:
        raise reader.bad_value("attention.head_count_kv", f"a divisor of {heads} heads")
    window = reader.count("window_size", most=SAM_SIDE // SAM_PATCH)
    return Sam(n_embd, reader.count("sam.block_count", most=128), n_head, window, kv)


def _merged_after(reader: _Reader, n_layer: int) -> int:
    blocks = reader.get("wa_layer_indexes")
    if not isinstance(blocks, list) or not blocks or type(blocks[0]) is not int or not 0 <= blocks[0] < n_layer:
        raise reader.bad_value("wa_layer_indexes", "a list that begins with a block's number")
    return blocks[0]


def _version(reader: _Reader) -> int:
    """The version of MiniCPM-V: 2 is 2.5, 3 and later are 2.6 and later."""
    version = reader.header.get("clip.minicpmv_version", 2)
    if version not in (2, 3, 4, 5, 6, 100045):
        raise WispError(f"MiniCPM-V projectors of version {version!r:.20} are not supported.", "unsupported_projector")
    return int(version)


def _queries(reader: _Reader) -> int:
    """Tokens of every tile of MiniCPM-V. Older files leave them to the version."""
    found = reader.header.get("clip.minicpmv_query_num", 0)
    if type(found) is not int or found < 0:
        raise reader.bad_value("minicpmv_query_num", "a whole number")
    return found or (96 if _version(reader) == 2 else 64)


def _audio(reader: _Reader) -> Audio:
    type = reader.type(AUDIO_TYPES)
    stack = reader.count("projector.stack_factor") if type in STACKED else 1
    n_mel, seconds = reader.count("num_mel_bins"), MAX_SECONDS.get(type, 0)
    encoder, speech = reader.encoder(type), None
    if type == "granite_speech":
        if n_mel % 2:
            raise reader.bad_value("num_mel_bins", "those of two frames")
        speech = _speech(reader, encoder["n_embd"], encoder["n_layer"])
    return Audio(**encoder, n_mel=n_mel, stack=stack, max_seconds=seconds, speech=speech)


def _speech(reader: _Reader, n_embd: int, n_layer: int) -> Speech:
    found = {
        name: reader.count(key, most=most)
        for name, key, most in (
            ("block", "chunk_size", 4096), ("kernel", "conv_kernel_size", 31), ("positions", "max_pos_emb", 1 << 16),
            ("window", "projector.window_size", 256), ("heads", "projector.head_count", n_embd),
        )
    }  # fmt: skip
    rate, features = reader.count("projector.downsample_rate", most=found["window"]), reader.get("feature_layer", [])
    if found["positions"] < found["block"] - 1:
        raise reader.bad_value("max_pos_emb", f"the {found['block'] - 1} distances of a block, or more")
    if found["kernel"] % 2 == 0:
        raise reader.bad_value("conv_kernel_size", "odd")
    if n_embd % (4 * found["heads"]):
        raise reader.bad_value("projector.head_count", f"a divisor of a quarter of the width {n_embd}")
    if not _whole_numbers(features, 0, n_layer) or features != sorted(set(features)):
        raise reader.bad_value("feature_layer", "numbers of blocks, in order")
    return Speech(**found, queries=found["window"] // rate, features=tuple(features))
