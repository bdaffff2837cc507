"""Kernels of convolutions as matrices: a projector's file has them with up to four dimensions."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from py_engine.files.gguf_header import Header, TensorInfo

PROJECTOR = "clip"  # the architecture of projectors
# Ends of names of tensors that are read matrix by matrix: of experts, and codebooks.
MATRICES = ("_exps.weight", "rvq.codebook.weight", "code_embd.weight")
TABLES = (".proj_query", ".query", ".img_pos")  # ends of names


def flattened(header: Header) -> Header:
    """A projector's header whose tensors have at most two dimensions, except those of experts and codebooks.

    Records are then cut between rows of the matrices. The bytes are the same. A kernel becomes (outputs, everything
    else), a table of positions or queries (everything else, width).
    """
    if header.metadata.get("general.architecture") != PROJECTOR:
        return header
    return replace(header, tensors={name: _flat(info) for name, info in header.tensors.items()})


def _flat(info: TensorInfo) -> TensorInfo:
    if len(info.shape) <= 2 or info.name.endswith(MATRICES):
        return info
    *inner, rows = info.shape
    if "position_embd" in info.name or "sam.pos_embd" in info.name or info.name.endswith(TABLES):
        return replace(info, shape=(info.shape[0], prod(info.shape[1:])))
    return replace(info, shape=(prod(inner), rows))
