"""Headers of the projectors of Step3-VL, dots3-note, D1-Omni and MiMo, and of norms that a file may lack."""

from dataclasses import replace
from typing import Any

import pytest

from py_engine.errors import WispError
from py_engine.media.projector import Projector
from py_engine.models.projectors.tower import towers
from py_engine.plan.kernels import Device
from py_engine.planner import PlanOptions, make_plan
from tests.support.media import VISION, header_of
from tests.support.projector_headers import refusal


@pytest.mark.parametrize(
    ("metadata", "without", "code"),
    [
        ({"clip.vision.projector.scale_factor": 2}, "none", "corrupt_header"),
        ({"clip.vision.image_size": 147}, "none", "corrupt_header"),  # seven patches
        ({"clip.vision.patch_size": 24, "clip.vision.image_size": 192}, "none", "corrupt_header"),  # for tiles
        ({"clip.vision.preproc_image_size": -1}, "none", "corrupt_header"),
        ({}, "v.position_embd.weight", "missing_tensor"),
        ({}, "mm.1.weight", "missing_tensor"),
    ],
)
def test_bad_headers_of_step3_vl_are_refused(metadata: dict[str, Any], without: str, code: str) -> None:
    assert refusal("step3vl", metadata, without) == code


@pytest.mark.parametrize(
    ("metadata", "without", "code"),
    [
        ({"clip.vision.expert_used_count": None}, "none", "missing_metadata"),
        ({"clip.vision.expert_used_count": 0}, "none", "corrupt_header"),
        ({"clip.use_silu": False}, "none", "unsupported_architecture"),  # experts are gated by SiLU
        ({}, "v.blk.1.ffn_gate_inp.weight", "missing_tensor"),
        ({}, "v.blk.2.ffn_down_exps.weight", "missing_tensor"),
        ({}, "mm.post_norm.weight", "missing_tensor"),
        ({"clip.audio.attention.head_count": 16}, "none", "unsupported_architecture"),  # of four values
        ({"clip.audio.num_mel_bins": 80}, "none", "bad_tensor_shape"),
        ({}, "a.conv2d.3.bias", "missing_tensor"),
        ({}, "mm.a.norm_pre.weight", "missing_tensor"),
    ],
)
def test_bad_headers_of_dots3_note_are_refused(metadata: dict[str, Any], without: str, code: str) -> None:
    assert refusal("dots3note.media", metadata, without) == code


@pytest.mark.parametrize("without", ["mm.1.bias", "mm.a.mlp.4.weight", "mm.a.mlp.5.bias", "mm.a.mlp.6.weight"])
def test_bad_headers_of_d1_omni_are_refused(without: str) -> None:
    assert refusal("d1omni", {}, without) == "missing_tensor"


@pytest.mark.parametrize(("image", "fewest", "most"), [(56, 64, 5184), (728, 5184, 10816)])
def test_plans_for_step3_vl_fit_its_tiles_and_overviews(image: int, fewest: int, most: int) -> None:
    """Tiles have 504 pixels a side, whatever the file says."""
    header = header_of(VISION / "step3vl.mmproj.gguf")
    sizes = {"clip.vision.patch_size": 7, "clip.vision.image_size": image}
    tower = towers(replace(header, metadata=header.metadata | sizes))["image"]
    assert (tower.min_patches, tower.max_patches) == (fewest, most)


@pytest.mark.parametrize("size", [0, None])
def test_step3_vls_pictures_have_a_longest_side_without_the_key(size: int | None) -> None:
    header = header_of(VISION / "step3vl.mmproj.gguf")
    other = replace(header, metadata=header.metadata | {"clip.vision.preproc_image_size": size})
    assert Projector.from_gguf(other).need_vision().longest_edge == 3024


def test_norms_of_queries_are_of_a_head_or_of_all() -> None:
    assert refusal("cohere2v.norms", {"clip.vision.attention.head_count": 8}, "none") == "bad_tensor_shape"


@pytest.mark.parametrize("part", ["q", "k"])
def test_norms_of_queries_or_keys_alone_are_refused(part: str) -> None:
    assert refusal("cohere2v.norms", {}, f"v.blk.1.attn_{part}_norm.weight") == "unsupported_architecture"


def test_encoders_of_sound_of_unknown_types_are_refused() -> None:
    """Also beside pictures."""
    header = header_of(VISION / "mimo.mmproj.gguf")
    assert Projector.from_gguf(header).need_audio().rate == 24000
    with pytest.raises(WispError, match="not supported") as error:
        Projector.from_gguf(replace(header, metadata=header.metadata | {"clip.audio.projector_type": "other"}))
    assert error.value.code == "unsupported_projector"


@pytest.mark.parametrize(
    ("metadata", "without", "code"),
    [
        ({"clip.audio.rvq.num_quantizers": None}, "none", "missing_metadata"),
        ({"clip.audio.rvq.codebook_size": [12, 7]}, "none", "corrupt_header"),  # of three
        ({"clip.audio.rvq.codebook_size": [12, 7, 0]}, "none", "corrupt_header"),
        ({"clip.audio.rvq.codebook_size": [13, 7, 9]}, "none", "bad_tensor_shape"),
        ({"clip.audio.wa_pattern_mode": [-1, 0]}, "none", "corrupt_header"),
        ({"clip.audio.wa_pattern_mode": [-1, 0], "clip.audio.block_count": 2}, "none", "unsupported_architecture"),
        ({"clip.audio.window_size": 0}, "none", "corrupt_header"),
        ({"clip.audio.local_group_size": 3}, "none", "bad_tensor_shape"),
        ({"clip.audio.local_block_count": 3}, "none", "missing_tensor"),
        ({}, "a.rvq.codebook.weight", "missing_tensor"),
        ({}, "mm.a.code_embd.weight", "missing_tensor"),
        ({}, "a.post_ln.weight", "missing_tensor"),
        ({}, "mm.a.local_blk.1.attn_v.bias", "missing_tensor"),
    ],
)
def test_bad_headers_of_mimos_sound_are_refused(metadata: dict[str, Any], without: str, code: str) -> None:
    assert refusal("mimo", metadata, without) == code


@pytest.mark.parametrize(("name", "norms"), [("ultravox", []), ("ultravox", ["post_ln"]), ("glma", ["post_ln"])])
def test_the_norm_after_whispers_blocks_is_that_of_the_file(name: str, norms: list[str]) -> None:
    """llama.cpp applies it wherever it is, also beside GLM-ASR's own, and needs it nowhere."""
    header = header_of(VISION / f"{name}.mmproj.gguf")
    tensors = {key: info for key, info in header.tensors.items() if not key.startswith("a.post_ln.")}
    like = header.tensors["a.blk.0.ln1.weight"]
    tensors |= {key: replace(like, name=key) for norm in norms for key in (f"a.{norm}.weight", f"a.{norm}.bias")}
    plan = make_plan(replace(header, tensors=tensors), Device(), PlanOptions(1, 1, "f16"))
    bound = [getattr(op.bindings.get("norm"), "name", "") for ops in plan.lists.values() for op in ops]
    assert bound.count("a.post_ln.weight") == len(norms)
    assert bound.count("mm.a.norm_pre.weight") == 1
