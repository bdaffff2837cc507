"""Headers of projectors that are damaged or lack something: refused with an error that names its reason."""

import random
from dataclasses import replace
from typing import Any

import pytest

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.media.projector import Projector
from py_engine.plan.kernels import Device
from py_engine.planner import PlanOptions, make_plan
from tests.support.media import VISION, header_of
from tests.support.projector_headers import refusal


@pytest.mark.parametrize(
    ("metadata", "without", "code"),
    [
        ({"clip.vision.image_mean": [0.5] * 3}, "none", "unsupported_architecture"),  # of the places beside a picture
        ({}, "v.blk.0.0.conv_exp.weight", "unsupported_architecture"),  # a stage without a stride
        ({}, "v.blk.1.0.dw_mid.conv.weight", "unsupported_architecture"),
        ({}, "v.blk.3.1.norm.weight", "missing_tensor"),
        ({}, "v.msfa.norm.weight", "missing_tensor"),
    ],
)
def test_bad_headers_of_gemma_3n_are_refused(metadata: dict[str, Any], without: str, code: str) -> None:
    assert refusal("gemma3nv", metadata, without) == code


@pytest.mark.parametrize(
    ("metadata", "without", "code"),
    [
        ({"clip.audio.chunk_size": 22}, "none", "unsupported_architecture"),  # no whole groups of queries
        ({"clip.audio.max_pos_emb": 25}, "none", "bad_tensor_shape"),
        ({}, "a.blk.1.conv_norm.weight", "missing_tensor"),
        ({}, "a.enc_ctc_out.weight", "missing_tensor"),
        ({}, "a.proj_query", "missing_tensor"),
    ],
)
def test_bad_headers_of_granite_speech_are_refused(metadata: dict[str, Any], without: str, code: str) -> None:
    assert refusal("granite_speech", metadata, without) == code


def test_an_encoder_has_one_activation() -> None:
    assert refusal("mlp", {"clip.use_gelu": True, "clip.use_silu": True}, "none") == "corrupt_header"


@pytest.mark.parametrize(("name", "norm"), [("glm4v", "ln1"), ("pixtral", "ln2")])
def test_rms_norms_may_have_biases(name: str, norm: str) -> None:
    """As llama.cpp's graphs have them, in every block."""
    header = header_of(VISION / f"{name}.mmproj.gguf")
    bias = f"v.blk.1.{norm}.bias"
    added = {bias: replace(header.tensors[f"v.blk.1.{norm}.weight"], name=bias)}
    plan = make_plan(replace(header, tensors=header.tensors | added), Device(), PlanOptions(1, 1, "f16"))
    norms = [op for op in plan.lists["image.0"] if op.kernel == "norm" and not op.params["MEAN"]]
    found = [op for op in norms if op.params["BIAS"]]
    assert len(norms) > 2
    assert [getattr(op.bindings["bias"], "name", "") for op in found] == [bias]
    assert getattr(found[0].bindings["norm"], "name", "") == bias.replace("bias", "weight")


@pytest.mark.parametrize(("name", "has"), [("mlp", False), ("qwen2vl", False), ("gemma3", True), ("internvl", True)])
@pytest.mark.parametrize("added", [["attn_q_norm", "attn_k_norm"], ["ls1", "ls2"]])
def test_norms_and_scales_where_the_types_blocks_have_them(name: str, has: bool, added: list[str]) -> None:
    """As in llama.cpp, whose graphs of some types leave them out."""
    header = header_of(VISION / f"{name}.mmproj.gguf")
    tensors = [f"v.blk.0.{tensor}.weight" for tensor in added]
    more = {tensor: replace(header.tensors["v.blk.0.ln1.weight"], name=tensor) for tensor in tensors}
    plan = make_plan(replace(header, tensors=header.tensors | more), Device(), PlanOptions(1, 1, "f16"))
    read = {tensor for weight in plan.weights.values() for tensor, *_ in weight.sources}
    assert read.intersection(tensors) == (set(tensors) if has else set())


def test_the_blocks_of_deepstack_are_those_with_tensors() -> None:
    """llama.cpp does not read the list in the metadata, and no tensors beyond the blocks."""
    header = header_of(VISION / "qwen3vl.mmproj.gguf")
    wanted = Projector.from_gguf(header).n_embd_inp
    without = {key: value for key, value in header.metadata.items() if key != "clip.vision.is_deepstack_layers"}
    beyond = "v.deepstack.99.fc1.weight"
    more = {beyond: replace(header.tensors["v.blk.0.ln1.weight"], name=beyond)}
    other = replace(header, metadata=without, tensors=header.tensors | more)
    assert Projector.from_gguf(other).n_embd_inp == wanted
    plans = [make_plan(one, Device(), PlanOptions(1, 1, "f16")) for one in (header, other)]
    assert plans[0].lists["image.0"] == plans[1].lists["image.0"]


