"""The types of projectors, and what the type alone says: limits, filters, names of keys and of tensors."""

from __future__ import annotations

BILINEAR, BICUBIC, LANCZOS = "bilinear", "bicubic", "lanczos"  # filters of Pillow's resampler

VISION_TYPES = (
    "idefics3", "gemma3", "gemma4v", "mlp", "ldp", "ldpv2", "internvl", "lfm2", "pixtral", "lightonocr",
    "qwen2vl_merger", "qwen2.5vl_merger", "qwen3vl_merger", "resampler", "glm4v", "paddleocr", "dots_ocr", "kimivl",
    "janus_pro", "phi4", "minicpmv4_6", "hunyuanvl", "gemma4uv", "gemma3nv", "adapter",
    "youtuvl", "yasa2", "deepseekocr", "deepseekocr2", "granite4_vision", "cogvlm", "ling3vl", "nemotron_v2_vl",
    "llama4", "kimik25", "exaone4_5", "glm5v", "mimovl", "minimax_m3",
    "muse-glimmer", "cohere2v", "step3vl", "dots3note_v", "d1omni_v",
)  # fmt: skip
AUDIO_TYPES = (
    "ultravox", "voxtral", "qwen2a", "glma", "musicflamingo", "qwen3a", "gemma4a", "gemma4ua", "lfm2a",
    "granite_speech", "meralion", "parakeet", "dots3note_a", "d1omni_a", "mimo_audio",
)  # fmt: skip
# A patch or a frame is projected as it is; gemma3nv and yasa2 are made of convolutions.
WITHOUT_BLOCKS = ("gemma4uv", "gemma4ua", "gemma3nv", "yasa2")
MOBILE_SIDE = 16  # tokens along a side of gemma3nv's pictures, whatever their size
MOBILE_SIZES = (256, 512, 768)  # pixels of a side that gemma3nv's places can be averaged from
SAM_SIDE = 1024  # pixels of a side of an overview of the types that have Segment Anything's encoder
SAM_TILES = {"deepseekocr": 640, "deepseekocr2": 768}  # of a tile
SAM_PATCH, SAM_MERGE = 16, 4  # pixels of a patch's side, patches of a token's
CONVNEXT_SIDE = 8  # tokens along a side of yasa2's pictures, whatever their size
WHISPER = ("ultravox", "voxtral", "qwen2a", "glma", "musicflamingo", "meralion")  # types that have Whisper's encoder

FINE = ("step3vl",)  # types whose resized pixels are finer than bytes: pictures have their 256ths, too
STEP_TILE = 504  # pixels of a side of step3vl's tiles
STEP_LONGEST = 3024  # pixels that a side of step3vl's pictures has at most, if the file does not say it
LFM2, LFM2_SOUND = ("lfm2", "d1omni_v"), ("lfm2a", "d1omni_a")  # types that have LFM2-VL's, LFM2-Audio's encoder
LLAVA = ("mlp", "ldp", "ldpv2")  # types that have LLaVA's encoder, without its last block
IN_TILES = (*LLAVA, "cogvlm")  # types whose files may list canvases to cut tiles from
MOBILE_VLM = ("ldp", "ldpv2")  # types whose tokens are squares of four patches, made by convolutions
STACKED = ("ultravox", "voxtral", "glma", "meralion")  # types whose files say how many frames become a token
QWEN_VL = ("qwen2vl_merger", "qwen2.5vl_merger", "qwen3vl_merger")
FRAME_PAIRS = (*QWEN_VL, "ling3vl")  # types that read two frames of a video as one picture
SECOND_FRAME = "v.patch_embd.weight.1"  # the kernel of the second frame's patches
ON_GRIDS = ("exaone4_5", "ling3vl", "glm5v", "mimovl", "muse-glimmer")
# Types whose tokens are squares of 2 x 2 patches, whatever the file says.
IN_FOURS = (*ON_GRIDS, "minimax_m3")
# Types that are made for text models whose positions have axes.
MROPE = (*QWEN_VL, *ON_GRIDS, "glm4v", "paddleocr", "hunyuanvl")
# Types whose tokens have rows and columns for such a model. Those of others are one row, as in llama.cpp.
IN_ROWS = (*MROPE, "youtuvl")
# Older files name both encoders of Qwen2.5-Omni alike.
OMNI = {"qwen2.5o": {"vision": "qwen2.5vl_merger", "audio": "qwen2a"}}

# Types whose tokens of a picture see all of it, and the widths of gemma4v's text models that were trained without that.
NOT_CAUSAL = ("gemma3", "gemma4v", "gemma4uv")
CAUSAL_WIDTHS = (1536, 2560)

