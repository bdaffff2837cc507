"""The feed-forward net of a mixture of experts: a router, the experts' stacked matrices, perhaps a shared expert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from py_engine import experts
from py_engine.errors import WispError
from py_engine.gguf_header import Header
from py_engine.models.common import count, number, switch
from py_engine.ops import Ops
from py_engine.plan import Buffer, Weight
from py_engine.weights import Weights

if TYPE_CHECKING:
    from py_engine.models.decoder import Config

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


def add_experts(
    cfg: Config, moe: Mixture, w: Weights, ops: Ops, b: str, x: Buffer, h: Buffer, norm: Weight | None
) -> None:
    """x += the mixture's answer to h (normalised with `norm`, where there is one)."""
    n_embd, n_ff, n = cfg.embedding_length, moe.feed_forward_length, moe.expert_count
    if norm:
        h = ops.rms_norm("normed", h, norm, cfg.eps)
    logits = ops.project(
        "router", h, w.matrix(b + "ffn_gate_inp.weight", n, n_embd), w.vector_if_there((b + "ffn_gate_inp.bias", n))
    )
    bias = w.vector_if_there((b + "exp_probs_b.bias", n))
    scale = cfg.residual_scale * moe.scale
    to = experts.route(ops, logits, n, moe.expert_used_count, moe.normalised, scale, moe.gating, bias)
    gate = w.experts(b + "ffn_gate_exps", n, n_ff, n_embd) if b + "ffn_gate_exps.weight" in w else None
    up = w.experts(b + "ffn_up_exps", n, n_ff, n_embd)
    down = w.experts(b + "ffn_down_exps", n, n_embd, n_ff)
    hidden = experts.hidden(ops, to, h, gate, up, n_ff, cfg.activation)
    if shared := w.rows(b + "ffn_up_shexp.weight"):
        _add_shared(cfg, w, ops, b, x, h, shared)
    experts.combine(ops, to, hidden, down, n_embd, x)


def _add_shared(cfg: Config, w: Weights, ops: Ops, b: str, x: Buffer, h: Buffer, n_ff: int) -> None:
    """x += the shared expert's answer to h, by the share that its own gate says."""
    n_embd = cfg.embedding_length
    stack = w.stack([(b + "ffn_gate_shexp.weight", n_ff), (b + "ffn_up_shexp.weight", n_ff)], n_embd)
    hidden = ops.gated(h, None, stack, None, cfg.eps, cfg.activation)
    out = ops.project("out", hidden, w.matrix(b + "ffn_down_shexp.weight", n_embd, n_ff), None)
    own = w.vector_if_there((b + "ffn_gate_inp_shexp.weight", n_embd))
    ops.add_scaled(out, cfg.residual_scale, x, ops.project("shared_gate", h, own, None) if own else None)