def test_tokens_of_gemma_4_12bs_sound_have_one_length() -> None:
    header = header_of(VISION / "gemma4u.mmproj.gguf")
    other = replace(header, metadata=header.metadata | {"clip.audio.num_mel_bins": 128})
    assert Projector.from_gguf(other).need_audio().n_mel == 640


@pytest.mark.parametrize("limit", ["input_max", "input_min", "output_max", "output_min"])
def test_a_matrix_of_gemma_4_has_all_four_limits_or_none(limit: str) -> None:
    assert refusal("gemma4", {}, f"v.blk.0.ffn_up.{limit}") == "missing_tensor"


def test_bad_headers_of_mobile_vlm_2_are_refused() -> None:
    assert refusal("ldpv2", {}, "mm.model.peg.0.weight") == "missing_tensor"
    assert refusal("ldpv2", {}, "mm.model.mlp.0.bias") == "missing_tensor"


@pytest.mark.parametrize("without", ["adapter.conv.bias", "adapter.linear.norm1.weight", "adapter.boi"])
def test_bad_headers_of_glm_edge_are_refused(without: str) -> None:
    assert refusal("adapter", {}, without) == "missing_tensor"


@pytest.mark.parametrize(
    "without", ["v.class_embd", "v.blk.1.attn_out.bias", "v.blk.0.ffn_down.weight", "mm.post_fc_norm.weight", "v.eoi"]
)
def test_bad_headers_of_cogvlm_are_refused(without: str) -> None:
    assert refusal("cogvlm", {}, without) == "missing_tensor"


@pytest.mark.parametrize("without", ["mm.0.bias", "mm.1.weight", "mm.4.bias"])
def test_bad_headers_of_yi_vl_are_refused(without: str) -> None:
    assert refusal("mlp.norm", {}, without) == "missing_tensor"


@pytest.mark.parametrize(
    ("metadata", "without", "code"),
    [
        ({"clip.vision.window_size": 15}, "none", "corrupt_header"),  # less than a token
        ({"clip.vision.wa_layer_indexes": [3]}, "none", "corrupt_header"),
        ({"clip.vision.wa_layer_indexes": None}, "none", "corrupt_header"),
        ({"clip.vision.spatial_merge_size": 4}, "none", "corrupt_header"),
        ({"clip.vision.patch_size": 10}, "none", "corrupt_header"),
        ({}, "mm.input_norm.weight", "missing_tensor"),
    ],
)
def test_bad_headers_of_youtu_vl_are_refused(metadata: dict[str, Any], without: str, code: str) -> None:
    assert refusal("youtuvl", metadata, without) == code


@pytest.mark.parametrize(
    "without", ["mm.a.norm_pre.weight", "mm.a.mlp.0.weight", "mm.a.mlp.1.bias", "mm.a.mlp.2.weight"]
)
def test_bad_headers_of_meralion_are_refused(without: str) -> None:
    assert refusal("meralion", {}, without) == "missing_tensor"


@pytest.mark.parametrize(
    ("metadata", "without", "code"),
    [
        ({"clip.vision.image_size": 120}, "none", "corrupt_header"),  # no whole patches for each token
        ({"clip.vision.image_size": 96}, "none", "unsupported_architecture"),  # 12 x 12 places for 8 x 8 tokens
        ({"clip.vision.image_size": 1024}, "none", "unsupported_architecture"),  # more rows than a dispatch has
        ({}, "v.stage.0.blk.0.dw.weight", "unsupported_architecture"),
        ({}, "v.stage.1.down.conv.weight", "missing_tensor"),
        ({}, "v.stage.1.blk.1.grn.bias", "missing_tensor"),
        ({}, "v.patch_ln.weight", "missing_tensor"),
    ],
)
def test_bad_headers_of_reka_edge_are_refused(metadata: dict[str, Any], without: str, code: str) -> None:
    assert refusal("yasa2", metadata, without) == code


@pytest.mark.parametrize(
    ("metadata", "without", "code"),
    [
        ({"clip.vision.sam.head_count": 3}, "none", "corrupt_header"),
        ({"clip.vision.window_size": 65}, "none", "corrupt_header"),  # more patches than a side has
        ({"clip.vision.attention.head_count_kv": 2}, "none", "corrupt_header"),  # of three heads
        ({"clip.vision.preproc_max_tiles": 1}, "none", "corrupt_header"),
        ({"clip.vision.embedding_length": 48}, "none", "bad_tensor_shape"),
        ({}, "v.sam.blk.2.attn.pos_w.weight", "missing_tensor"),
        ({}, "v.resample_query_768.weight", "missing_tensor"),
        ({}, "v.view_seperator", "missing_tensor"),
    ],
)
def test_bad_headers_of_deepseek_ocr_are_refused(metadata: dict[str, Any], without: str, code: str) -> None:
    assert refusal("deepseekocr2", metadata, without) == code


