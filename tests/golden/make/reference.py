"""A GGUF's forward pass in plain numpy float64: exact arithmetic on the dequantized weights.

llama.cpp rounds activations (8 bits with quantized weights, float16 with float16 weights) and reads GELU from a float16
table; this does neither. The distance between the two is llama.cpp's own noise, and an engine in float32 lands much
closer to the reference than to llama.cpp. No cache, no batching: each call computes everything. Written from
llama.cpp's src/models/*.cpp.
"""

import math
from collections.abc import Sequence

import numpy as np

from tests.golden.make import (
    reference_checkpoints,
    reference_compressed,
    reference_gemma3n,
    reference_qwen4,
    reference_rwkv,
    reference_streams,
    reference_t5,
)
from tests.golden.make.reference_attention import KeysValues, attention
from tests.golden.make.reference_feed_forward import feed_forward, mixture
from tests.golden.make.reference_latent import latent_attention
from tests.golden.make.reference_model import BANNED, PLAIN_NORMS, ReferenceModel, gelu
from tests.golden.make.reference_recurrent import mix

POST_NORM_ENCODERS = {"jina-bert-v3", "bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2"}
OUTPUT_NORMS = {"lfm2": "token_embd_norm", "lfm2moe": "token_embd_norm", "neo-bert": "enc.output_norm"}
ONE_NORM = {"phi2", "cohere2", "cohere2moe", "command-r", "plamo"}  # attention and feed forward read the same norm
MULTIPLIED_LOGITS = {
    "cohere2moe",
    "cohere2",
    "command-r",
    "minicpm3",
    "grok",
    "muse-glimmer",
    "talkie",
}  # by a scale that divides others
CAPPED_LOGITS = {"gemma3n", "muse-glimmer"}  # at 30, where the metadata has no cap
NORMALIZED_EMBEDDINGS = {"muse-glimmer", "talkie"}  # by a norm without weights
POST_NORM_EPSILON = {"muse-glimmer": 1e-8}  # of norms after blocks, where it is not that of other norms


