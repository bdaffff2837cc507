"""What the header of a projector says, and what is wrong with some."""

from dataclasses import replace
from typing import Any

import pytest

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header, TensorInfo
from py_engine.media.projector import Projector
from tests.support.media import NAMES, golden


def changed(name: str, metadata: dict[str, Any], without: str = "") -> Header:
    """A golden's projector with other metadata; None drops a key. `without`: a tensor to leave out."""
    header = golden(name).projector.header
    found = {key: value for key, value in (header.metadata | metadata).items() if value is not None}
    tensors: dict[str, TensorInfo] = {key: info for key, info in header.tensors.items() if key != without}
    return replace(header, metadata=found, tensors=tensors)


@pytest.mark.parametrize("name", NAMES)
def test_the_width_is_that_of_the_text_model(name: str) -> None:
    model = golden(name)
    model.projector.check_fits(model.about["n_embd_inp"])
    with pytest.raises(WispError) as error:
        model.projector.check_fits(model.about["n_embd_inp"] + 1)
    assert error.value.code == "projector_mismatch"


def test_a_file_may_hold_both_encoders() -> None:
    projector = golden("gemma4").projector
    assert projector.vision is not None
    assert projector.audio is not None
    assert (projector.vision.type, projector.audio.type) == ("gemma4v", "gemma4a")
    assert (projector.vision.n_head, projector.audio.n_mel) == (3, 128)


def test_gemma_3ns_encoder_of_sound_is_not_read() -> None:
    projector = Projector.from_gguf(changed("gemma3nv", {"clip.has_audio_encoder": True}))
    assert projector.vision is not None
    assert projector.audio is None


def test_omni_files_name_both_encoders_alike() -> None:
    header = changed("qwen2.5vl", {"clip.projector_type": "qwen2.5o"})
    vision = Projector.from_gguf(header).vision
    assert vision is not None
    assert vision.type == "qwen2.5vl_merger"


@pytest.mark.parametrize("name", ["qwen2vl", "ling3vl"])
def test_limits_of_pictures_may_be_in_the_file(name: str) -> None:
    header = changed(name, {"clip.vision.image_min_pixels": 784, "clip.vision.image_max_pixels": 7840})
    vision = Projector.from_gguf(header).vision
    assert vision is not None
    assert (vision.min_pixels, vision.max_pixels) == (784, 7840)


@pytest.mark.parametrize("key", ["image_min_pixels", "image_max_pixels"])
def test_one_limit_of_kimi_k2_5s_pictures_does_not_count(key: str) -> None:
    """As in llama.cpp, which reads both or none."""
    vision = Projector.from_gguf(changed("kimik25", {f"clip.vision.{key}": 50000})).vision
    assert vision is not None
    side = vision.patch_size * vision.merge
    assert (vision.min_pixels, vision.max_pixels) == (2 * side**2, 4096 * side**2)


def test_a_text_model_is_no_projector() -> None:
    with pytest.raises(WispError, match="not a projector") as error:
        Projector.from_gguf(golden("gemma3").text)
    assert error.value.code == "not_a_projector"


@pytest.mark.parametrize(
    ("name", "metadata", "code"),
    [
        ("gemma3", {"clip.projector_type": "deepseek4v"}, "unsupported_projector"),
        ("gemma3", {"clip.projector_type": None}, "unsupported_projector"),
        ("gemma3", {"clip.projector_type": "ultravox"}, "unsupported_projector"),  # in a file for images
        ("gemma3", {"clip.has_vision_encoder": None}, "unsupported_projector"),
        ("gemma3", {"clip.vision.patch_size": None}, "missing_metadata"),
        ("gemma3", {"clip.vision.patch_size": 0}, "corrupt_header"),
        ("gemma3", {"clip.vision.patch_size": 1000}, "corrupt_header"),
        ("gemma3", {"clip.vision.attention.head_count": 7}, "corrupt_header"),
        ("gemma3", {"clip.vision.image_std": [0.5, 0.0, 0.5]}, "corrupt_header"),
        ("gemma3", {"clip.vision.image_mean": [0.5]}, "corrupt_header"),
        ("gemma3", {"clip.vision.attention.layer_norm_epsilon": None}, "corrupt_header"),
        ("mlp.grid", {"clip.vision.image_grid_pinpoints": [56, 112, 112]}, "corrupt_header"),
        ("mlp.grid", {"clip.vision.image_grid_pinpoints": [56, "a"]}, "corrupt_header"),
        ("internvl", {"clip.vision.preproc_max_tiles": 1 << 20}, "corrupt_header"),
        ("lfm2", {"clip.vision.image_resize_algo": "nearest"}, "corrupt_header"),
        ("ultravox", {"clip.audio.projector.stack_factor": None}, "missing_metadata"),
        ("meralion", {"clip.audio.projector.stack_factor": None}, "missing_metadata"),
        ("gemma3nv", {"clip.vision.image_size": 640}, "corrupt_header"),
        ("granite_speech", {"clip.audio.chunk_size": None}, "missing_metadata"),
        ("granite_speech", {"clip.audio.chunk_size": 26}, "corrupt_header"),  # more distances than have keys
        ("granite_speech", {"clip.audio.conv_kernel_size": 8}, "corrupt_header"),
        ("granite_speech", {"clip.audio.conv_kernel_size": 33}, "corrupt_header"),
        ("granite_speech", {"clip.audio.num_mel_bins": 161}, "corrupt_header"),
        ("granite_speech", {"clip.audio.projector.head_count": 4}, "corrupt_header"),
        ("granite_speech", {"clip.audio.projector.downsample_rate": 7}, "corrupt_header"),  # of a window of 6
        ("granite_speech.plus", {"clip.audio.feature_layer": [2, 0]}, "corrupt_header"),
        ("granite_speech.plus", {"clip.audio.feature_layer": [0, 4]}, "corrupt_header"),
    ],
)
def test_bad_metadata_is_refused(name: str, metadata: dict[str, Any], code: str) -> None:
    with pytest.raises(WispError) as error:
        Projector.from_gguf(changed(name, metadata))
    assert error.value.code == code


def test_a_missing_output_is_refused() -> None:
    with pytest.raises(WispError, match=r"mm\.2\.weight") as error:
        Projector.from_gguf(changed("mlp", {}, without="mm.2.weight"))
    assert error.value.code == "missing_tensor"
