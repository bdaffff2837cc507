"""Random projectors (`mmproj` files): metadata and tensor names as convert_hf_to_gguf.py writes them.

A type's function gets the file and its settings. Sizes are of small encoders: two or more blocks of 64 values.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.golden.make import random_d1omni, random_dots3note, random_mimo_audio, random_parakeet
from tests.golden.make.gguf_file import GgufFile

Settings = dict[str, Any]

CLIP = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
HALF = [0.5] * 3, [0.5] * 3

BASE: Settings = {"n_embd": 64, "n_ff": 96, "n_layer": 2, "n_head": 4, "patch": 14, "image": 56, "out": 64}


BOTH = ("nemotron_omni", "dots3note", "d1omni", "mimo")  # files with an encoder of pictures and one of sound


def build(kind: str, seed: int, **overrides: Any) -> GgufFile:
    """A projector's metadata and float32 tensors."""
    c = BASE | {"eps": 1e-6} | overrides
    file = GgufFile("clip", seed)
    if kind not in BOTH:
        file.add("clip.projector_type", kind)
    TYPES[kind](file, c)
    return file


def vision_keys(file: GgufFile, c: Settings, colours: tuple[list[float], list[float]], **more: Any) -> None:
    """The metadata of every encoder of pictures; `more`: of one type, without their common beginning."""
    file.add("clip.has_vision_encoder", True)
    lengths = {"projection_dim": c["out"], "image_size": c["image"], "patch_size": c["patch"]}
    lengths |= {"embedding_length": c["n_embd"], "feed_forward_length": c["n_ff"], "block_count": c["n_layer"]}
    for key, value in {**lengths, "attention.head_count": c["n_head"], **more}.items():
        file.add(f"clip.vision.{key}", value)
    file.add("clip.vision.attention.layer_norm_epsilon", c["eps"])
    file.add("clip.vision.image_mean", colours[0])
    file.add("clip.vision.image_std", colours[1])


def limits(c: Settings) -> dict[str, Any]:
    """The least and the most pixels of a picture."""
    token = (c["patch"] * c.get("merge", 2)) ** 2
    return {"image_min_pixels": 4 * token, "image_max_pixels": c.get("tokens", 36) * token}


def patches(file: GgufFile, c: Settings, *, film: bool = False, bias: bool = False) -> None:
    """The convolution that makes patches. `film`: one for each of two frames."""
    shape = c["n_embd"], 3, c["patch"], c["patch"]
    for name in ["v.patch_embd.weight", "v.patch_embd.weight.1"][: 1 + film]:
        file.matrix(name, *shape, std=1.2 / c["patch"])
    if bias:
        file.vector("v.patch_embd.bias", c["n_embd"], std=0.1)


def linear(file: GgufFile, name: str, out: int, cols: int, *, bias: bool = True, gain: float = 1.0) -> None:
    file.matrix(f"{name}.weight", out, cols, gain=gain)
    if bias:
        file.vector(f"{name}.bias", out, std=0.1)


