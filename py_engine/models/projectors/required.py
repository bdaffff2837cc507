"""Tensors that projectors need, mostly biases: without one, pictures or sound would be encoded wrongly.

A matrix or a norm uses a bias if the file has one, so a missing bias would go unnoticed. The table has only what
llama.cpp's loader requires.
"""

from __future__ import annotations

from collections.abc import Iterable

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header

BLOCK = "blk.N."
SECOND = "dots3note_v dots_ocr exaone4_5 hunyuanvl ling3vl phi4 qwen2.5vl_merger qwen2vl_merger qwen3vl_merger youtuvl "
# names of tensors (N: of every block) -> the types of projectors that need them; biases only beside their weights
NEEDED: dict[str, str] = {
    "mm.0.bias": SECOND + "janus_pro",
    "mm.1.bias": "cohere2v d1omni_v janus_pro kimik25 kimivl lfm2 minimax_m3 paddleocr",
    "mm.2.bias": SECOND + "cohere2v d1omni_v kimik25 kimivl lfm2 minimax_m3 paddleocr",
    "mm.input_norm.bias": "dots3note_v dots_ocr kimik25 kimivl ling3vl paddleocr",
    "mm.merger.fc1.bias mm.merger.fc2.bias": "minimax_m3",
    "mm.model.fc.bias": "deepseekocr deepseekocr2 hunyuanvl",
    "mm.model.mb_block.1.block.0.1.bias mm.model.mb_block.2.block.0.1.bias": "ldp",
    "mm.model.mlp.0.bias mm.model.mlp.1.bias mm.model.mlp.3.bias": "internvl",
    "mm.patch_merger.bias": "glm4v glm5v",
    "mm.post_fc_norm.bias": "cogvlm",
    "adapter.linear.norm1.bias": "adapter",
    "resampler.ln_kv.bias resampler.ln_post.bias resampler.ln_q.bias resampler.pos_embed_k": "resampler",
    "v.patch_norm.1.bias v.patch_norm.1.weight v.patch_norm.2.bias v.patch_norm.3.bias": "gemma4uv",
    "v.sam.blk.N.mlp.lin1.bias v.sam.blk.N.post_ln.bias v.sam.blk.N.pre_ln.bias": "deepseekocr deepseekocr2",
    "v.sam.neck.1.bias v.sam.neck.3.bias": "deepseekocr deepseekocr2",
    "v.token_embd.img_break": "pixtral",
    "v.position_embd.weight": "step3vl",
    "v.vit_merger.ds_ln.bias v.vit_merger.ln1.bias": "minicpmv4_6",
    "v.proj_blk.N.cross_attn_norm.bias v.proj_blk.N.self_attn_norm.bias v.proj_blk.N.ffn_norm.bias "
    "v.proj_blk.N.ffn_up.bias v.proj_blk.N.norm.bias v.proj_blk.N.post_norm.bias": "granite4_vision",
    "a.proj_blk.N.cross_attn_norm.bias a.proj_blk.N.self_attn_norm.bias a.proj_blk.N.ffn_norm.bias "
    "a.proj_blk.N.ffn_up.bias a.proj_linear.bias a.proj_norm.bias": "granite_speech",
    "a.blk.N.conv_pw1.bias a.blk.N.conv_pw2.bias a.blk.N.ffn_up_1.bias "
    "a.blk.N.ffn_down_1.bias": "d1omni_a granite_speech lfm2a",
    "a.blk.N.ffn_norm.bias a.blk.N.ffn_norm_1.bias a.blk.N.norm_conv.bias": "d1omni_a granite_speech lfm2a parakeet",
    "a.blk.N.conv_dw.bias mm.a.mlp.0.bias": "d1omni_a lfm2a",
    "mm.a.mlp.4.bias mm.a.mlp.5.bias mm.a.mlp.6.bias": "d1omni_a",
    "a.blk.N.conv_norm_mean a.blk.N.ln1.weight a.blk.N.ln2.weight": "parakeet",
    "a.conv1d.1.bias a.conv1d.2.bias": "glma meralion mimo_audio musicflamingo qwen2a ultravox voxtral",
    "a.conv1d.3.bias a.conv1d.5.bias a.conv1d.6.bias a.pre_encode.out.bias": "d1omni_a lfm2a parakeet",
    "a.conv2d.1.bias a.conv2d.2.bias a.conv2d.3.bias": "dots3note_a qwen3a",
    "mm.a.fc.bias": "qwen2a",
    "mm.a.local_blk.N.attn_q.bias mm.a.local_blk.N.attn_k.bias mm.a.local_blk.N.attn_v.bias": "mimo_audio",
    "a.downsample.norm.bias mm.a.local_blk.N.ln1.weight mm.a.local_blk.N.ln2.weight": "mimo_audio",
    "mm.a.mlp.1.bias": "d1omni_a dots3note_a glma lfm2a musicflamingo qwen3a",
    "mm.a.mlp.2.bias": "glma musicflamingo qwen3a",
    "mm.a.mlp.3.bias": "d1omni_a dots3note_a lfm2a meralion",
    "mm.a.norm_pre.bias": "dots3note_a glma",
}


def check_tensors(header: Header, kinds: Iterable[str]) -> None:
    """Raise WispError missing_tensor if these types need a tensor that the file lacks."""
    kinds = set(kinds)
    for names, types in NEEDED.items():
        if found := kinds & set(types.split()):
            for tensor in (tensor for name in names.split() for tensor in _in_blocks(header, name)):
                if tensor not in header.tensors and _beside_its_weight(header, tensor):
                    raise WispError(
                        f"The file has no tensor {tensor}, which projectors of type {min(found)} need. Download the "
                        "file again, or use another conversion of the projector.",
                        "missing_tensor",
                    )


def _beside_its_weight(header: Header, tensor: str) -> bool:
    """Whether the weight that a bias belongs to is there: some files lack both. True for other tensors."""
    return not tensor.endswith(".bias") or tensor.removesuffix("bias") + "weight" in header.tensors


def _in_blocks(header: Header, name: str) -> list[str]:
    """The tensors of this name in every block."""
    before, found, after = name.partition(BLOCK)
    if not found:
        return [name]
    start = before + "blk."
    blocks = {tensor[len(start) :].partition(".")[0] for tensor in header.tensors if tensor.startswith(start)}
    return [f"{start}{block}.{after}" for block in sorted(blocks)]
