"""GLM 5.3: Kimi's gated delta nets in most layers, latent attention in the others; residual streams mixed by layers.

Attention does not rotate, and all of a key is made from the latent. An index chooses the positions that a token attends
to, as in GLM 5 (glm_dsa.py), but joins `attention.indexer.kpool` keys. Source: llama.cpp's `glm5-next` architecture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import config, decoder, deepseek2
from py_engine.models.bailing3 import decay_bound
from py_engine.models.common import count, dimension, natural, optional_number, switch, without_attention
from py_engine.models.decoder import Layer
from py_engine.models.hyper_connections import MixedStreams, append_layers
from py_engine.models.indexer import TYPES, index_shape, own_indices
from py_engine.models.recurrent import StateSpace
from py_engine.plan import mixed_streams
from py_engine.plan.cache import Cache
from py_engine.plan.indexer import IndexShape
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer
from py_engine.plan.rope import Rope
from py_engine.plan.weights import Weights

NEOX = False
UNIT_EPS = 1e-6  # of the delta nets' queries and keys, whatever that of norms is
ASSUMED = 4  # rotated dimensions, while the other metadata of latent attention are read


@dataclass(frozen=True)
class Config(deepseek2.Config):
    """The hyperparameters."""

    mixed: MixedStreams | None = None
    index_of: IndexShape | None = None
    own_index: tuple[bool, ...] = ()  # of every layer

    @classmethod
    def from_gguf(cls, header: Header) -> Config:
        """Read and check the metadata."""
        if natural(header, "rope.dimension_count", 1):
            raise WispError("GLM 5.3 with attention that rotates is not supported.", "unsupported_architecture")
        assumed = {f"{header.architecture}.rope.dimension_count": ASSUMED}
        base = super().from_gguf(replace(header, metadata=header.metadata | assumed))
        base.need_mixture("GLM 5.3")
        assert base.latent
        recurrent = without_attention(header, base.block_count)
        heads, size = base.head_count, dimension(header, "kda.head_dim", times=base.head_count)
        bound = 0.0 if header.arch("kda.gate_lower_bound", None) is None else decay_bound(header)
        states = StateSpace(
            *(dimension(header, "ssm.conv_kernel"), heads * size, size, heads, heads),
            decay_bound=bound, negative_rates=True, unit_eps=UNIT_EPS,
        )  # fmt: skip
        latent = replace(base.latent, nope=base.latent.nope + ASSUMED, rope=0)
        return replace(
            base,
            index_of=_index(header),
            own_index=_own(header, recurrent),
            head_dim=latent.rank,
            latent=latent,
            ropes=(config.NO_ROPE,) * base.block_count,
            recurrent=recurrent,
            attending=tuple(not state for state in recurrent),
            state_space=states.checked(),
            mixed=MixedStreams.from_gguf(header, "GLM 5.3", base.block_count),
        )

    def layer(self, i: int) -> Config:
        """The hyperparameters of layer i."""
        assert self.mixed
        experts, other = self.mixed.activations(i)
        index = None
        if self.attending[i]:
            assert self.index_of
            index = replace(self.index_of, own=self.own_index[i])
        return replace(self, activation=other, expert_activation=experts, index=index)


def _own(header: Header, recurrent: Sequence[bool]) -> tuple[bool, ...]:
    """Whether each layer has an index of its own."""
    if header.arch(TYPES, None) is None or all(recurrent):
        return (True,) * len(recurrent)
    return own_indices(header, len(recurrent), recurrent.index(False))


def _index(header: Header) -> IndexShape:
    """The index, which joins keys. Nothing is rotated."""
    chosen, joined = count(header, "attention.indexer.top_k"), count(header, "attention.indexer.kpool")
    if joined < 2 or chosen % joined or not switch(header, "attention.indexer.kpool_select_tail", True):
        raise WispError(
            f"Wisp cannot run an index that joins {joined} keys and chooses {chosen} positions, or one that leaves out "
            "the newest.",
            "unsupported_architecture",
        )
    eps = optional_number(header, "attention.layer_norm_epsilon")
    return replace(index_shape(header, 0, neox=NEOX), pool=joined, eps=eps)


def build(cfg: Config, w: Weights, ops: Ops, ropes: list[Rope], caches: list[Cache]) -> Buffer:
    """Append the layers; return the mean of the streams (n, n_embd)."""
    assert cfg.mixed

    def attention(layer: Layer, i: int, x: Buffer) -> Buffer:
        if cfg.has_state(i):
            return layer.project_recurrent(layer.recurrent(x, caches[i]))
        return layer.project_attention(layer.attention(x, caches[i]))

    return mixed_streams.mean(ops, append_layers(cfg, cfg.mixed, w, ops, ropes, attention))


output = decoder.output
