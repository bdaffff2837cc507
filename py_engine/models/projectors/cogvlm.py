"""CogVLM's encoder of pictures: its norms follow attention and the network. Rows of the file begin and end the tokens.

Source: cogvlm.cpp in llama.cpp's tools/mtmd/models.
"""

from __future__ import annotations

from py_engine.errors import WispError
from py_engine.models.projectors import block
from py_engine.models.projectors.heads import EPS, between, finish, hidden, merge
from py_engine.models.projectors.stages import Stages
from py_engine.plan.encoder import EncoderPlan
from py_engine.plan.ops import AttentionOptions, Projection
from py_engine.plan.plan import Buffer


class Block(block.Block):
    """A block whose norms are of what it adds."""

    def add(self, x: Buffer) -> None:
        """x += norm(attention); x += norm(feed-forward network)."""
        s, w, ops, b, n = self.stages, self.stages.w, self.ops, self.b, self.stages.tower.embedding_length
        if b + "ffn_gate.weight" in w:
            raise WispError("CogVLM's blocks have no gates.", "unsupported_architecture")
        queries = ops.split_qkv(block.qkv(s, x, b), self.cache, s.tower.heads, self.rope, None, self.norms.eps)
        attended = ops.attention(queries, self.cache, s.tower.heads, AttentionOptions(self.scale, causal=False))
        y = ops.project("out", attended, w.matrix(b + "attn_out.weight", n, n), w.vector((b + "attn_out.bias", n)))
        ops.add_scaled(self.norms.apply(b + "ln1", y, "normed"), 1.0, x)
        mid, width = hidden(s, x, b + "ffn_up", n, s.tower.activation)
        bias = w.optional_vector((b + "ffn_down.bias", n))
        y = ops.project("out", mid, w.matrix(b + "ffn_down.weight", n, width), bias)
        ops.add_scaled(self.norms.apply(b + "ln2", y, "normed"), 1.0, x)


def build(s: Stages, x: Buffer) -> EncoderPlan:
    """The end of the encoder: a layer with a norm, then a gated network."""
    w, width = s.w, s.w.rows("mm.model.fc.weight")
    if not s.tower.class_rows:
        raise WispError("The projector lacks the tensor v.class_embd.", "missing_tensor")
    x = merge(s, x)
    ops, norms = s.ops, block.Norms(s, rms=False, eps=EPS)
    y = ops.project("fc", x, w.matrix("mm.model.fc.weight", width, s.tower.embedding_length), None)
    y = norms.apply("mm.post_fc_norm", y, "fc_norm", cols=width)
    y = ops.activate(y, ops.rows("fc_activated", width, ops.input_dtype), width, "gelu", gated=False)
    inner = w.rows("mm.up.weight")
    stack = w.stack([(name + ".weight", inner) for name in ("mm.gate", "mm.up")], width)
    return between(s, finish(s, ops.gated(y, Projection(stack), "silu"), "mm.down", inner), ["v.boi", "v.eoi"])
