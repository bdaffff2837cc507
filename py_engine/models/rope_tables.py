"""The rotations of a model's layers as tables on the device (plan/rope.py)."""

from __future__ import annotations

from collections.abc import Sequence

from py_engine.models.config import Config
from py_engine.plan.op_list import OpList
from py_engine.plan.pages import shift_index
from py_engine.plan.rope import TEXT_AXES, Pairs, Rope, RopeSpec, media_table, table


def rope_tables(ops: OpList, cfg: Config, neox: bool, factors: Sequence[float] | None, prefix: str = "") -> list[Rope]:
    """The rotation of each layer; layers with the same one share a table. `factors`: divisors of the frequencies.

    `neox`: of most layers' pairs. `prefix`: of the tables' names.
    """
    tables = {
        spec: _rope(ops, spec, f"{prefix}rope_freqs.{n}", factors, *_pairing(cfg, spec, neox))
        for n, spec in enumerate(dict.fromkeys(cfg.ropes))
    }
    return [tables[spec] for spec in cfg.ropes]


def _pairing(cfg: Config, spec: RopeSpec, neox: bool) -> tuple[int, bool]:
    """RopeSpec.in_quads() of a layer's rotation."""
    zeros = cfg.key_half > 0 or spec.dim == cfg.key_dim
    return spec.in_quads(neox=neox or bool(spec.sections), zeros=zeros)


def _rope(ops: OpList, spec: RopeSpec, name: str, factors: Sequence[float] | None, dim: int, neox: bool) -> Rope:
    """The table of RoPE frequencies as a constant buffer. `dim`, `neox`: from RopeSpec.in_quads()."""
    plan = ops.plan
    axes = spec.axes if spec.sections else []
    buffer = ops.buffer(name, (max(4, dim // 2 + len(axes)),), "u32", "state")
    unused = [0.0] * ((dim - spec.dim) // 2)
    plan.constants[name] = table(spec.frequencies(factors) + unused, axes) if dim else bytes(16)
    if TEXT_AXES in axes:
        media = ops.buffer(media_table(name), buffer.shape, "u32", "state")
        plan.constants[media.name] = table(spec.frequencies(factors, TEXT_AXES + 1), axes)
    shifts = shift_index(plan.n_ctx, plan.page) if axes else None
    return Rope(dim, Pairs.HALVES if neox else Pairs.NEIGHBOURS, buffer, spec.magnitude, shifts)