def block(file: GgufFile, c: Settings, i: int, *, fused: bool = False, gate: bool = False, **has: Any) -> None:
    """A transformer block. `has`: norm_bias, bias (of attention), ffn_bias, network; by default, all but the first."""
    b, n, inner, head = f"v.blk.{i}.", c["n_embd"], c["n_ff"], c.get("head_dim", c["n_embd"] // c["n_head"])
    q, kv = c["n_head"] * head, c.get("n_kv", c["n_head"]) * head
    bias, ffn_bias = has.get("bias", True), has.get("ffn_bias", True)
    file.norm(b + "ln1", n, bias=has.get("norm_bias", False))
    if fused:
        linear(file, b + "attn_qkv", q + 2 * kv, n, bias=bias, gain=1.5)
    else:
        for name, size in (("q", q), ("k", kv), ("v", kv)):
            linear(file, f"{b}attn_{name}", size, n, bias=bias, gain=1.5)
    if "qk_norms" in c:  # of each head, or of all together
        for name, size in (("q", q), ("k", kv)):
            file.vector(f"{b}attn_{name}_norm.weight", head if c["qk_norms"][i] == "head" else size, mean=1.0)
    linear(file, b + "attn_out", n, q, bias=bias)
    file.norm(b + "ln2", n, bias=has.get("norm_bias", False))
    if not has.get("network", True):
        return
    for name in ["ffn_gate", "ffn_up"] if gate else ["ffn_up"]:
        linear(file, b + name, inner, n, bias=ffn_bias, gain=1.3)
    linear(file, b + "ffn_down", n, inner, bias=ffn_bias)


def table(file: GgufFile, *shape: int) -> None:
    """The table of positions."""
    file.vector("v.position_embd.weight", *shape, std=0.6)


def siglip(file: GgufFile, c: Settings) -> None:
    """SigLIP's encoder."""
    n = c["n_embd"]
    file.add("clip.use_gelu", True)
    patches(file, c, bias=True)
    table(file, (c["image"] // c["patch"]) ** 2, n)
    for i in range(c["n_layer"]):
        block(file, c, i, norm_bias=True)
    file.norm("v.post_ln", n, bias=True)


def ling3vl(file: GgufFile, c: Settings) -> None:
    """Qwen3-VL's encoder; a norm of patches, then two layers of squares."""
    vision_keys(file, c, HALF, spatial_merge_size=2)
    n = c["n_embd"]
    file.add("clip.use_gelu", True)
    patches(file, c, film=True, bias=True)
    table(file, (c["image"] // c["patch"]) ** 2, n)
    for i in range(c["n_layer"]):
        block(file, c, i, fused=True, norm_bias=True)
    file.norm("mm.input_norm", n, bias=True)
    linear(file, "mm.0", 4 * n, 4 * n)
    linear(file, "mm.2", c["out"], 4 * n, gain=1.4)


def nemotron_v2_vl(file: GgufFile, c: Settings) -> None:
    """Class tokens and registers before the patches; squared ReLU."""
    vision_keys(file, c, CLIP, **{"projector.scale_factor": 2})
    n, places = c["n_embd"], (c["image"] // c["patch"]) ** 2
    file.add("clip.use_gelu", True)
    patches(file, c)
    table(file, places, n)
    file.vector("v.class_embd", c["registers"], n, std=0.6)
    for i in range(c["n_layer"]):
        block(file, c, i, fused=True, norm_bias=True)
    file.vector("mm.model.mlp.0.weight", 4 * n, mean=1.0)
    linear(file, "mm.model.mlp.1", c["hidden"], 4 * n, bias=False)
    linear(file, "mm.model.mlp.3", c["out"], c["hidden"], bias=False, gain=1.4)


def llama4(file: GgufFile, c: Settings) -> None:
    """A class token after the patches, rotation by column and row, squares, three layers."""
    vision_keys(file, c, HALF, **{"projector.scale_factor": 2})
    n, places = c["n_embd"], (c["image"] // c["patch"]) ** 2
    file.add("clip.use_gelu", True)
    file.matrix("v.patch_embd.weight", n, 3 * c["patch"] ** 2, std=1.2 / c["patch"])
    file.vector("v.class_embd", n, std=0.6)
    table(file, places + 1, n)
    file.norm("v.pre_ln", n, bias=True)
    for i in range(c["n_layer"]):
        block(file, c, i, norm_bias=True)
    file.norm("v.post_ln", n, bias=True)
    linear(file, "mm.model.mlp.1", c["hidden"], 4 * n, bias=False, gain=1.4)
    linear(file, "mm.model.mlp.2", c["hidden"], c["hidden"], bias=False, gain=1.4)
    linear(file, "mm.model.fc", c["out"], c["hidden"], bias=False, gain=1.4)


def gemma3(file: GgufFile, c: Settings) -> None:
    """SigLIP's encoder, whose squares of four patches are averaged; the text model reads a picture without a mask."""
    vision_keys(file, c, HALF, **{"projector.scale_factor": 2})
    siglip(file, c)
    file.vector("mm.soft_emb_norm.weight", c["n_embd"], mean=1.0)
    file.matrix("mm.input_projection.weight", c["n_embd"], c["out"], gain=1.4)


def cohere2v(file: GgufFile, c: Settings) -> None:
    """SigLIP's encoder; squares, and two layers of which the first is gated; tiles."""
    vision_keys(file, c, HALF, **{"projector.scale_factor": 2, "preproc_max_tiles": c["tiles"]})
    siglip(file, c)
    linear(file, "mm.1", 2 * c["hidden"], 4 * c["n_embd"], gain=1.4)
    linear(file, "mm.2", c["out"], c["hidden"], gain=1.4)


def step3vl(file: GgufFile, c: Settings) -> None:
    """Rotation by column and row besides a table; two convolutions that halve a picture's sides."""
    more = {"projector.scale_factor": 4, "preproc_image_size": c["longest"]}
    vision_keys(file, c, CLIP, **more)
    n, mid, last = c["n_embd"], c["hidden"], c["hidden"] + 16
    patches(file, c)
    table(file, c["table"] ** 2, n)
    file.norm("v.pre_ln", n, bias=True)
    for i in range(c["n_layer"]):
        block(file, c, i, fused=True, norm_bias=True)
        for name in ("ls1", "ls2"):
            file.vector(f"v.blk.{i}.{name}.weight", n, mean=0.8, std=0.2)
    for name, out, cols in (("mm.0", mid, n), ("mm.1", last, mid)):
        file.matrix(f"{name}.weight", out, cols, 3, 3, std=0.4 / np.sqrt(cols))
        file.vector(f"{name}.bias", out, std=0.1)
    linear(file, "mm.model.fc", c["out"], last, bias=False, gain=1.4)


def kimik25(file: GgufFile, c: Settings) -> None:
    """Kimi-VL's encoder with a table of positions in three dimensions."""
    vision_keys(file, c, HALF, **{"projector.scale_factor": 2}, **(limits(c) if "tokens" in c else {}))
    n, side = c["n_embd"], c["image"] // c["patch"]
    file.add("clip.use_gelu", True)
    patches(file, c, bias=True)
    table(file, side, side, n)
    for i in range(c["n_layer"]):
        block(file, c, i, fused=True, norm_bias=True)
    file.norm("v.post_ln", n, bias=True)
    file.norm("mm.input_norm", n, bias=True)
    linear(file, "mm.1", 4 * n, 4 * n)
    linear(file, "mm.2", c["out"], 4 * n, gain=1.4)


def exaone4_5(file: GgufFile, c: Settings) -> None:
    """Qwen2.5-VL's encoder with fewer heads of keys than of queries."""
    more = {"attention.head_count_kv": c["n_kv"], "n_wa_pattern": c["period"]}
    vision_keys(file, c, CLIP, **more, **limits(c))
    n = c["n_embd"]
    file.add("clip.use_silu", True)
    patches(file, c, film=True)
    for i in range(c["n_layer"]):
        block(file, c, i, fused=True, gate=True)
    file.norm("v.post_ln", n)
    linear(file, "mm.0", 4 * n, 4 * n)
    linear(file, "mm.2", c["out"], 4 * n, gain=1.4)


def glm5v(file: GgufFile, c: Settings) -> None:
    """GLM-4V's encoder and projector, whose gated networks are clamped."""
    vision_keys(file, c, CLIP, spatial_merge_size=2, **limits(c), swiglu_clamp=c["clamp"])
    n, width = c["n_embd"], c["out"]
    file.add("clip.use_silu", True)
    patches(file, c, film=True, bias=True)
    for i in range(c["n_layer"]):
        block(file, c, i, fused=True, gate=True, bias=False, ffn_bias=False)
    file.norm("v.post_ln", n)
    file.matrix("mm.patch_merger.weight", width, n, 2, 2, std=0.5 / np.sqrt(n))
    file.vector("mm.patch_merger.bias", width, std=0.1)
    linear(file, "mm.model.fc", width, width, bias=False)
    file.norm("mm.post_norm", width, bias=True)
    for name in ("mm.up", "mm.gate"):
        linear(file, name, c["hidden"], width, bias=False, gain=1.5)
    linear(file, "mm.down", width, c["hidden"], bias=False, gain=1.4)


def mimovl(file: GgufFile, c: Settings) -> None:
    """Blocks with sinks that attend to near patches, in two orders; heads that do not fill a row."""
    more = {"attention.head_count_kv": c["n_kv"], "window_size": c["reach"], "wa_pattern_mode": c["modes"]}
    vision_keys(file, c, CLIP, **more, **limits(c))
    n = c["n_embd"]
    file.add("clip.use_silu", True)
    patches(file, c, film=True)
    for i, mode in enumerate(c["modes"]):
        block(file, c, i, fused=True, gate=True)
        if mode >= 0:
            file.vector(f"v.blk.{i}.attn_sinks", c["n_head"], mean=1.0, std=1.0)
    file.norm("v.post_ln", n, bias=True)
    linear(file, "mm.0", 4 * n, 4 * n, bias=False)
    linear(file, "mm.2", c["out"], 4 * n, bias=False, gain=1.4)


def minimax_m3(file: GgufFile, c: Settings) -> None:
    """Two layers of patches, then two of squares."""
    vision_keys(file, c, CLIP)
    n = c["n_embd"]
    patches(file, c, film=True)
    file.norm("v.pre_ln", n, bias=True)
    for i in range(c["n_layer"]):
        block(file, c, i, norm_bias=True)
    linear(file, "mm.1", c["hidden"], n, gain=1.4)
    linear(file, "mm.2", c["out"], c["hidden"], gain=1.4)
    linear(file, "mm.merger.fc1", c["hidden"], 4 * c["out"], gain=1.4)
    linear(file, "mm.merger.fc2", c["out"], c["hidden"], gain=1.4)


def muse_glimmer(file: GgufFile, c: Settings) -> None:
    """Windows as large as the table of positions, squares, three layers."""
    vision_keys(file, c, HALF)
    n = c["n_embd"]
    patches(file, c, bias=True)
    table(file, (c["image"] // c["patch"]) ** 2, n)
    file.norm("v.pre_ln", n, bias=True)
    for i in range(c["n_layer"]):
        block(file, c, i, fused=True, norm_bias=True)
    file.norm("v.post_ln", n, bias=True)
    linear(file, "mm.0", c["hidden"], 4 * n, bias=False, gain=1.4)
    linear(file, "mm.1", c["hidden"], c["hidden"], bias=False, gain=1.4)
    linear(file, "mm.2", c["out"], c["hidden"], bias=False, gain=1.4)


def mlp(file: GgufFile, c: Settings) -> None:
    """Granite Vision 3: SigLIP's encoder, whose projector reads the outputs of several blocks; tiles."""
    more = {"feature_layer": c["features"], "image_grid_pinpoints": c["canvases"]}
    vision_keys(file, c, HALF, **more)
    siglip(file, c)
    linear(file, "mm.0", c["hidden"], c["n_embd"] * len(c["features"]))
    linear(file, "mm.2", c["out"], c["hidden"], gain=1.4)


def nemotron_omni(file: GgufFile, c: Settings) -> None:
    """Nemotron's encoder of pictures, and Parakeet as that of sound."""
    file.add("clip.vision.projector_type", "nemotron_v2_vl")
    nemotron_v2_vl(file, c)
    file.add("clip.has_audio_encoder", True)
    file.add("clip.audio.projector_type", "parakeet")
    random_parakeet.add(file, c)


def dots3note(file: GgufFile, c: Settings) -> None:
    """dots.ocr's encoder of pictures with more experts in later blocks, and an encoder of sound."""
    file.add("clip.vision.projector_type", "dots3note_v")
    vision_keys(file, c, CLIP, spatial_merge_size=2, expert_used_count=c["used"], **limits(c))
    n = c["n_embd"]
    file.add("clip.use_silu", True)
    patches(file, c, bias=True)
    for i, count in enumerate(c["experts"]):
        block(file, c, i, fused=True, gate=True, network=count == 0, bias=False, ffn_bias=False)
        if count:
            random_dots3note.experts(file, f"v.blk.{i}.", count, n, 48, bias=count > 3)
    file.norm("mm.post_norm", n)
    file.norm("mm.input_norm", n, bias=True)
    linear(file, "mm.0", 4 * n, 4 * n)
    linear(file, "mm.2", c["out"], 4 * n, gain=1.4)
    file.add("clip.has_audio_encoder", True)
    file.add("clip.audio.projector_type", "dots3note_a")
    random_dots3note.add_sound(file, c)


def d1omni(file: GgufFile, c: Settings) -> None:
    """LFM2-VL's encoder of pictures, and an encoder of sound."""
    file.add("clip.vision.projector_type", "d1omni_v")
    vision_keys(file, c, HALF, **{"projector.scale_factor": 2})
    siglip(file, c)
    linear(file, "mm.1", c["hidden"], 4 * c["n_embd"])
    linear(file, "mm.2", c["out"], c["hidden"], gain=1.4)
    file.add("clip.has_audio_encoder", True)
    file.add("clip.audio.projector_type", "d1omni_a")
    random_d1omni.add(file, c)


def mimo(file: GgufFile, c: Settings) -> None:
    """MiMo-VL's encoder of pictures, and encoders of sound."""
    file.add("clip.vision.projector_type", "mimovl")
    mimovl(file, c)
    file.add("clip.has_audio_encoder", True)
    file.add("clip.audio.projector_type", "mimo_audio")
    random_mimo_audio.add(file, c)


TYPES: dict[str, Callable[[GgufFile, Settings], None]] = {
    "ling3vl": ling3vl,
    "nemotron_v2_vl": nemotron_v2_vl,
    "llama4": llama4,
    "cohere2v": cohere2v,
    "step3vl": step3vl,
    "kimik25": kimik25,
    "exaone4_5": exaone4_5,
    "glm5v": glm5v,
    "mimovl": mimovl,
    "minimax_m3": minimax_m3,
    "muse-glimmer": muse_glimmer,
    "nemotron_omni": nemotron_omni,
    "dots3note": dots3note,
    "mimo": mimo,
    "d1omni": d1omni,
    "mlp": mlp,
    "gemma3": gemma3,
}
# The tensor whose rows are an embedding's values.
OUTPUTS = {
    **dict.fromkeys(("ling3vl", "kimik25", "exaone4_5", "mimovl", "muse-glimmer", "mlp", "cohere2v"), "mm.2.weight"),
    "nemotron_v2_vl": "mm.model.mlp.3.weight",
    **dict.fromkeys(("llama4", "step3vl"), "mm.model.fc.weight"),
    "gemma3": "mm.input_projection.weight",
    "glm5v": "mm.down.weight",
    "minimax_m3": "mm.merger.fc2.weight",
}