@pytest.mark.parametrize(
    ("metadata", "without", "code"),
    [
        ({"clip.vision.sam.head_count": 3}, "none", "corrupt_header"),
        ({"clip.vision.embedding_length": 48}, "none", "bad_tensor_shape"),
        ({}, "v.position_embd.weight", "unsupported_architecture"),
        ({}, "v.class_embd", "missing_tensor"),
        ({}, "v.image_newline", "missing_tensor"),
        ({}, "v.view_seperator", "missing_tensor"),
    ],
)
def test_bad_headers_of_the_first_deepseek_ocr_are_refused(metadata: dict[str, Any], without: str, code: str) -> None:
    assert refusal("deepseekocr", metadata, without) == code


@pytest.mark.parametrize(
    ("metadata", "without", "code"),
    [
        ({"clip.vision.projector.window_side": 3}, "none", "corrupt_header"),  # of eight patches
        ({"clip.vision.projector.query_side": 3}, "none", "corrupt_header"),
        (
            {"clip.vision.projector.query_side": 1},
            "none",
            "corrupt_header",
        ),  # squares that are not 2 x 2 have no corners
        ({"clip.vision.feature_layer": [0, 1, 2]}, "none", "corrupt_header"),  # more than the last block's
        ({"clip.vision.feature_layer": []}, "none", "corrupt_header"),
        ({"clip.vision.projector.spatial_offsets": [-1, 4, 2]}, "none", "corrupt_header"),
        ({"clip.vision.projector.spatial_offsets": [-1, 1]}, "none", "corrupt_header"),
        ({"clip.vision.image_grid_pinpoints": []}, "none", "corrupt_header"),
        ({}, "v.position_embd.weight", "bad_tensor_shape"),
        ({"clip.vision.image_grid_pinpoints": [48, 72]}, "none", "corrupt_header"),  # no whole tiles
        ({"clip.vision.image_grid_pinpoints": [48, 65 * 48]}, "none", "corrupt_header"),
        ({"clip.vision.embedding_length": 48}, "none", "bad_tensor_shape"),
        ({}, "v.proj_blk.2.img_pos", "missing_tensor"),
        ({}, "v.proj_blk.0.linear.weight", "missing_tensor"),
        ({}, "v.image_newline", "missing_tensor"),
    ],
)
def test_bad_headers_of_granite_vision_are_refused(metadata: dict[str, Any], without: str, code: str) -> None:
    assert refusal("granite4_vision", metadata, without) == code


@pytest.mark.parametrize(
    ("name", "metadata", "without", "code"),
    [
        ("ling3vl", {"clip.vision.spatial_merge_size": 4}, "none", "corrupt_header"),
        ("ling3vl", {}, "mm.input_norm.weight", "missing_tensor"),
        ("nemotron_v2_vl", {}, "mm.model.mlp.0.weight", "missing_tensor"),
        ("nemotron_v2_vl", {}, "v.class_embd", "missing_tensor"),
        ("llama4", {}, "mm.model.mlp.2.weight", "missing_tensor"),
        ("llama4", {}, "v.class_embd", "missing_tensor"),
        ("kimik25", {}, "mm.input_norm.weight", "missing_tensor"),
        ("mlp.features", {"clip.vision.feature_layer": [0, 5]}, "none", "corrupt_header"),
        ("mlp.features", {"clip.vision.feature_layer": [0, 1]}, "none", "bad_tensor_shape"),
        ("ldp", {"clip.vision.feature_layer": [0, 1]}, "none", "corrupt_header"),
        ("kimik25.limits", {"clip.vision.image_max_pixels": 1}, "none", "corrupt_header"),
        ("exaone4_5", {"clip.vision.attention.head_count_kv": 3}, "none", "corrupt_header"),  # of four heads
        ("exaone4_5", {"clip.vision.attention.head_count_kv": None}, "none", "missing_metadata"),
        ("exaone4_5", {"clip.vision.attention.head_count_kv": 4}, "none", "bad_tensor_shape"),
        ("exaone4_5", {"clip.vision.image_min_pixels": None}, "none", "missing_metadata"),
        ("glm5v", {"clip.vision.swiglu_clamp": None}, "none", "corrupt_header"),
        ("glm5v", {}, "mm.patch_merger.weight", "bad_tensor_shape"),
        ("mimovl", {"clip.vision.wa_pattern_mode": [0, 1]}, "none", "corrupt_header"),  # of five blocks
        ("mimovl", {"clip.vision.wa_pattern_mode": [0, 1, 2, 1, 0]}, "none", "corrupt_header"),
        ("mimovl", {"clip.vision.wa_pattern_mode": [[0], [1], [1], [1], [0]]}, "none", "corrupt_header"),
        ("mimovl", {"clip.vision.window_size": 0}, "none", "corrupt_header"),
        ("mimovl", {"clip.vision.attention.head_count_kv": 4}, "none", "bad_tensor_shape"),
        ("mimovl", {}, "v.blk.1.attn_sinks", "missing_tensor"),
        ("mimovl", {}, "v.post_ln.weight", "missing_tensor"),
        ("minimax_m3", {}, "mm.2.weight", "missing_tensor"),
        ("minimax_m3", {}, "mm.merger.fc1.weight", "bad_tensor_shape"),
        ("muse-glimmer", {}, "v.position_embd.weight", "bad_tensor_shape"),
        ("muse-glimmer", {}, "mm.1.weight", "missing_tensor"),
    ],
)
def test_bad_headers_of_newer_types_are_refused(name: str, metadata: dict[str, Any], without: str, code: str) -> None:
    assert refusal(name, metadata, without) == code


