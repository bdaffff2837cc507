"""The plan of a projector: its encoder of pictures, its encoder of sound, or both."""

from __future__ import annotations

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.media.kinds import SAM_TILES
from py_engine.models.projectors import mobilenet, sam, sound, vision
from py_engine.models.projectors.required import check_tensors
from py_engine.models.projectors.stages import SEGMENT_TABLES, Stages
from py_engine.models.projectors.tower import Tower, towers
from py_engine.plan.kernels import Device
from py_engine.plan.plan import Plan
from py_engine.plan.tiles import MAX_WORKGROUPS
from py_engine.plan.weights import Weights

POSITIONS = 256  # no input is tokens at positions, but kernels are proven on so many
MANY_ROWS = 5120  # rows that fill a GPU: pictures of a request are encoded in batches of so many
FIXED = ("gemma3nv", "yasa2", *SAM_TILES, "granite4_vision")  # types whose pictures have few sizes
FEWEST_ROWS = 256  # a plan for fewer would be of no use
MAX_MEMORY = 3 << 29  # bytes of activations and inputs; on the CPU, and on a software GPU, a third of it


def make_plan(header: Header, device: Device) -> Plan:
    """Plan a projector for a device: for the largest picture of its type, or the largest that the device can hold."""
    found = towers(header)
    check_tensors(header, [tower.kind for tower in found.values()])
    rows = {modality: _rows(tower) for modality, tower in found.items()}
    plan = _planned(header, device, found, rows)
    shrinks = "image" in found and found["image"].kind not in FIXED
    while shrinks and rows["image"] > FEWEST_ROWS and not _fits(plan, device):
        unit = found["image"].merge ** 2
        rows["image"] = rows["image"] * 3 // 4 // unit * unit
        plan = _planned(header, device, found, rows)
    if "image" in found and not shrinks:
        _check_buffers(plan, device)
    return plan


def _check_buffers(plan: Plan, device: Device) -> None:
    """Raise WispError model_too_large if pictures that cannot be smaller need too large a buffer."""
    largest = max(buffer.nbytes for buffer in plan.buffers.values())
    limit = min(device.max_binding, device.max_buffer)
    if largest > limit:
        raise WispError(
            f"Pictures of this projector need {-(-largest >> 20)} MiB in one buffer; this device allows {limit >> 20} "
            'MiB. Load it with the backend "cpu".',
            "model_too_large",
        )


def _planned(header: Header, device: Device, found: dict[str, Tower], rows: dict[str, int]) -> Plan:
    # the state has room for every table of segments
    plan = Plan(len(SEGMENT_TABLES) * max(rows.values()), POSITIONS, 1)
    weights = Weights(header, plan)
    for modality, tower in found.items():
        build = vision.build if modality == "image" else sound.build
        plan.encoders[modality] = build(Stages(tower, weights, plan, device, rows[modality]))
    if len(found) > 1:  # most requests have pictures only
        plan.lazy = {stage.list for stage in plan.encoders["audio"].stages}
    return plan


def _fits(plan: Plan, device: Device) -> bool:
    memory = plan.memory()
    largest = max(buffer.nbytes for buffer in plan.buffers.values())
    most = MAX_MEMORY // 3 if device.software else MAX_MEMORY
    return largest <= min(device.max_binding, device.max_buffer) and memory["activations"] + memory["state"] <= most


def _rows(tower: Tower) -> int:
    """Rows of the largest input, or of several smaller ones together."""
    if tower.modality == "audio":
        return sound.most_rows(tower)
    if tower.kind == "gemma3nv":
        return mobilenet.sides(tower)[0] ** 2
    if tower.sam is not None:
        return sam.window_rows(tower.sam)
    if tower.kind in FIXED:
        return tower.max_patches
    each = tower.max_patches + tower.class_rows
    unit = tower.merge**2
    return min(-(-max(1, MANY_ROWS // each) * each // unit), MAX_WORKGROUPS // unit) * unit
