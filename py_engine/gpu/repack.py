"""The dispatches that sort raw GGUF bytes into a weight's planes, and those that compute a record's checksum."""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.plan import kernels, quants
from py_engine.plan.kernels import Device, Shader
from py_engine.plan.placement import Placement
from py_engine.plan.plan import Plan, Weight
from py_engine.plan.shared_constants import THREADS

CHECKSUM_WORDS = 16  # words of a thread of checksum.wgsl, unless that takes too many workgroups
MAX_CHECKSUM_GROUPS = 1024  # workgroups of checksum.wgsl
MAX_GROUPS = 65535  # workgroups in one dimension of a dispatch


@dataclass(frozen=True)
class Repack:
    """One dispatch that writes a plane, which the shader binds as `binding`."""

    shader: Shader
    plane: str
    binding: str
    consts: dict[str, int]
    grid: tuple[int, int]


def shader_for(weight: Weight, variant: Device) -> Shader | None:
    """The kernel that writes a weight's planes; None if the file's bytes are copied unchanged."""
    layout = weight.layout
    if not layout.plain:
        return kernels.expand("repack", {}, variant)
    if weight.rows > 1 and weight.cols % quants.GROUP:
        elem = layout.block_bytes // quants.GROUP
        return kernels.expand("repack_pad", {"ELEM": elem, "COLS": weight.cols}, variant)
    return None


def shaders(plan: Plan, variant: Device) -> list[Shader]:
    """The distinct kernels that write the planes of a plan's weights."""
    found = (shader_for(weight, variant) for weight in plan.weights.values())
    return list({shader.label: shader for shader in found if shader is not None}.values())


def checksum_shader(variant: Device) -> Shader:
    """The kernel that computes a record's checksum."""
    return kernels.expand("checksum", {}, variant)


def checksum(n_bytes: int, at: int, plane: str, variant: Device) -> Repack:
    """The dispatch that adds the checksum of a record of `n_bytes` to the words `at` and `at + 1` of a plane."""
    groups = max(1, min(MAX_CHECKSUM_GROUPS, -(-n_bytes // (4 * THREADS * CHECKSUM_WORDS))))
    consts = {"bytes": n_bytes, "at": at, "stride": THREADS * groups}
    return Repack(checksum_shader(variant), plane, "sums", consts, (groups, 1))


def repacks(place: Placement, variant: Device) -> list[Repack]:
    """The dispatches for the rows of a placement; none if the bytes are copied unchanged."""
    weight = place.weight
    shader = shader_for(weight, variant)
    if shader is None:
        return []
    layout = weight.layout
    if layout.plain:
        threads = place.rows * weight.plane_row_bytes("w_qs") // 4
        return [_repack(shader, "w_qs", "w_qs", threads, {"src": place.src, "dst": place.row0, "n": place.rows})]
    found = []
    for name, plane in layout.planes.items():
        row = weight.plane_row_bytes(name)
        first, size = plane.table + place.row0 * row, place.rows * row
        ranges = [*plane.ranges, *[(0, 0)] * quants.RANGES][: quants.RANGES]
        consts = {"src": place.src, "dst": first, "n": size, "block": layout.block_bytes, "record": plane.stride}
        for i, (first_byte, length) in enumerate(ranges):
            consts |= {f"from{i}": first_byte, f"size{i}": length}
        found.append(_repack(shader, name, "plane", (first + size + 3) // 4 - first // 4, consts))
    return found


def _repack(shader: Shader, plane: str, binding: str, threads: int, consts: dict[str, int]) -> Repack:
    groups = -(-threads // THREADS)
    x = min(MAX_GROUPS, groups)
    return Repack(shader, plane, binding, consts | {"stride": THREADS * x}, (x, -(-groups // x)))