@pytest.mark.parametrize(
    ("metadata", "without", "code"),
    [
        ({"clip.audio.subsampling_factor": 4}, "none", "corrupt_header"),
        ({"clip.audio.conv_kernel_size": 4}, "none", "corrupt_header"),
        ({"clip.audio.conv_kernel_size": 7}, "none", "bad_tensor_shape"),
        ({}, "a.mel_filters", "bad_tensor_shape"),
        ({}, "a.window", "bad_tensor_shape"),
        ({"clip.audio.num_mel_bins": 80}, "none", "bad_tensor_shape"),
        ({}, "a.blk.1.conv_norm_var", "missing_tensor"),
        ({}, "mm.a.norm_pre.weight", "missing_tensor"),
        ({}, "mm.a.mlp.2.weight", "missing_tensor"),
    ],
)
def test_bad_headers_of_parakeet_are_refused(metadata: dict[str, Any], without: str, code: str) -> None:
    assert refusal("nemotron_omni", metadata, without) == code


def test_a_table_of_positions_that_is_no_square_is_refused() -> None:
    header = header_of(VISION / "kimik25.mmproj.gguf")
    table = header.tensors["v.position_embd.weight"]
    tensors = header.tensors | {table.name: replace(table, shape=(table.shape[0], 3, 5))}
    with pytest.raises(WispError, match="table of positions"):
        make_plan(replace(header, tensors=tensors), Device(), PlanOptions(1, 1, "f16"))


def test_heads_whose_halves_are_no_whole_quads_are_refused() -> None:
    """The GPU's kernels would rotate wrong pairs."""
    header = header_of(VISION / "gemma4.mmproj.gguf")
    heads = {"clip.vision.attention.head_count": header.metadata["clip.vision.embedding_length"] // 4}
    with pytest.raises(WispError, match="rotate halves of heads that are 4 wide"):
        make_plan(replace(header, metadata=header.metadata | heads), Device(), PlanOptions(1, 1, "f16"))


DAMAGE: tuple[Any, ...] = (0, 1, 3, 7, 255, 65536, 2**31 - 1, -1, True, 0.0, 1e30, "", "x", [], [1], [0.5] * 3)


def damaged(header: Header, numbers: random.Random) -> Header:
    """A header with another value, with a tensor less, or with a tensor of another shape."""
    metadata, tensors = dict(header.metadata), dict(header.tensors)
    key = numbers.choice([key for key in metadata if key.startswith("clip.")])
    name = numbers.choice(list(tensors))
    match numbers.randrange(4):
        case 0:
            tensors.pop(name)
        case 1:
            shape = list(tensors[name].shape)
            shape[numbers.randrange(len(shape))] += numbers.choice([1, 4, 1000])
            tensors[name] = replace(tensors[name], shape=tuple(shape))
        case _:
            metadata[key] = numbers.choice(DAMAGE)
    return replace(header, metadata=metadata, tensors=tensors)


@pytest.mark.parametrize("device", [Device(), Device(f16=True, subgroup=32, matrix=16)], ids=["small", "matrix"])
def test_damaged_projectors_are_errors_or_plans(device: Device) -> None:
    """No value makes planning fail in another way, or take long."""
    headers = [header_of(path) for path in sorted(VISION.glob("*.mmproj.gguf"))]
    numbers, errors = random.Random(3), 0
    for _ in range(400):
        try:
            make_plan(damaged(numbers.choice(headers), numbers), device, PlanOptions(1, 1, "f16"))
        except WispError:
            errors += 1
    assert 100 < errors < 400
