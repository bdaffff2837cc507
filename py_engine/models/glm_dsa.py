"""GLM 5 and DeepSeek V3.2: DeepSeek's latent attention, with an index that chooses the positions a token attends to.

The index chooses `attention.indexer.top_k` positions (plan/index.py). A context of at most so many has no others, and
the index is not computed. In some files of GLM 5, layers use the index of the last layer before that has one. Source:
llama.cpp's architectures `glm-dsa` and `deepseek32`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import decoder, deepseek2
from py_engine.models.common import count, dimension
from py_engine.plan.index import IndexShape

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
        assert base.latent
        heads, size = (
            dimension(header, "attention.indexer.head_count"),
            dimension(header, "attention.indexer.key_length"),
        )
        if size % 4 or size < base.latent.rope:
            raise WispError(f"Wisp cannot run an index with keys of {size} dimensions.", "unsupported_architecture")
        halves = header.architecture in HALVES
        shape = IndexShape(heads, size, count(header, "attention.indexer.top_k"), base.latent.rope, halves)
        return replace(base, index_of=shape, own_index=_own(header, base.block_count, base.context_length))

    def layer(self, i: int) -> Config:
        """The hyperparameters of layer i."""
        assert self.index_of
        return replace(self, index=replace(self.index_of, own=self.own_index[i]))


def _own(header: Header, blocks: int, context: int) -> tuple[bool, ...]:
    """Whether each layer has an index of its own."""
    if header.architecture not in SHARING:
        return (True,) * blocks
    types = header.arch("attention.indexer.types", None)
    if types is None:  # GLM 5.2's
        return tuple(context < ALL_OWN or i < 2 or i % 4 == 2 for i in range(blocks))
    given = types if isinstance(types, list) else [types] * blocks
    if len(given) < blocks or not given[0]:
        raise WispError(
            f"{header.architecture}.attention.indexer.types is {types!r:.100}: the first layer must have an index.",
            "corrupt_header",
        )
    return tuple(bool(kind) for kind in given[:blocks])


build = decoder.build
output = decoder.output
