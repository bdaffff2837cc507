"""Encoders of pictures: patches, then transformer blocks, then one of heads.py's projectors.

The host orders patches by squares of `merge` x `merge`, row by row within a square, so that joining a square to a token
is a reshape. It feeds a class token as one more patch after the picture's, without pixels.
Source: siglip.cpp, llava.cpp, internvl.cpp, qwen2vl.cpp, qwen3vl.cpp, pixtral.cpp, gemma4v.cpp, gemma4uv.cpp,
glm4v.cpp, paddleocr.cpp, dotsocr.cpp, youtuvl.cpp, granite4-vision.cpp, kimivl.cpp, kimik25.cpp, ling3vl.cpp,
exaone4_5.cpp, nemotron-v2-vl.cpp, step3vl.cpp and llama4.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from dataclasses import replace

from py_engine.errors import WispError
from py_engine.media.kinds import FINE, QWEN_VL, SECOND_FRAME
from py_engine.models.projectors import (
    cogvlm,
    convnext,
    deepseek_ocr,
    granite_vision,
    mimovl,
    minimax_m3,
    mobilenet,
    sam_clip,
    squares,
    step,
)
from py_engine.models.projectors.block import Block, Norms
from py_engine.models.projectors.colours import byte_values, fractions
from py_engine.models.projectors.feature_layers import Joined
from py_engine.models.projectors.heads import EPS, HEADS, DeepStack
from py_engine.models.projectors.perceptrons import PERCEPTRONS
from py_engine.models.projectors.position_table import most_taps
from py_engine.models.projectors.stages import Stages
from py_engine.plan import products, rows
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.products import ADD, Product
from py_engine.plan.rope import Pairs

RMS_NORM = {"qwen2.5vl_merger", "pixtral", "lightonocr", "gemma4v", "glm4v", "glm5v", "dots_ocr", "exaone4_5", "mimovl"}
RMS_NORM |= {"dots3note_v"}
BLOCKS_PER_SUBMIT = 4  # a long submit would hold the GPU
ROTATED: dict[str, Pairs] = {  # the pairs that are rotated, by row and column of the patch
    **dict.fromkeys((*QWEN_VL, "glm4v", "paddleocr", "dots_ocr", "dots3note_v", "youtuvl"), Pairs.HALVES),
    **dict.fromkeys(("exaone4_5", "ling3vl", "glm5v", "minimax_m3"), Pairs.HALVES),
    **dict.fromkeys(("pixtral", "lightonocr", "kimivl", "kimik25", "llama4", "muse-glimmer"), Pairs.NEIGHBOURS),
    "step3vl": Pairs.NEIGHBOURS,
    "gemma4v": Pairs.IN_EACH_HALF,
}


OTHER_ENDS = {"cogvlm": cogvlm.build, "granite4_vision": granite_vision.build}
OTHER_ENDS |= {"mimovl": mimovl.build, "minimax_m3": minimax_m3.build, "step3vl": step.build}
ENDS = HEADS | PERCEPTRONS | OTHER_ENDS
BLOCKS = {"cogvlm": cogvlm.Block, "minimax_m3": minimax_m3.Block}  # with parts of their own
OTHERS = {
    "gemma3nv": mobilenet.build,
    "yasa2": convnext.build,
    "deepseekocr2": deepseek_ocr.build,
    "deepseekocr": sam_clip.build,
}  # of another kind


def build(s: Stages) -> EncoderPlan:
    """Append the encoder's stages."""
    tower, w = s.tower, s.w
    if tower.kind in OTHERS:
        return OTHERS[tower.kind](s)
    if tower.kind not in ENDS:
        raise WispError(
            f"The projector type {tower.kind!r} is not supported yet. Supported: {', '.join(ENDS)}.",
            "unsupported_architecture",
        )
    norms = Norms(s, tower.kind in RMS_NORM or _large_internvl(s), tower.eps)
    s.begin("patches", s.most)
    x = _patches(s, norms)
    if "v.pre_ln.weight" in w:
        x = norms.apply("v.pre_ln", x, "stream")
    x = mimovl.blocks(s, norms, x, tower.bands) if tower.bands else _blocks(s, norms, x)
    if "v.post_ln.weight" in w and not (tower.windowed or tower.bands):
        x = norms.apply("v.post_ln", x, "encoded")
    return ENDS[tower.kind](s, Joined(s).finish(x))


def _large_internvl(s: Stages) -> bool:
    """InternViT-6B has RMS norms."""
    return s.tower.kind == "internvl" and (s.tower.embedding_length, s.tower.block_count) == (3200, 45)


