"""Heads of lengths that kernels cannot read, stored with zeros in between and at the end.

Kernels read four dimensions of a head at once, which are two rotated pairs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from py_engine.errors import WispError
from py_engine.models.config import Config
from py_engine.plan.weights import Weights

C = TypeVar("C", bound=Config)
QUAD = 4  # dimensions that kernels read at once
OWN_ATTENTION = {"cogvlm", "graniteswitch", "t5"}  # whose queries, keys and values decoder.Layer does not make alone


def stored(cfg: C, architecture: str, *, neox: bool) -> C:
    """The hyperparameters with the lengths that heads are stored with. WispError if they cannot be stored.

    `neox`: the pairs are half of the rotated dimensions apart. Then zeros follow each half of an odd length.
    """
    rotated = {rope.dim for rope in cfg.ropes} - {0}
    odd = neox and any(dim % QUAD and dim > 2 for dim in rotated)
    if not odd and cfg.head_dim % QUAD == 0:
        return cfg
    plain = not (cfg.latent or cfg.value_dim or cfg.shares_kv or architecture in OWN_ATTENTION)
    axes = any(rope.sections for rope in cfg.ropes)
    if not plain or axes or len(rotated) > 1 or cfg.head_dim % 2:
        raise refusal(cfg)
    half = max(rotated) // 2 if odd else 0
    length = cfg.head_dim + (2 if odd else 0)
    return replace(cfg, head_dim=length + -length % QUAD, key_dim=cfg.head_dim, value_dim=cfg.head_dim, key_half=half)


def check_stored(cfg: Config, w: Weights, b: str, *, gated: bool) -> None:
    """Refuse a layer with norms of heads or gates of values, which do not know where zeros are. `b`: its prefix."""
    names = (b + f"attn_{part}.weight" for part in ("q_norm", "k_norm", "gate"))
    normed = cfg.unit_qk_norm or cfg.single_query_norm
    if cfg.key_dim == cfg.value_dim > 0 and (gated or normed or any(name in w for name in names)):
        raise refusal(cfg)


def refusal(cfg: Config) -> WispError:
    """The error for heads that cannot be stored."""
    rotated = max(rope.dim for rope in cfg.ropes)
    return WispError(
        f"Wisp cannot run attention with {cfg.key_dim or cfg.head_dim} dimensions per head, {rotated} of them rotated, "
        f"in {cfg.block_count} layers of this kind.",
        "unsupported_architecture",
    )
