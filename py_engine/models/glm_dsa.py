"""GLM 5 and DeepSeek V3.2: DeepSeek's latent attention, with an index that chooses the positions a token attends to.

The index chooses `attention.indexer.top_k` positions (plan/indexer.py). A context of at most so many has no others, and
the index is not computed. In some files of GLM 5, layers use the index of the last layer before that has one. Source:
llama.cpp's architectures `glm-dsa` and `deepseek32`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.files.gguf_header import Header
from py_engine.models import decoder, deepseek2
from py_engine.models.indexer import TYPES, index_shape, own_indices
from py_engine.plan.indexer import IndexShape

NEOX = False
HALVES = ("deepseek32",)  # whose index rotates dimension i with i + n / 2; its attention and others, neighbours
SHARING = ("glm-dsa",)  # whose layers may use another one's index
ALL_OWN = 1 << 20  # of SHARING, files for shorter contexts have an index in every layer if they do not say


@dataclass(frozen=True)
class Config(deepseek2.Config):
    """The hyperparameters."""

    index_of: IndexShape | None = None
    own_index: tuple[bool, ...] = ()  # of every layer

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        base = super().from_gguf(header)
        shape = index_shape(header, base.ropes[0].dim, neox=header.architecture in HALVES)
        return replace(base, index_of=shape, own_index=_own(header, base.block_count, base.context_length))

    def layer(self, i: int) -> Config:
        """The hyperparameters of layer i."""
        assert self.index_of
        return replace(self, index=replace(self.index_of, own=self.own_index[i]))


def _own(header: Header, blocks: int, context: int) -> tuple[bool, ...]:
    """Whether each layer has an index of its own."""
    if header.architecture not in SHARING:
        return (True,) * blocks
    if header.arch(TYPES, None) is None:  # GLM 5.2's
        return tuple(context < ALL_OWN or i < 2 or i % 4 == 2 for i in range(blocks))
    return own_indices(header, blocks)


build = decoder.build
output = decoder.output