def _patches(s: Stages, norms: Norms) -> Buffer:
    """The patches times the convolution's kernel, normalised where the file has a norm, and positions: (n, n_embd)."""
    tower, w, ops = s.tower, s.w, s.ops
    n, pixels = tower.embedding_length, 3 * tower.patch**2
    fine = tower.kind in FINE
    bytes_ = s.words(
        "pixels", (1 + (fine or tower.pairs)) * s.most * -(-pixels // 4)
    )  # every picture begins with a word
    normalised, layer = "v.patch_norm.1.weight" in w, Norms(s, rms=False, eps=EPS)
    interleaved = tower.kind == "youtuvl"
    dtype = "f32" if normalised or interleaved else ops.input_dtype
    patches = rows.patches(ops, bytes_, s.taps("patches", 1), byte_values(s), tower.patch, dtype)
    if interleaved:  # its kernel has the colours of a pixel beside each other
        colours = replace(patches, shape=(3 * ops.batch, tower.patch**2))
        patches = rows.unfold(ops, colours, tower.patch**2, s.taps("colours", 3))
    if normalised:
        patches = layer.apply("v.patch_norm.1", patches, "pixels_norm", for_product=True, cols=pixels)
    x = ops.rows("x", n)
    bias, has_class = w.optional_vector(("v.patch_embd.bias", n)), "v.class_embd" in w
    kernel = w.matrix("v.patch_embd.weight", n, pixels)
    products.append(ops, Product(patches, kernel, x, None if has_class else bias))
    if SECOND_FRAME in w:  # a still picture is both frames
        if tower.pairs:
            patches = rows.patches(ops, bytes_, s.taps("second_frames", 1), byte_values(s), tower.patch, dtype)
        products.append(ops, Product(patches, w.matrix(SECOND_FRAME, n, pixels), x, epilogue=ADD))
    if fine:
        patches = rows.patches(ops, bytes_, s.taps("fractions", 1), fractions(s), tower.patch)
        products.append(ops, Product(patches, kernel, x, epilogue=ADD))
    if has_class:
        rows.gather(ops, _class_and_bias(s), n, s.taps("kinds", 1), x, add=True)
    if normalised:
        x = layer.apply("v.patch_norm.2", x, "patches_norm")
    if "v.norm_embd.weight" in w:
        x = norms.apply("v.norm_embd", x, "patches_norm")
    if tower.positions and "v.position_embd.weight" in w:
        table = w.matrix("v.position_embd.weight", tower.positions, n)
        rows.gather(ops, table, n, s.taps("positions", most_taps(tower)), x, add=True)
    if normalised:
        x = layer.apply("v.patch_norm.3", x, "places_norm")
    return x


def _class_and_bias(s: Stages) -> Weight:
    """What is added to each class token, row by row; in the row after them, what is added to a patch."""
    names = [name for name in ("v.class_embd", "v.patch_embd.bias") if name in s.w]
    return s.w.table(names, s.tower.embedding_length)


def _slices(s: Stages) -> DeepStack | granite_vision.Projectors | None:
    """What makes slices of the results from the outputs of some blocks."""
    if s.tower.windowed is not None:
        return granite_vision.Projectors(s, s.tower.windowed)
    return DeepStack(s) if s.tower.deepstack else None


def _blocks(s: Stages, norms: Norms, x: Buffer) -> Buffer:
    """Append the blocks; return the stream."""
    tower = s.tower
    if not tower.block_count:
        return x
    rope = s.rope(ROTATED[tower.kind]) if tower.kind in ROTATED else s.no_rope()
    cache, values = s.cache(), tower.kind == "gemma4v"
    scale = 1.0 if tower.kind == "gemma4v" else tower.head_dim**-0.5
    deep, block, joined = _slices(s), BLOCKS.get(tower.kind, Block), Joined(s)
    stage, table, most = "patches", "pictures", s.most
    for i in range(tower.blocks_used):
        joined.add(x, i)
        if i and i % BLOCKS_PER_SUBMIT == 0:
            s.begin(stage, most)
        first = len(s.ops.ops)
        block(s, norms, f"v.blk.{i}.", rope, cache, scale, values).add(x)
        windows = tower.window > 0 and i not in tower.whole
        s.segments(first, "windows" if windows else table)
        if i == tower.merged_after:
            x = squares.merge(s, Block(s, norms, squares.PREFIX, rope, cache, scale), x)
            stage = table = "quarters"
            most = s.ops.batch
        if deep and i in tower.deepstack:
            deep.add(x, i)
            s.begin("patches", s.most)
    return x
