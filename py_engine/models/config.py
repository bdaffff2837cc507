"""The hyperparameters of a model, read from its GGUF metadata and checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models.common import count, head_count_kv, number, rope_spec, switch, vocabulary
from py_engine.plan.rope import RopeSpec

C = TypeVar("C", bound="Config")
NO_ROPE = RopeSpec(0)  # the rotation of a layer without one

# The chosen experts' shares add up to one; where the metadata has a say, it says so.
NORMALISED = {"llama", "qwen3moe", "qwen3vlmoe", "granitemoe", "gpt-oss", "lfm2moe", "ernie4_5-moe"}
SAY = {"dots1", "glm4moe"}
GATINGS = {1: "softmax", 2: "sigmoid", 3: "softmax"}  # of expert_gating_func; 3: of the chosen ones, which is the same


@dataclass(frozen=True)
class Mixture:
    """How many experts there are, and how they are chosen."""

    expert_count: int
    expert_used_count: int
    feed_forward_length: int  # of an expert
    normalised: bool
    gating: str = "softmax"
    scale: float = 1.0  # of the shares

    @classmethod
    def from_gguf(cls, header: Header) -> Mixture | None:
        """Read and check the metadata; None for a model without experts."""
        if not header.arch("expert_count", 0):
            return None
        name = header.architecture
        default = 2 if name == "glm4moe" else 1
        gating = GATINGS.get(header.arch("expert_gating_func", default) or default)
        if gating is None or header.arch("expert_group_count", 0) > 1:
            raise WispError("This way of choosing experts does not run yet.", "unsupported_architecture")
        mixture = cls(
            count(header, "expert_count"),
            count(header, "expert_used_count"),
            count(header, "expert_feed_forward_length", header.arch("feed_forward_length", 0)),
            name in NORMALISED or (name in SAY and switch(header, "expert_weights_norm", False)),
            gating,
            number(header, "expert_weights_scale") if header.arch("expert_weights_scale", 0.0) else 1.0,
        )
        if mixture.expert_used_count > mixture.expert_count:
            raise WispError(
                f"{mixture.expert_used_count} of {mixture.expert_count} experts cannot be chosen.", "corrupt_header"
            )
        return mixture


@dataclass(frozen=True)
class Config:
    """The hyperparameters, named as GGUF names them, and what the architecture's name implies."""

    block_count: int
    context_length: int
    embedding_length: int
    feed_forward_length: int
    head_count: int
    head_count_kv: int
    head_dim: int
    eps: float
    vocab: int
    ropes: tuple[RopeSpec, ...]  # of every layer
    windows: tuple[int, ...]  # the sliding window of every layer, 0: none
    attention_scale: float
    taps: tuple[int, ...] = ()  # of the short convolution that stands for a layer's attention, 0: it has attention
    mixture: Mixture | None = None  # of experts
    causal: bool = True  # a token sees only what comes before it; else it is an encoder: embeddings, and no text
    alibi: float = 0.0  # how steep attention's slopes are, 0: none
    layer_norm: bool = False  # norms subtract the mean
    parallel: bool = False  # attention and feed-forward net read the same stream
    value_norm: bool = False  # each value head is normalised
    looks_elsewhere: bool = False  # a layer without keys and values: it looks at another's
    activation: str = "silu"
    embedding_norm: str = ""  # the tensor of the norm of the embeddings
    attn_norm: str = "attn_norm"  # the tensor of the norm before attention
    ffn_norm: str = "ffn_norm"  # the tensor of the norm before the feed-forward net
    output_norm: str = "output_norm"  # the tensor of the norm behind the last layer
    post_norms: tuple[str, str] = ("post_attention_norm", "post_ffw_norm")  # those behind a part
    attention_soft_cap: float = 0.0
    final_soft_cap: float = 0.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0  # logits are multiplied with it

    @classmethod
    def from_gguf(cls: type[C], header: Header) -> C:
        """Read and check the metadata; WispError missing_metadata, corrupt_header or unsupported_architecture."""
        ahead = header.arch("nextn_predict_layers", 0)  # layers at the end that guess the token after the next
        blocks = count(header, "block_count") - (ahead if isinstance(ahead, int) else 0)
        n_embd, n_head = count(header, "embedding_length"), count(header, "attention.head_count")
        head_dim = count(header, "attention.key_length", max(1, n_embd // n_head))
        rope = rope_spec(header, count(header, "rope.dimension_count", head_dim))
        layer_norm = header.arch("attention.layer_norm_rms_epsilon", None) is None
        n_head_kv = head_count_kv(header, blocks, n_head)
        if n_head % n_head_kv or head_dim % 4 or rope.dim % 4 or rope.dim > head_dim:
            raise WispError(
                f"{n_head} heads over {n_head_kv} key/value heads of {head_dim} dimensions, {rope.dim} of "
                "them rotated, make no attention that Wisp can run.",
                "corrupt_header",
            )
        if header.arch("attention.value_length", head_dim) != head_dim:
            raise WispError("Values of another length than the keys do not run yet.", "unsupported_architecture")
        return cls(
            block_count=blocks,
            context_length=count(header, "context_length"),
            embedding_length=n_embd,
            feed_forward_length=count(header, "feed_forward_length"),
            head_count=n_head,
            head_count_kv=n_head_kv,
            head_dim=head_dim,
            eps=number(header, f"attention.layer_norm_{'epsilon' if layer_norm else 'rms_epsilon'}"),
            vocab=vocabulary(header),
            ropes=(rope,) * blocks,
            windows=(0,) * blocks,
            attention_scale=head_dim**-0.5,
            causal=switch(header, "attention.causal", True),
            layer_norm=layer_norm,
            mixture=Mixture.from_gguf(header),
        )

    def layer(self: C, i: int) -> C:
        """The hyperparameters as they are in one layer."""
        return self

    def cache_of(self, i: int) -> int:
        """The layer whose keys and values layer i looks at."""
        return i

    @property
    def heads(self) -> tuple[int, int, int]:
        """(n_head, n_head_kv, head_dim)."""
        return self.head_count, self.head_count_kv, self.head_dim
