"""The hyperparameters of a model, read from its GGUF metadata and checked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models.common import (
    HEADS,
    block_count,
    count,
    dimension,
    head_count_kv,
    natural,
    number,
    optional_number,
    rope_spec,
    switch,
    uneven_layers,
    vocabulary,
)
from py_engine.models.recurrent import StateSpace
from py_engine.plan.activations import Xielu
from py_engine.plan.attention import Temperature
from py_engine.plan.compressed_attention import CompressedShape
from py_engine.plan.indexer import IndexShape
from py_engine.plan.latent_attention import LatentShape
from py_engine.plan.rope import RopeSpec
from py_engine.plan.shared_constants import MAX_EXPERT_GROUPS
from py_engine.plan.states import StateShape

C = TypeVar("C", bound="Config")
U = TypeVar("U", bound="UnevenConfig")
NO_ROPE = RopeSpec(0)  # of a layer that does not rotate

# llama.cpp reads keys of experts for some architectures only, whatever is in a file of another.
# Architectures that scale the chosen experts' weights to sum to 1, and those whose metadata says whether they do:
NORMALISED = {"llama", "qwen35moe", "qwen3next", "qwen3moe", "qwen3vlmoe", "granitemoe", "granitehybrid", "gpt-oss"}
NORMALISED |= {"lfm2moe", "ernie4_5-moe", "hunyuan-moe", "minimax-m2", "phimoe", "dbrx", "smallthinker"}
NORMALISED |= {"arctic", "gemma4", "grok", "mimo2", "grovemoe", "kimi-linear", "llama-embed", "rnd1"}
NORMALISED |= {"mellum", "maple", "granite_swa", "minimax-01", "qwen4exp"}
NORMALISED_BY_METADATA = {"dots1", "glm4moe", "bailingmoe", "bailingmoe2", "exaone-moe", "afmoe", "deepseek2"}
NORMALISED_BY_METADATA |= {"nemotron_h_moe", "mistral4", "step35", "glm-dsa", "hy_v3", "deepseek32"}
NORMALISED_BY_METADATA |= {"cohere2moe", "laguna", "k2-horizon", "bailingmoe3", "dots3note", "deepseek2-ocr"}
NORMALISED_BY_METADATA |= {"minimax-m3", "hy_v4", "kimi-k3", "glm5-next", "deepseek4"}
SCALED_BY_METADATA = NORMALISED_BY_METADATA | {"deepseek", "kimi-linear"}  # by expert_weights_scale
GATED_BY_METADATA = {"bailingmoe2", "dots1", "minimax-m2", "afmoe", "step35", "mistral4", "lfm2moe", "glm4moe"}
GATED_BY_METADATA |= {"exaone-moe", "smallthinker", "deepseek2", "kimi-linear", "glm-dsa", "hy_v3"}
GATED_BY_METADATA |= {"deepseek32", "cohere2moe", "laguna", "k2-horizon", "bailingmoe3", "dots3note", "deepseek2-ocr"}
GATED_BY_METADATA |= {"minimax-m3", "hy_v4", "kimi-k3", "glm5-next", "deepseek4"}
SIGMOID_BY_DEFAULT = {"step35", "glm4moe", "afmoe", "nemotron_h_moe", "llama4", "mimo2", "glm-dsa", "hy_v3"}
SIGMOID_BY_DEFAULT |= {"cohere2moe", "laguna", "k2-horizon", "glm5-next"}
FLASH_LAYERS, FLASH_VOCAB = (47, 48), 154_880  # of GLM 4.7 Flash, with its layer that predicts ahead or without
GATINGS = {1: "softmax", 2: "sigmoid", 3: "softmax", 4: "sqrt_softplus"}
LAYER_NORMS = {
    "bloom",
    "codeshell",
    "cohere2",
    "command-r",
    "dbrx",
    "falcon",
    "gpt2",
    "gptneox",
    "jais",
    "jais2",
    "mpt",
}
LAYER_NORMS |= {"nemotron", "olmo", "orion", "phi2", "stablelm", "starcoder", "starcoder2", "bert", "jina-bert-v2"}
LAYER_NORMS |= {"jina-bert-v3", "modern-bert", "nomic-bert", "nomic-bert-moe", "rwkv6", "rwkv7"}
DIFFUSION = {"dream", "llada", "llada-moe", "rnd1"}
ROUTER_BIASES = ("exp_probs_b.bias", "exp_probs_b")  # names of tensors: HY V3's has no ending
SOFTMAX_OF_CHOSEN = 3  # without biases, a softmax over all experts with normalised weights


@dataclass(frozen=True)
class Mixture:
    """The number of experts and how they are chosen."""

    expert_count: int
    expert_used_count: int
    feed_forward_length: int  # of an expert
    normalised: bool
    gating: str = "softmax"
    scale: float = 1.0  # factor of the weights
    groups: int = 0  # of experts; 0: none
    groups_used: int = 0
    weighs_inputs: bool = False  # the weights apply to the experts' inputs
    sharing: int = 1  # neighbouring experts that also share a second network
    shared_length: int = 0  # the second network's feed_forward_length
    shared_scale: float = 1.0  # factor of its output
    chosen_by_token: bool = False  # a table has the experts of each token

    @classmethod
    def from_gguf(cls, header: Header) -> Mixture | None:
        """Read and check the metadata. None for a model without experts."""
        if not natural(header, "expert_count"):
            return None
        name = header.architecture
        default = 2 if name in SIGMOID_BY_DEFAULT or _is_glm_flash(header) else 1
        number_of_gating = default
        if name in GATED_BY_METADATA:
            number_of_gating = natural(header, "expert_gating_func", default) or default
        gating, of_chosen = GATINGS.get(number_of_gating), number_of_gating == SOFTMAX_OF_CHOSEN
        biased = any(tensor.endswith(ROUTER_BIASES) for tensor in header.tensors)
        if gating is None or (of_chosen and biased):
            biases = " with biases (exp_probs_b)" if biased else ""
            raise WispError(
                f"Wisp cannot choose experts by {name}.expert_gating_func {number_of_gating}{biases} yet.",
                "unsupported_architecture",
            )
        mixture = cls(
            dimension(header, "expert_count"),
            count(header, "expert_used_count"),
            dimension(header, "expert_feed_forward_length", header.arch("feed_forward_length", 0)),
            name in NORMALISED or of_chosen or _says_normalised(header),
            gating,
            (optional_number(header, "expert_weights_scale") if name in SCALED_BY_METADATA else 0.0) or 1.0,
            *_expert_groups(header),
            name == "llama4",
        )
        if mixture.expert_used_count > mixture.expert_count:
            raise WispError(
                f"{mixture.expert_used_count} of {mixture.expert_count} experts cannot be used.", "corrupt_header"
            )
        return mixture


def _is_glm_flash(header: Header) -> bool:
    """Whether this is GLM 4.7 Flash, whose first files are DeepSeek V2's without a gating; llama.cpp looks at sizes."""
    sizes = natural(header, "block_count"), vocabulary(header)
    return header.architecture == "deepseek2" and sizes in [(n, FLASH_VOCAB) for n in FLASH_LAYERS]


