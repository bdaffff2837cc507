"""Encoders of images and sound against llama.cpp's, on the numpy executor, without a browser.

Some of the same goldens run on WebGPU in tests/engine/test_encoders.py.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.encoder_shapes import SHAPES, header
from py_engine.encoder import fitted
from py_engine.errors import WispError
from py_engine.media.kinds import MAX_SECONDS
from py_engine.media.projector import Projector
from py_engine.media.recipe import recipe
from py_engine.models.projectors.fastconformer import most_frames
from py_engine.models.projectors.tower import towers
from py_engine.plan.kernels import Device
from py_engine.planner import PlanOptions, make_plan
from tests.support.encoders import LIMITS, CpuEncoder, distance, media_of
from tests.support.media import NAMES, VISION, golden, header_of


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_embeddings_are_llama_cpps(name: str) -> None:
    """Of every picture and clip of every prompt; a prompt's pictures are encoded together."""
    model = golden(name)
    encoder, checked = CpuEncoder.of(model), 0
    for case in model.cases:
        for modality in encoder.towers:
            found = media_of(model, case, modality)
            for (index, _), rows in zip(found, encoder.encode(modality, [x for _, x in found]), strict=True):
                assert distance(model, case, index, rows) <= LIMITS["f32"]
                checked += 1
    assert checked == sum(chunk["kind"] != "text" for case in model.cases for chunk in case["chunks"])


@pytest.mark.parametrize(
    ("name", "modality", "norm", "without"),
    [
        ("pixtral", "image", "v.blk.0.ln1", ["weight"]),  # an RMS norm
        ("mimo", "audio", "a.blk.1.ln2", ["weight"]),
        ("mimo", "audio", "a.blk.1.ln2", ["weight", "bias"]),
    ],
)
def test_norms_of_blocks_may_have_no_weights(
    name: str, modality: str, norm: str, without: list[str], tmp_path: Path
) -> None:
    """They are then as with ones, and as with a bias of zeros: llama.cpp takes such files."""
    model = golden(name)
    data = (VISION / model.about["mmproj"]).read_bytes()
    header, plain, less = header_of(VISION / model.about["mmproj"]), bytearray(data), data
    for part in without:
        info = header.tensors[f"{norm}.{part}"]
        first = header.data_offset + info.offset
        plain[first : first + info.nbytes] = np.full(info.shape, part == "weight", np.float32).tobytes()
        less = less.replace(info.name.encode(), info.name.replace(".ln", ".no").encode())  # an unknown name
    rows = []
    for number, contents in enumerate((plain, less)):
        path = tmp_path / f"{number}.gguf"
        path.write_bytes(contents)
        given = next(media for case in model.cases if (media := media_of(model, case, modality)))[0][1]
        rows.append(CpuEncoder(path).encode(modality, [given])[0])
    np.testing.assert_array_equal(rows[0], rows[1])


# What a GPU with subgroup matrices runs; numpy computes it in f32 and rounds where that stores f16.
MATRIX = Device(f16=True, subgroup=32, matrix=16, max_binding=1 << 30, max_buffer=1 << 30)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_embeddings_by_the_plan_for_subgroup_matrices(name: str) -> None:
    """Of the first picture and clip."""
    model = golden(name)
    encoder = CpuEncoder.of(model, MATRIX)
    assert any(op.kernel == "matmul_matrix" for ops in encoder.plan.lists.values() for op in ops)
    for modality in encoder.towers:
        case, (index, given) = next(
            (case, media[0]) for case in model.cases if (media := media_of(model, case, modality))
        )
        (rows,) = encoder.encode(modality, [given])
        assert distance(model, case, index, rows) <= LIMITS["f16"]


@pytest.mark.parametrize("device", [Device(), MATRIX], ids=["small", "matrix"])
def test_no_kernel_reads_the_buffer_that_it_writes(device: Device) -> None:
    """WebGPU allows no buffer twice in one dispatch where it is written; what works in place has it once."""
    for path in sorted(VISION.glob("*.mmproj.gguf")):
        header = header_of(path)
        for ops in make_plan(header, device, PlanOptions(1, 1, "f16")).lists.values():
            for op in ops:
                names = [bound.name for bound in op.bindings.values()]
                result = op.bindings["y"].name if "y" in op.bindings else ""
                assert names.count(result) <= 1, f"{path.name}: {op.kernel} {names}"


def test_a_small_device_gets_smaller_pictures() -> None:
    """No buffer is larger than a binding, and the largest picture has as many patches as the plan has rows."""
    model, device = header(SHAPES["qwen2.5-vl-3b"]), Device()
    plan = make_plan(model, device, PlanOptions(1, 1, "f16"))
    rows = plan.encoders["image"].capacity["patches"]
    assert max(buffer.nbytes for buffer in plan.buffers.values()) <= device.max_binding
    vision = fitted(Projector.from_gguf(model), plan).vision
    assert vision is not None
    (cut,) = recipe(vision, (6000, 4000)).cuts
    patches = cut.size[0] * cut.size[1] // vision.patch_size**2
    assert 0.9 * rows < patches <= rows
    large = make_plan(model, Device(max_binding=1 << 31, max_buffer=1 << 31), PlanOptions(1, 1, "f16"))
    assert large.encoders["image"].capacity["patches"] == 4 * 4096


def test_a_device_that_cannot_hold_gemma_3ns_places_is_told() -> None:
    """Its pictures are of one size."""
    model = header_of(VISION / "gemma3nv.mmproj.gguf")
    with pytest.raises(WispError, match="in one buffer") as error:
        make_plan(model, Device(max_binding=1 << 20, max_buffer=1 << 20), PlanOptions(1, 1, "f16"))
    assert error.value.code == "model_too_large"


def test_too_long_pictures_of_minicpm_v_are_refused() -> None:
    """Its places along a side have sinusoids of a table."""
    encoder = CpuEncoder.of(golden("minicpmv"))
    with pytest.raises(WispError, match="1025 patches along a side"):
        encoder.encode("image", [np.zeros((1025 * 14, 14, 3), np.uint8)])


@pytest.mark.parametrize("name", ["gemma4", "gemma4u"])
@pytest.mark.parametrize("axis", [0, 1])
def test_pictures_beyond_gemma_4s_tables_are_refused(name: str, axis: int) -> None:
    """The table of lines follows that of columns."""
    encoder = CpuEncoder.of(golden(name))
    tower = encoder.towers["image"]
    side = tower.patch * tower.merge
    shape = [side, side]
    shape[axis] = side * (tower.positions // 2 // tower.merge + 1)
    with pytest.raises(WispError, match="more positions"):
        encoder.encode("image", [np.zeros((*shape, 3), np.uint8)])


@pytest.mark.parametrize("name", ["lfm2a", "nemotron_omni"])
def test_the_longest_clip_fits(name: str) -> None:
    """The files of these types have 128 bins; the goldens have fewer."""
    tower = replace(towers(header_of(VISION / f"{name}.mmproj.gguf"))["audio"], mels=128)
    assert most_frames(tower) == 100 * MAX_SECONDS[tower.kind] + 1
