"""A mixture of experts in a block of an encoder: dots3-note's, whose later blocks have more experts than earlier ones.

Source: llama.cpp's `clip_graph::build_moe_ffn` in tools/mtmd.
"""

from __future__ import annotations

from py_engine.errors import WispError
from py_engine.models.projectors.stages import Stages
from py_engine.plan import experts
from py_engine.plan.plan import Buffer
from py_engine.plan.routing import Routing, choose_experts

AFTER = ("ls2.weight", "ffn_post_norm.weight", "out_scale.weight")  # no published encoder has these beside experts


def has_experts(s: Stages, b: str) -> bool:
    """Whether the block has experts in place of one network."""
    return s.tower.experts_used > 0 and b + "ffn_gate_exps.weight" in s.w


def add(s: Stages, b: str, normed: Buffer, x: Buffer) -> None:
    """x += the mixture's output for `normed`, the normalised rows of x."""
    tower, w, ops, n = s.tower, s.w, s.ops, s.tower.embedding_length
    if tower.activation != "silu" or any(b + name in w for name in AFTER):
        raise WispError("This kind of projector is not supported yet.", "unsupported_architecture")
    count, limit = w.rows(b + "ffn_gate_inp.weight"), ops.device.max_binding
    n_ff = w.rows(b + "ffn_gate_exps.weight")
    logits = ops.project("router", normed, w.matrix(b + "ffn_gate_inp.weight", count, n), None)
    bias = w.optional_vector((b + "exp_probs_b.weight", count))
    routing = Routing(count, min(tower.experts_used, count), normalised=True, gating="sigmoid", bias=bias)
    inputs = w.experts([b + "ffn_gate_exps", b + "ffn_up_exps"], count, n_ff, n, limit)
    down = w.experts([b + "ffn_down_exps"], count, n, n_ff, limit)[0]
    network = experts.ExpertNetwork(inputs, down, n_ff, "silu", gated=True)
    experts.combine(ops, experts.hidden(ops, choose_experts(ops, logits, routing), normed, network), down, x)
