"""Multi-token prediction layers (MTP, "nextn"): a layer after the last one that predicts the token after the next one.

Its input joins the embedding of a token with the model's hidden state of the token before, after the model's last
norm. The rest is an ordinary layer with attention. Embeddings and head are the model's own; copies of them, which some
files have, are not loaded. The model's lists fill its cache, so it has seen whatever the model has seen. To draft
further tokens, it goes on from its own hidden state.
Sources: DeepSeek-V3's report (2.2) and llama.cpp's `draft-mtp`.
"""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.files.gguf_header import Header
from py_engine.models.common import block_count, natural
from py_engine.models.config import Config
from py_engine.models.decoder import Layer
from py_engine.models.mixture import ExpertLayer
from py_engine.plan.cache import Cache
from py_engine.plan.mtp import InputNorms, mtp_input
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.rope import Rope
from py_engine.plan.weights import Weights

ARCHITECTURES = ("deepseek2", "deepseek32", "glm-dsa", "glm4moe", "hy_v3", "qwen35", "qwen35moe", "qwen3next")
NEEDED = ("eh_proj", "enorm", "hnorm")


def mtp_block(header: Header) -> int | None:
    """The number of the file's first MTP layer, if Wisp can draft with it."""
    layers = natural(header, "nextn_predict_layers", 0)
    if header.architecture not in ARCHITECTURES or not layers:
        return None
    first = block_count(header) - layers
    has_all = all(f"blk.{first}.nextn.{name}.weight" in header.tensors for name in NEEDED)
    return first if has_all else None


@dataclass(frozen=True)
class MtpLayer:
    """The MTP layer of a model."""

    cfg: Config
    w: Weights
    block: int
    rope: Rope
    cache: Cache

    def fill(self, ops: Ops, x: Buffer) -> None:
        """Append the layer's keys and values of the batch. `x`: the model's last hidden state (n, n_embd)."""
        cfg = self.cfg
        hidden = ops.rms_norm("mtp.hidden", x, self._vector(cfg.output_norm), cfg.eps)
        self._layer(ops).append_keys(self._input(ops, hidden), self.cache)

    def predict(self, ops: Ops, logits: Buffer, previous: Buffer | None = None) -> Buffer:
        """Append the layer and its head for a token of each sequence of a batch; return its hidden states.

        `logits`: where to put them. `previous`: the hidden states of the tokens before, as this returns them; None: the
        model's.
        """
        x, layer, cfg = self._input(ops, previous, from_layer=previous is not None), self._layer(ops), self.cfg
        layer.add_attention(layer.attention(x, self.cache), x)
        if cfg.mixture and layer.b + "ffn_gate_inp.weight" in self.w:
            norm = self._vector(layer.b + cfg.ffn_norm)
            ExpertLayer(cfg, cfg.mixture, self.w, ops, layer.b).add(x, x, norm)
        else:
            layer.add_feed_forward(layer.feed_forward(x), x)
        norm_name = self._name("shared_head_norm")
        norm = self._vector(norm_name if norm_name + ".weight" in self.w else cfg.output_norm)
        hidden = ops.buffer(f"mtp.predicted.{ops.batch}", x.shape)
        ops.norm_into(hidden, x, norm, cfg.eps)
        ops.head(
            hidden, Projection([self._table("output" if "output.weight" in self.w else "token_embd")]), logits=logits
        )
        return hidden

    def _layer(self, ops: Ops) -> Layer:
        return Layer(self.cfg, self.w, ops, f"blk.{self.block}.", self.rope, 0)

    def _input(self, ops: Ops, hidden: Buffer | None, *, from_layer: bool = False) -> Buffer:
        """The layer's input (n, n_embd). `hidden`: the hidden states that plan/mtp.py reads."""
        n = self.cfg.embedding_length
        e = ops.embed(self._table("token_embd"), self.cfg.embedding_scale, name="mtp.embedded")
        norms = self.w.vector(*((self._name(name) + ".weight", n) for name in ("enorm", "hnorm")))
        joined = mtp_input(ops, e, hidden, n, InputNorms(norms, self.cfg.eps), from_layer=from_layer)
        return ops.project("mtp", joined, self.w.matrix(self._name("eh_proj") + ".weight", n, 2 * n), None)

    def _name(self, tensor: str) -> str:
        return f"blk.{self.block}.nextn.{tensor}"

    def _vector(self, name: str) -> Weight:
        return self.w.vector((name + ".weight", self.cfg.embedding_length))

    def _table(self, name: str) -> Weight:
        """A matrix (vocab, n_embd) of the model."""
        return self.w.matrix(name + ".weight", self.cfg.vocab, self.cfg.embedding_length)
