"""What the header of a projector (an `mmproj` GGUF) says: its encoders, and how they take pictures and sound."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from math import prod

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.media.encoders import Audio, Coded, Sam, Speech, Vision, Windowed
from py_engine.media.kinds import (
    AUDIO_TYPES,
    BICUBIC,
    BILINEAR,
    CAUSAL_WIDTHS,
    FILTERS,
    FRAME_PAIRS,
    IN_TILES,
    LANCZOS,
    LFM2,
    LFM2_SOUND,
    LLAVA,
    MAX_SECONDS,
    NOT_CAUSAL,
    SAM_PATCH,
    SAM_SIDE,
    SAM_TILES,
    SECOND_FRAME,
    STACKED,
    TOKEN_SAMPLES,
    VISION_TYPES,
)
from py_engine.media.layout import LAYOUTS, PLAIN, WITH_LINE_BREAKS
from py_engine.media.picture_metadata import grid, longest_edge, pixel_limits
from py_engine.media.reader import Reader

ARCHITECTURE = "clip"  # general.architecture of every projector
MAX_TILES = 64  # of a picture
NEMO_BINS, NEMO_WINDOW = 257, 400  # frequencies, and samples of a window, of Parakeet's spectra
LFM2_KERNEL = 9  # rows of a convolution of lfm2a
MAX_CODEBOOKS, MAX_CODES = 256, 1 << 16
MAX_EXPERTS = 1024  # of a block
LLAMA4_TILES = 3  # along a side of a picture, at most


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
        reader = Reader(header)
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

    def reads_whole(self, n_embd: int) -> bool:
        """Whether a token of a picture sees all of it, in a text model of that width. As in mtmd, the type decides."""
        kind = self.vision.type if self.vision else ""
        return kind in NOT_CAUSAL and not (kind == "gemma4v" and n_embd in CAUSAL_WIDTHS)

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


def _vision(reader: Reader) -> Vision:
    type = reader.type(VISION_TYPES)
    size, patch, merge = grid(reader, type)
    low, high = pixel_limits(reader, type)
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
        longest_edge=longest_edge(reader, type, size),
        canvases=_canvases(reader, type, size),
        sam=_sam(reader, type) if type in SAM_TILES else None,
        windowed=windowed,
        tiles=_tiles(reader, 2, 6 if type == "deepseekocr2" else 9) if type in SAM_TILES else (0, 0),
        features=_features(reader, encoder["n_layer"], several=type == "mlp") if type in LLAVA else (),
        queries=_queries(reader) if type == "resampler" else 0,
        version=_version(reader) if type == "resampler" else 0,
        layout=WITH_LINE_BREAKS if "v.token_embd.img_break" in reader.header.tensors else LAYOUTS.get(type, PLAIN),
        merged_after=_merged_after(reader, encoder["n_layer"]) if type == "minicpmv4_6" and merge > 2 else -1,
        experts_used=reader.count("expert_used_count", most=MAX_EXPERTS) if type == "dots3note_v" else 0,
        pairs=type in FRAME_PAIRS and SECOND_FRAME in reader.header.tensors,
    )


def _filter(reader: Reader, kind: str) -> str:
    """The filter of the resampler. LFM2's files may name another."""
    usual = FILTERS.get(kind, BICUBIC)
    name = reader.get("image_resize_algo", usual) if kind in LFM2 else usual
    if name not in (BILINEAR, BICUBIC, LANCZOS):
        raise reader.bad_value("image_resize_algo", "bilinear, bicubic or lanczos")
    return str(name)