class Reference(ReferenceModel):
    """Evaluates a file."""

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """Logits (n, n_vocab) after each token."""
        output = "output" if "output.weight" in self.tensors else "token_embd"
        y = self.linear(self.hidden(ids), output)
        scale = self.key("logit_scale")
        if scale:
            y = y * scale if self.architecture in MULTIPLIED_LOGITS else y / scale
        if self.architecture == "chameleon":  # it never writes a picture's tokens
            y[:, 4:8196] = BANNED
        cap = self.key("final_logit_softcapping", 30.0 if self.architecture in CAPPED_LOGITS else None)
        return np.asarray(cap * np.tanh(y / cap)) if cap else y

    def embedding(self, ids: Sequence[int], pooling: str) -> np.ndarray:
        """The embedding by pooling none, mean, cls, last or rank, not normalised."""
        hidden = self.hidden(ids)
        if pooling == "rank" and self.architecture == "modern-bert":
            return self.linear(self.norm(gelu(self.linear(hidden.mean(0), "cls")), "cls.norm"), "cls.output")
        if pooling == "rank":
            return self.linear(np.tanh(self.linear(hidden[0], "cls")), "cls.output")
        x = {"none": hidden, "mean": hidden.mean(0), "cls": hidden[0], "last": hidden[-1]}[pooling]
        for name in ("dense_2", "dense_3", *(["output"] if self.architecture == "gemma-embedding2" else [])):
            if name + ".weight" in self.tensors:
                x = self.linear(x, name)
        return x

    def hidden(self, ids: Sequence[int]) -> np.ndarray:
        """Final hidden states (n, width), the output norm included."""
        tokens = np.asarray(ids)
        if self.architecture == "graniteswitch":
            tokens = self.switch(tokens)
        x = self.tensors["token_embd.weight"][tokens]
        if self.architecture.startswith(("gemma", "afmoe")):
            x = x * math.sqrt(self.width)
        x = x * self.key("embedding_scale", 1.0)
        if self.architecture in NORMALIZED_EMBEDDINGS:
            x = self.normalize(x)
        if "position_embd.weight" in self.tensors:
            x = x + self.tensors["position_embd.weight"][: len(ids)]
        if self.architecture == "bloom":
            x = self.norm(x, "token_embd_norm")
        if self.architecture in POST_NORM_ENCODERS:
            return self.encode(x)
        if self.architecture == "modern-bert":
            x = self.norm(x, "token_embd_norm")
        extra = self.per_layer_inputs(ids, x)
        if self.architecture == "gemma3n":
            assert extra is not None
            return self.norm(reference_gemma3n.hidden(self, x, extra), "output_norm")
        if self.architecture == "t5encoder":
            return self.norm(reference_t5.hidden(self, x), "enc.output_norm")
        if self.architecture == "kimi-k3":
            return self.norm(reference_checkpoints.hidden(self, x), "output_norm")
        if self.architecture == "deepseek4":
            return self.norm(reference_compressed.hidden(self, tokens, x), "output_norm")
        if self.architecture == "glm5-next":
            return self.norm(reference_streams.mixed(self, x), "output_norm")
        if self.architecture == "hy_v4":
            return self.norm(reference_streams.hidden(self, x), "output_norm")
        if self.architecture == "qwen4exp":
            return reference_qwen4.hidden(self, tokens, x)
        if self.architecture == "hrm_text":
            return self.stacks(x)
        if "rwkv" in self.architecture:
            return self.norm(reference_rwkv.hidden(self, x), "output_norm")
        shared: dict[int, KeysValues] = {}
        start = x
        for step in range(self.n_layer * self.key("num_loops", 1)):
            layer = step % self.n_layer
            if step and not layer and not self.key("skip_loop_final_norm"):
                x = self.norm(x, "output_norm")
            x = self.layer(x, layer, shared)
            if extra is not None:
                x = self.add_per_layer_input(x, layer, extra[:, layer])
            scale = self.tensors.get(f"blk.{layer}.layer_output_scale.weight")
            if scale is not None:
                x = x + scale * start if self.architecture == "talkie" else x * scale
        return self.norm(x, OUTPUT_NORMS.get(self.architecture, "output_norm"))

    def layer(self, x: np.ndarray, layer: int, shared: dict[int, KeysValues]) -> np.ndarray:
        prefix, arch, start = f"blk.{layer}.", self.architecture, x
        if arch == "deci":
            return self.uneven_layer(x, layer, shared)
        if prefix + "ffn_gate_inp.scale" in self.tensors:  # Gemma 4's mixtures
            mixed = attention(self, self.norm(x, prefix + "attn_norm"), layer, shared)
            return self.normed_networks(x + self.norm(mixed, prefix + "post_attention_norm"), layer)
        if arch in ("arctic", "grok"):
            return self.layer_of_two_networks(x, layer, shared)
        if arch == "minimax-01":
            return self.layer_of_normed_streams(x, layer, shared)
        if self.key("swin_norm"):  # after the blocks; the second one reads what the first one adds
            mixes = self.norm(attention(self, x, layer, shared), prefix + "attn_norm")
            return np.asarray(x + mixes + self.norm(feed_forward(self, mixes, layer), prefix + "ffn_norm"))
        h = self.optional_norm(x, prefix + "attn_norm") if arch not in PLAIN_NORMS else self.normalize(x)
        read = self.norm(x, prefix + "attn_norm_2") if prefix + "attn_norm_2.weight" in self.tensors else h
        if arch.startswith(("mamba", "nemotron_h")):  # one part in each layer
            return x + self.one_part(h, layer)
        if prefix + "attn_kv_a_mqa.weight" in self.tensors:
            mixes = latent_attention(self, read, layer)
        elif self.kv_heads[layer]:
            mixes = attention(self, read, layer, shared)
        else:
            mixes = mix(self, h, layer)
        if arch == "falcon-h1":
            mixes = mixes + mix(self, h, layer)
        one_norm = arch in ONE_NORM or (arch == "stablelm" and prefix + "ffn_norm.weight" not in self.tensors)
        if one_norm or arch == "falcon":
            return np.asarray(x + mixes + feed_forward(self, h, layer))
        if arch == "gptneox" and self.key("use_parallel_residual", True):
            return np.asarray(x + mixes + feed_forward(self, self.norm(x, prefix + "ffn_norm"), layer))
        scale = self.key("residual_scale", 1.0)
        before = prefix + "ffn_norm"
        named_so = arch in ("gpt-oss", "seed_oss", "glm4moe") or arch.startswith(("qwen35", "qwen3next"))
        if named_so:  # the norm before the feed forward
            before = prefix + "post_attention_norm"
        else:
            mixes = self.post_norm(mixes, prefix + "post_attention_norm")
        x = x + scale * mixes
        if arch == "dbrx":
            before = prefix + "attn_output_norm"
        read = self.normalize(x) if arch in PLAIN_NORMS else self.optional_norm(x, before)
        out = feed_forward(self, read, layer, start)
        return np.asarray(x + scale * self.post_norm(out, prefix + "post_ffw_norm"))

    def stacks(self, high: np.ndarray) -> np.ndarray:
        """HRM-Text's low and high stack in turn: each reads the sum of both streams, and replaces its own."""
        stack, low = self.key("hrm.layers_per_stack"), self.tensors["hrm.z_l_init"]
        for _ in range(self.key("hrm.h_cycles")):
            for _ in range(self.key("hrm.l_cycles")):
                low = self.stack(high + low, range(stack))
            high = self.stack(high + low, range(stack, 2 * stack))
        return high

    def stack(self, x: np.ndarray, layers: range) -> np.ndarray:
        for layer in layers:
            x = self.layer(x, layer, {})
        return self.normalize(x)

    def uneven_layer(self, x: np.ndarray, layer: int, shared: dict[int, KeysValues]) -> np.ndarray:
        """Deci's, which may lack attention, or its network, or have a matrix in place of attention."""
        prefix = f"blk.{layer}."
        if self.kv_heads[layer]:
            x = x + attention(self, self.norm(x, prefix + "attn_norm"), layer, shared)
        elif self.layer_heads[layer]:
            x = x + self.linear(self.norm(x, prefix + "attn_norm"), prefix + "attn_output")
        if prefix + "ffn_norm.weight" in self.tensors:
            x = x + feed_forward(self, self.norm(x, prefix + "ffn_norm"), layer)
        return x

    def layer_of_two_networks(self, x: np.ndarray, layer: int, shared: dict[int, KeysValues]) -> np.ndarray:
        """Experts, and for Arctic and Grok 2 a dense network. Arctic's experts read the layer's input."""
        prefix, start = f"blk.{layer}.", x
        mixed = attention(self, self.norm(x, prefix + "attn_norm"), layer, shared)
        x = x + self.optional_norm(mixed, prefix + "attn_output_norm")
        h = self.norm(x, prefix + "ffn_norm")
        if self.architecture == "arctic":
            out = feed_forward(self, self.norm(start, prefix + "ffn_norm_exps"), layer)
            return np.asarray(x + feed_forward(self, h, layer, routed=False) + out)
        out = feed_forward(self, h, layer)
        if prefix + "ffn_up.weight" in self.tensors:
            out = (out + feed_forward(self, h, layer, routed=False)) / math.sqrt(2)
        norms = [name for name in ("layer_output_norm", "post_ffw_norm") if f"{prefix}{name}.weight" in self.tensors]
        return np.asarray(x + self.norm(out, prefix + norms[0]))

    def layer_of_normed_streams(self, x: np.ndarray, layer: int, shared: dict[int, KeysValues]) -> np.ndarray:
        """MiniMax-01's: each part's output is added to its normalised input, scaled."""
        prefix, scale = f"blk.{layer}.", self.key("residual_scale")
        h = self.norm(x, prefix + "attn_norm")
        mixed = attention(self, h, layer, shared) if self.kv_heads[layer] else mix(self, h, layer)
        h = self.norm(scale * h + mixed, prefix + "ffn_norm")
        return np.asarray(scale * h + feed_forward(self, h, layer))

    def normed_networks(self, x: np.ndarray, layer: int) -> np.ndarray:
        """Gemma 4's dense network and experts side by side, with norms of their own. The router has one, too."""
        prefix = f"blk.{layer}."
        dense = feed_forward(self, self.norm(x, prefix + "ffn_norm"), layer, routed=False)
        out = self.norm(dense, prefix + "post_ffw_norm_1")
        routed = self.normalize(x) * self.tensors[prefix + "ffn_gate_inp.scale"] / math.sqrt(self.width)
        experts = mixture(self, self.norm(x, prefix + "pre_ffw_norm_2"), prefix, routed)
        out = out + self.norm(experts, prefix + "post_ffw_norm_2")
        return np.asarray(x + self.norm(out, prefix + "post_ffw_norm"))

    def one_part(self, x: np.ndarray, layer: int) -> np.ndarray:
        """The output of a layer that is either attention, a state or a feed-forward network."""
        if f"blk.{layer}.attn_q.weight" in self.tensors:
            return attention(self, x, layer, {})
        return mix(self, x, layer) if f"blk.{layer}.ssm_in.weight" in self.tensors else feed_forward(self, x, layer)

    def optional_norm(self, x: np.ndarray, name: str) -> np.ndarray:
        return self.norm(x, name) if {name, name + ".weight"} & self.tensors.keys() else x

    def post_norm(self, x: np.ndarray, name: str) -> np.ndarray:
        epsilon, self.epsilon = self.epsilon, POST_NORM_EPSILON.get(self.architecture, self.epsilon)
        y = self.optional_norm(x, name)
        self.epsilon = epsilon
        return y

    def encode(self, x: np.ndarray) -> np.ndarray:
        """BERT: norms after each part, all tokens of type 0."""
        x = self.norm(x + self.tensors["token_types.weight"][0], "token_embd_norm")
        for layer in range(self.n_layer):
            prefix = f"blk.{layer}."
            x = self.norm(x + attention(self, x, layer, {}), prefix + "attn_output_norm")
            x = self.norm(x + feed_forward(self, x, layer), prefix + "layer_output_norm")
        return x

    def per_layer_inputs(self, ids: Sequence[int], x: np.ndarray) -> np.ndarray | None:
        """Gemma 4's embeddings of each layer (n, n_layer, size), mixed with a projection of the first input.

        EmbeddingGemma 2 has the projection only.
        """
        if "per_layer_model_proj.weight" not in self.tensors:
            return None
        size = self.key("embedding_length_per_layer_input")
        projected = self.linear(x, "per_layer_model_proj") / math.sqrt(self.width)
        projected = self.norm(projected.reshape(len(ids), -1, size), "per_layer_proj_norm")
        table = self.tensors.get("per_layer_token_embd.weight")
        if table is None:
            return projected
        own = (table[np.asarray(ids)] * math.sqrt(size)).reshape(projected.shape)
        return np.asarray((projected + own) / math.sqrt(2))

    def add_per_layer_input(self, x: np.ndarray, layer: int, extra: np.ndarray) -> np.ndarray:
        prefix = f"blk.{layer}."
        gated = gelu(self.linear(x, prefix + "inp_gate")) * extra
        return np.asarray(x + self.norm(self.linear(gated, prefix + "proj"), prefix + "post_norm"))