# Tokens of a picture, at least and at most, where its size is free and the file does not state them. From llama.cpp.
TOKEN_LIMITS = {
    "pixtral": (8, 1024), "kimivl": (8, 1024), "gemma4v": (70, 1120), "gemma4uv": (70, 1120),
    **dict.fromkeys(LFM2, (64, 256)),
    **dict.fromkeys((*QWEN_VL, "glm4v", "ling3vl"), (8, 4096)), "kimik25": (2, 4096), "minimax_m3": (8, 576),
    "muse-glimmer": (1, 4096), "hunyuanvl": (256, 16384),
    "youtuvl": (1, 62500),
}  # fmt: skip
# Types whose files state these limits, in pixels, or may.
SIZED_BY_FILE = (
    *QWEN_VL,
    "ling3vl",
    "hunyuanvl",
    "paddleocr",
    "dots_ocr",
    "dots3note_v",
    "phi4",
    "kimik25",
    "exaone4_5",
    "glm5v",
    "mimovl",
)
DEFAULT_MERGE = {
    **{"gemma3": 4, "gemma4v": 3, "gemma4uv": 3, "minicpmv4_6": 4, "step3vl": 4},
    **dict.fromkeys((*MROPE, *IN_FOURS, "dots_ocr", "dots3note_v", "kimivl", "adapter", "youtuvl"), 2),
}
MERGE_KEYS = {
    **dict.fromkeys(
        ("idefics3", "gemma3", "gemma4v", "gemma4uv", "internvl", *LFM2, "dots_ocr", "kimivl", "minicpmv4_6"),
        "projector.scale_factor",
    ),
    **dict.fromkeys(("kimik25", "llama4", "nemotron_v2_vl", "cohere2v", "step3vl"), "projector.scale_factor"),
    **dict.fromkeys(
        ("pixtral", "lightonocr", "glm4v", "hunyuanvl", "youtuvl", "dots3note_v", *IN_FOURS, *QWEN_VL),
        "spatial_merge_size",
    ),
}
DOTS = ("dots_ocr", "dots3note_v")
GROUPED = ("exaone4_5", "mimovl")  # types that have fewer heads of keys than of queries
RATE = 16000  # samples of sound a second
RATES = {"mimo_audio": 24000}  # of types with another rate
POOLED = ("qwen2a", "voxtral", "musicflamingo")  # types that average two frames after Whisper's blocks
MAX_SECONDS = {
    "lfm2a": 60,
    "granite_speech": 120,
    "parakeet": 81,  # as long as the convolutions over its 128 bins fit one dispatch
    "gemma4ua": 300,
    "mimo_audio": 120,
}  # of a clip that is encoded as one; other types cut clips into pieces
D1OMNI_SECONDS = 30  # of a clip that d1omni_a reads; what follows is dropped
TOKEN_SAMPLES = 640  # of a token of gemma4ua, which takes them as they are
FILTERS = {
    "gemma3": BILINEAR,
    "gemma3nv": BILINEAR,
    **dict.fromkeys(LFM2, BILINEAR),
    "phi4": BILINEAR,
    "youtuvl": BILINEAR,
    "step3vl": BILINEAR,
    "idefics3": LANCZOS,
    "hunyuanvl": LANCZOS,
    "muse-glimmer": LANCZOS,
}  # others: bicubic

# The tensor whose dimension is the width of the embeddings, and which dimension. The last that the file has counts.
OUTPUTS: dict[str, tuple[str, int]] = {
    **dict.fromkeys(
        ("mlp", "pixtral", "lightonocr", *LFM2, "paddleocr", "dots_ocr", "kimivl", "phi4", "youtuvl", *QWEN_VL),
        ("mm.2.weight", 1),
    ),
    **dict.fromkeys(("kimik25", "ling3vl", "exaone4_5", "mimovl", "muse-glimmer", "cohere2v"), ("mm.2.weight", 1)),
    "dots3note_v": ("mm.2.weight", 1),
    "yasa2": ("mm.2.weight", 1),
    "janus_pro": ("mm.1.weight", 1),
    "adapter": ("adapter.linear.dense_4h_to_h.weight", 1),
    "hunyuanvl": ("mm.model.fc.weight", 1),
    **dict.fromkeys(SAM_TILES, ("mm.model.fc.weight", 1)),
    "granite4_vision": ("v.proj_blk.0.linear.weight", 1),
    **dict.fromkeys(("glm4v", "glm5v", "minicpmv4_6", "cogvlm"), ("mm.down.weight", 1)),
    **dict.fromkeys(("idefics3", "llama4", "step3vl"), ("mm.model.fc.weight", 1)),
    "minimax_m3": ("mm.merger.fc2.weight", 1),
    "gemma3": ("mm.input_projection.weight", 0),
    **dict.fromkeys(("gemma4v", "gemma4uv", "gemma3nv"), ("mm.input_projection.weight", 1)),
    "ldp": ("mm.model.mb_block.2.block.2.1.bias", 0),
    "ldpv2": ("mm.model.mlp.2.weight", 1),
    **dict.fromkeys(("internvl", "nemotron_v2_vl"), ("mm.model.mlp.3.weight", 1)),
    "resampler": ("resampler.proj.weight", 0),
    **dict.fromkeys(("ultravox", "voxtral", "glma", "musicflamingo", "qwen3a", "parakeet"), ("mm.a.mlp.2.weight", 1)),
    "mimo_audio": ("mm.a.mlp.2.weight", 1),
    **dict.fromkeys((*LFM2_SOUND, "meralion", "dots3note_a"), ("mm.a.mlp.3.weight", 1)),
    "qwen2a": ("mm.a.fc.weight", 1),
    **dict.fromkeys(("gemma4a", "gemma4ua"), ("mm.a.input_projection.weight", 1)),
    "granite_speech": ("a.proj_linear.weight", 1),
}
YI_OUTPUT = "mm.3.weight"  # of "mlp" in the files of Yi-VL