def _canvases(reader: Reader, kind: str, size: int) -> tuple[tuple[int, int], ...]:
    """The canvases that pictures are resized to before they are cut into tiles."""
    if kind == "internvl":
        low, high = _tiles(reader, 1, 12)
        sides = range(low, high + 1)
        return tuple((a * size, b * size) for a in sides for b in sides if a * b <= high)
    if kind == "cohere2v":
        counts = range(1, reader.count("preproc_max_tiles", most=MAX_TILES) + 1)
        return tuple((a * size, n // a * size) for n in counts for a in range(1, n + 1) if n % a == 0)
    if kind == "llama4":
        sides = range(1, LLAMA4_TILES + 1)
        return tuple((a * size, b * size) for a in sides for b in sides if a * b > 1)
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


def _tiles(reader: Reader, low: int, high: int) -> tuple[int, int]:
    """How many tiles a picture has, at least and at most, and if the file does not say it."""
    low, high = reader.count("preproc_min_tiles", low), reader.count("preproc_max_tiles", high)
    if not low <= high <= MAX_TILES:
        raise reader.bad_value("preproc_max_tiles", f"at least preproc_min_tiles, and at most {MAX_TILES}")
    return low, high


def _windowed(reader: Reader, patches: int, n_layer: int) -> Windowed:
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


def _features(reader: Reader, n_layer: int, *, several: bool) -> tuple[int, ...]:
    """After how many blocks LLaVA's projector reads rows, in order. Negative ones stand for none."""
    found = reader.get("feature_layer", [])
    if not _whole_numbers(found, -(1 << 31), n_layer):
        raise reader.bad_value("feature_layer", f"numbers of blocks, at most {n_layer}")
    features = tuple(sorted({after for after in found if after >= 0}))
    if len(features) > 1 and not several:
        raise reader.bad_value("feature_layer", "one number of blocks")
    return features


def _whole_numbers(values: object, low: int, high: int) -> bool:
    return isinstance(values, list) and all(type(n) is int and low <= n <= high for n in values)


def _sam(reader: Reader, kind: str) -> Sam:
    n_embd, n_head = reader.count("sam.embedding_length"), reader.count("sam.head_count")
    if n_embd % (4 * n_head):
        raise reader.bad_value("sam.head_count", f"a divisor of a quarter of the width {n_embd}")
    heads = reader.count("attention.head_count")
    kv = reader.count("attention.head_count_kv") if kind == "deepseekocr2" else heads
    if heads % kv:
        raise reader.bad_value("attention.head_count_kv", f"a divisor of {heads} heads")
    window = reader.count("window_size", most=SAM_SIDE // SAM_PATCH)
    return Sam(n_embd, reader.count("sam.block_count", most=128), n_head, window, kv)


def _merged_after(reader: Reader, n_layer: int) -> int:
    blocks = reader.get("wa_layer_indexes")
    if not isinstance(blocks, list) or not blocks or type(blocks[0]) is not int or not 0 <= blocks[0] < n_layer:
        raise reader.bad_value("wa_layer_indexes", "a list that begins with a block's number")
    return blocks[0]


def _version(reader: Reader) -> int:
    """The version of MiniCPM-V: 2 is 2.5, 3 and later are 2.6 and later."""
    version = reader.header.get("clip.minicpmv_version", 2)
    if version not in (2, 3, 4, 5, 6, 100045):
        raise WispError(f"MiniCPM-V projectors of version {version!r:.20} are not supported.", "unsupported_projector")
    return int(version)


def _queries(reader: Reader) -> int:
    """Tokens of every tile of MiniCPM-V. Older files leave them to the version."""
    found = reader.header.get("clip.minicpmv_query_num", 0)
    if type(found) is not int or found < 0:
        raise reader.bad_value("minicpmv_query_num", "a whole number")
    return found or (96 if _version(reader) == 2 else 64)


def _audio(reader: Reader) -> Audio:
    type = reader.type(AUDIO_TYPES)
    stack = reader.count("projector.stack_factor") if type in STACKED else 1
    if type == "mimo_audio":
        stack = reader.count("local_group_size")
    n_mel, seconds = reader.count("num_mel_bins"), MAX_SECONDS.get(type, 0)
    if type == "gemma4ua":  # whatever the metadata says
        n_mel = TOKEN_SAMPLES
    encoder, speech = reader.encoder(type), None
    if type == "granite_speech":
        if n_mel % 2:
            raise reader.bad_value("num_mel_bins", "those of two frames")
        speech = _speech(reader, encoder["n_embd"], encoder["n_layer"])
    kernel = _kernel(reader, type)
    coded = _coded(reader, encoder["n_layer"]) if type == "mimo_audio" else None
    return Audio(**encoder, n_mel=n_mel, stack=stack, max_seconds=seconds, speech=speech, kernel=kernel, coded=coded)


def _coded(reader: Reader, n_layer: int) -> Coded:
    codes, modes = reader.get("rvq.codebook_size"), reader.get("wa_pattern_mode")
    count, reach = reader.count("rvq.num_quantizers", most=MAX_CODEBOOKS), reader.count("window_size")
    if not _whole_numbers(codes, 1, MAX_CODES) or len(codes) != count:
        raise reader.bad_value("rvq.codebook_size", f"a list of {count} sizes")
    if not _whole_numbers(modes, -1, 1) or len(modes) != n_layer:
        raise reader.bad_value("wa_pattern_mode", f"-1 or 0 for each of {n_layer} blocks")
    reaches = tuple(-1 if mode == -1 else reach for mode in modes)
    return Coded(reaches, tuple(codes), reader.count("local_block_count", most=128))


def _kernel(reader: Reader, kind: str) -> int:
    """Rows of a FastConformer's convolutions; 0: it has none."""
    if kind != "parakeet":
        return LFM2_KERNEL if kind in LFM2_SOUND else 0
    if reader.count("subsampling_factor") != 8:
        raise reader.bad_value("subsampling_factor", "8")
    for name, size in (("a.mel_filters", reader.count("num_mel_bins") * NEMO_BINS), ("a.window", NEMO_WINDOW)):
        info = reader.header.tensors.get(name)
        if info is None or prod(info.shape) != size:
            raise WispError(f"The projector's tensor {name} is not of NeMo's spectra.", "bad_tensor_shape")
    kernel = reader.count("conv_kernel_size", most=31)
    if kernel % 2 == 0:
        raise reader.bad_value("conv_kernel_size", "odd")
    return kernel


def _speech(reader: Reader, n_embd: int, n_layer: int) -> Speech:
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