def has_layer_norms(header: Header) -> bool:
    """Whether the norms of the layers are layer norms, which subtract the mean; else RMS norms."""
    return header.architecture in LAYER_NORMS or header.arch("attention.layer_norm_rms_epsilon", None) is None


def _feed_forward_length(header: Header) -> int:
    """The width of the dense layers.

    A mixture without dense layers may state any width; limit it to the largest dimension of a tensor.
    """
    if natural(header, "expert_count"):
        if not header.arch("feed_forward_length", 0):
            return 0
        return min(count(header, "feed_forward_length"), header.largest_dimension)
    return dimension(header, "feed_forward_length")


def _says_normalised(header: Header) -> bool:
    """Whether the metadata, where it counts, says that the chosen experts' weights sum to 1."""
    return header.architecture in NORMALISED_BY_METADATA and switch(header, "expert_weights_norm", False)


def _expert_groups(header: Header) -> tuple[int, int]:
    """The number of groups of experts, and of those that are chosen from; (0, 0) if all are."""
    groups, used = natural(header, "expert_group_count"), natural(header, "expert_group_used_count")
    if groups < 2 or used >= groups:
        return 0, 0
    if not used or groups > MAX_EXPERT_GROUPS or dimension(header, "expert_count") % groups:
        raise WispError(f"{used} of {groups} groups of experts cannot be used.", "corrupt_header")
    return groups, used


@dataclass(frozen=True)
class Config:
    """The hyperparameters by their GGUF names, and the properties that the architecture's name implies."""

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
    windows: tuple[int, ...]  # the sliding window of every layer; 0: none
    attention_scale: float
    conv_kernel_sizes: tuple[int, ...] = ()  # per layer, of the short convolution in place of attention; 0: attention
    attending: tuple[bool, ...] = ()  # per layer: it has attention; empty: all have
    recurrent: tuple[bool, ...] = ()  # per layer: it has a state; empty: none has
    state_space: StateSpace | None = None  # of recurrent layers
    mixture: Mixture | None = None  # of experts
    causal: bool = True  # tokens attend to earlier ones only; else to all
    diffusion: bool = False  # generates by filling in masked tokens; else a model that is not causal is an encoder
    alibi_max_bias: float = 0.0  # 0: no ALiBi
    relative_buckets: int = 0  # of T5's relative positions; 0: none
    decoder_start: int | None = None  # of a decoder beside an encoder: the token that its answers begin with
    layer_norm: bool = False  # layer norms; else RMS norms
    parallel: bool = False  # attention and feed-forward network read the same residual stream
    value_norm: bool = False  # value heads are normalised, too
    plain_norms: bool = False  # the norms of the layers have no weights
    value_dim: int = 0  # dimensions of a value head, if not a key head's
    key_dim: int = 0  # of a key head, if values are longer; head_dim is then theirs
    key_half: int = 0  # dimensions of a key head before zeros, and again, if halves of an odd length are rotated
    value_scale: float = 1.0  # factor of attention's result, where value_dim is given
    unit_qk_norm: bool = False  # queries and keys are normalised without weights
    temperature: Temperature | None = None  # of queries
    chunked: bool = False  # windows are chunks that do not overlap
    norm_groups: int = 1  # parts of a row that are normalised one by one
    head_norms: bool = False  # the weights of the norm of queries and keys, of one dimension, are of each head
    head_layer_norm_eps: float = 0.0  # of layer norms of queries and keys, where the other norms are RMS norms
    norm_after_rope: bool = False  # queries and keys are normalised after their rotation
    single_query_norm: bool = False  # then, the norm of queries has one weight for each head, that of keys has none
    qkv_limit: float = 0.0  # queries, keys and values are clamped to it; 0: they are not
    latent: LatentShape | None = None  # of latent attention; heads are then those after absorption
    compressed: CompressedShape | None = None  # in layer(): of attention to compressed keys
    index: IndexShape | None = None  # in layer(): of the index that chooses the positions which a token attends to
    routes_input: bool = False  # the router of experts reads the layer's input
    shares_kv: bool = False  # the layer has no keys and values: it reads another layer's cache
    activation: str = "silu"
    gate_activation: str = "sigmoid"  # of attention's gates
    expert_activation: str = ""  # of the chosen experts, if it is another one
    xielu: Xielu | None = None  # the activation in place of it
    embedding_norm: str = ""  # the tensor of the embeddings' norm
    attn_norm: str = "attn_norm"  # the tensor of the norm before attention
    ffn_norm: str = "ffn_norm"  # the tensor of the norm before the feed-forward network
    output_norm: str = "output_norm"  # the tensor of the norm after the last layer
    post_norms: tuple[str, str] = ("post_attention_norm", "post_ffw_norm")  # of the norms after the two blocks
    post_norm_eps: float = 0.0  # of these norms; 0: that of the others
    unit_embeddings: bool = False  # embeddings are normalised without weights
    adds_embeddings: bool = False  # each layer adds them again, with a factor of its own
    attention_soft_cap: float = 0.0
    final_soft_cap: float = 0.0
    context_with_media: int = 0  # most positions of a context with pictures or sound, if it is less; 0: it is not
    embedding_scale: float = 1.0
    scaled_media: bool = False  # embeddings of media are scaled as those of tokens are
    residual_scale: float = 1.0
    logit_scale: float = 1.0  # factor of the logits
    banned: tuple[int, int] = (0, 0)  # (first, count) of tokens that are never sampled
    visual_experts: bool = False  # the layers have matrices of their own for tokens of media
    whole_media: str = "all"  # the layers where tokens of a picture may see all of it: "all", "windowed" or none

    def sees_whole_media(self, window: int) -> bool:
        """Whether a token of a picture sees all of it in a layer with that window."""
        return self.whole_media == "all" or (self.whole_media == "windowed" and window > 0)

    @classmethod
    def from_gguf(cls: type[C], header: Header) -> C:
        """Read and check the metadata. WispError missing_metadata, corrupt_header or unsupported_architecture."""
        draft_layers = natural(header, "nextn_predict_layers")  # multi-token prediction, at the end (mtp.py)
        blocks = block_count(header) - draft_layers
        n_embd, n_head = dimension(header, "embedding_length"), dimension(header, "attention.head_count")
        head_dim = cls.key_length(header, max(1, n_embd // n_head), n_head)
        rope = rope_spec(header, count(header, "rope.dimension_count", head_dim))
        layer_norm = has_layer_norms(header)
        n_head_kv = head_count_kv(header, blocks, n_head)
        if blocks < 1 or n_head % n_head_kv or head_dim % 2 or rope.dim % 2 or rope.dim > head_dim:
            raise WispError(
                f"Wisp cannot run {blocks} layers of attention with {n_head} heads, {n_head_kv} key/value heads and "
                f"{head_dim} dimensions per head, {rope.dim} of them rotated.",
                "corrupt_header",
            )
        if cls.value_length(header, head_dim) != head_dim:
            raise WispError("Keys and values of different lengths are not supported yet.", "unsupported_architecture")
        return cls(
            block_count=blocks,
            context_length=count(header, "context_length"),
            embedding_length=n_embd,
            feed_forward_length=_feed_forward_length(header),
            head_count=n_head,
            head_count_kv=n_head_kv,
            head_dim=head_dim,
            eps=number(header, f"attention.layer_norm_{'epsilon' if layer_norm else 'rms_epsilon'}"),
            vocab=vocabulary(header),
            ropes=(rope,) * blocks,
            windows=(0,) * blocks,
            attention_scale=head_dim**-0.5,
            causal=header.architecture not in DIFFUSION and switch(header, "attention.causal", True),
            diffusion=header.architecture in DIFFUSION,
            layer_norm=layer_norm,
            mixture=Mixture.from_gguf(header),
        )

    @classmethod
    def key_length(cls, header: Header, default: int, n_head: int) -> int:
        """Dimensions of a key head. The queries have `n_head` heads of this size."""
        return dimension(header, "attention.key_length", default, n_head)

    @classmethod
    def value_length(cls, header: Header, head_dim: int) -> int:
        """Dimensions of a value head, which must be a key head's."""
        return count(header, "attention.value_length", head_dim)

    @property
    def attention_cols(self) -> int:
        """Columns of attention's result."""
        return self.head_count * (self.latent.value if self.latent else self.value_dim or self.head_dim)

    def need_mixture(self, name: str) -> None:
        """Check that there are experts. WispError unsupported_architecture. `name`: of the architecture."""
        if self.mixture is None:
            raise WispError(f"{name} without experts is not supported.", "unsupported_architecture")

    def layer(self: C, i: int) -> C:
        """The hyperparameters of layer i."""
        return self

    def cache_layer(self, i: int) -> int:
        """The layer whose cache layer i reads."""
        return i

    def attends(self, i: int) -> bool:
        """Whether layer i has attention."""
        return not self.attending or self.attending[i]

    def has_state(self, i: int) -> bool:
        """Whether layer i is recurrent."""
        return bool(self.recurrent) and self.recurrent[i]

    @property
    def state_shape(self) -> StateShape | None:
        """The shape of a recurrent layer's state, if there are any."""
        return self.state_space.shape if self.state_space else None

    @property
    def heads(self) -> tuple[int, int, int]:
        """(n_head, n_head_kv, head_dim)."""
        return self.head_count, self.head_count_kv, self.head_dim


def check_windows(header: Header, cfg: Config) -> None:
    """Refuse other sizes of heads, or of their rotated part, in layers with a window. Few architectures have them."""
    windowed = [i for i, window in enumerate(cfg.windows) if window]
    heads, rotated = {cfg.layer(i).head_dim for i in windowed}, {cfg.ropes[i].dim for i in windowed} - {0}
    for key, sizes in (("attention.key_length_swa", heads), ("rope.dimension_count_swa", rotated)):
        found = natural(header, key)
        if found and sizes - {found}:
            raise WispError(
                f"{header.architecture}.{key} {found} is not supported, only {max(sizes)}.", "unsupported_architecture"
            )


@dataclass(frozen=True)
class UnevenConfig(Config):
    """The hyperparameters of layers with other heads, from common.uneven_layers(). Where layers differ: the largest."""

    layers: tuple[tuple[int, ...], ...] = ()  # of every layer: heads, key/value heads

    @classmethod
    def of_layers(cls: type[U], header: Header, blocks: int) -> U:
        """Read the metadata of so many layers."""
        layers, largest = uneven_layers(header, HEADS, blocks)
        base = super().from_gguf(largest)
        return replace(base, layers=layers, head_count_kv=max(kv for _, kv in layers))

    def layer(self: U, i: int) -> U:
        """The hyperparameters of layer i."""
        heads, kv_heads = self.layers[i]
        return replace(self, head_count=heads, head_count_kv=kv_heads)
