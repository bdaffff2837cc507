"""The feed-forward network of a mixture of experts: a router, the experts' matrices, perhaps a shared expert."""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.models.config import ROUTER_BIASES, Config, Mixture
from py_engine.plan import experts
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.routing import Routing, choose_experts
from py_engine.plan.rows import zero
from py_engine.plan.weights import ExpertMatrices, Weights


@dataclass(frozen=True)
class ExpertLayer:
    """The experts of one layer. `b`: the prefix of its tensors' names."""

    cfg: Config
    moe: Mixture
    w: Weights
    ops: Ops
    b: str

    def router(self, h: Buffer, norm: Weight | None) -> Buffer:
        """The router's logits (n, experts) for h (normalised with `norm`, if given)."""
        n, name = self.moe.expert_count, self.b + "ffn_gate_inp"
        matrix = self.w.matrix(name + ".weight", n, self.cfg.embedding_length)
        bias = self.w.optional_vector((name + ".bias", n))
        return self.ops.normed_stack("router", h, Projection([matrix], bias, norm, self.cfg.eps))

    @property
    def width(self) -> int:
        """Columns of the experts' inputs and outputs: those of a latent, if a matrix before the experts makes one."""
        return self.w.rows(self._latent_tensor("down")) or self.cfg.embedding_length

    def _latent_tensor(self, part: str) -> str:
        """The matrix to the experts' latents, or back from them: Nemotron-H's or Kimi K3's."""
        kind = "routed" if self.b + "ffn_routed_down.weight" in self.w else "latent"
        return f"{self.b}ffn_{kind}_{part}.weight"

    def add(self, x: Buffer, h: Buffer, norm: Weight | None, logits: Buffer | None = None) -> None:
        """x += the mixture's output for h (normalised with `norm`, if given). `logits`: the router's, if not for h."""
        cfg, moe, w, ops, b = self.cfg, self.moe, self.w, self.ops, self.b
        n_embd = cfg.embedding_length
        if norm and not ops.small_batch:  # a small batch's products normalise their input themselves
            h, norm = ops.normed_input(h, norm, cfg.eps), None
        logits = logits or self.router(h, norm)
        latent = self._latent(h, norm)
        hidden, down = self.hidden(latent, None, logits) if latent else self.hidden(h, norm, logits)
        shared_rows, post_norm = w.rows(b + "ffn_up_shexp.weight"), f"{b}{cfg.post_norms[1]}.weight"
        if cfg.post_norms[1] and post_norm in w:
            if not shared_rows:
                raise WispError("A norm after experts needs a shared expert.", "unsupported_architecture")
            out = ops.project("experts_out", *self._shared(h, norm, shared_rows), None)
            experts.combine(ops, hidden, down, out)
            ops.add_norm(out, w.vector((post_norm, n_embd)), x, cfg.eps)
            return
        if shared_rows:
            if (gate := b + "ffn_gate_inp_shexp.weight") in w:
                matrix = w.matrix(gate, 1, n_embd)
                opened = ops.normed_stack("shared_gate", h, Projection([matrix], None, norm, cfg.eps))
                out = ops.project("out", *self._shared(h, norm, shared_rows), None)
                ops.add_scaled(out, cfg.residual_scale, x, opened)
            else:
                ops.linear(*self._shared(h, norm, shared_rows), None, x, cfg.residual_scale)
        if moe.sharing > 1:
            hidden, down = self._second_hidden(self._add_output(x, hidden, down), logits)
        if latent:
            up, out = w.matrix(self._latent_tensor("up"), n_embd, self.width), self._combined(latent, hidden, down)
            if own_norm := w.optional_vector((b + "ffn_routed_norm.weight", self.width)):
                out = ops.rms_norm("routed", out, own_norm, cfg.eps)
            ops.linear(out, up, None, x)
        else:
            experts.combine(ops, hidden, down, x)

    def _latent(self, h: Buffer, norm: Weight | None) -> Buffer | None:
        """The experts' input (n, width), where it is not h itself but a latent of h."""
        if (tensor := self._latent_tensor("down")) not in self.w:
            return None
        matrix = self.w.matrix(tensor, self.width, self.cfg.embedding_length)
        return self.ops.normed_stack("expert_latent", h, Projection([matrix], None, norm, self.cfg.eps))

    def hidden(
        self, h: Buffer, norm: Weight | None, logits: Buffer | None = None
    ) -> tuple[experts.Hidden, ExpertMatrices]:
        """The chosen experts' hidden layers for h (normalised with `norm`, if given), and the matrices after them."""
        routing = self._routing()
        network = self._network("exps", self.moe.expert_count, self.moe.feed_forward_length, norm)
        route = choose_experts(self.ops, logits or self.router(h, norm), routing)
        return experts.hidden(self.ops, route, h, network), network.down

    def _second_hidden(self, x: Buffer, logits: Buffer) -> tuple[experts.Hidden, ExpertMatrices]:
        """As hidden(), of the second networks, which neighbouring experts share."""
        moe = self.moe
        routing = replace(self._routing(), sharing=moe.sharing, scale=moe.shared_scale, factors=None)
        routing = replace(routing, used=min(routing.used, routing.networks))
        network = self._network("chexps", routing.networks, moe.shared_length, None)
        return experts.hidden(self.ops, choose_experts(self.ops, logits, routing), x, network), network.down

    def _routing(self) -> Routing:
        moe, down = self.moe, self.b + "ffn_down_exps"
        # Fold ffn_down_exps.scale into the routing weights. Not possible if weights apply to the input, or with a bias.
        scales_weight = not moe.weighs_inputs and down + ".bias" not in self.w
        factors = self.w.scale(down, moe.expert_count) if scales_weight else None
        return Routing(
            moe.expert_count,
            moe.expert_used_count,
            moe.normalised,
            self.cfg.residual_scale * moe.scale,
            moe.gating,
            self._router_bias(),
            moe.groups,
            moe.groups_used,
            factors=factors,
            table=self._token_table(),
        )

    def _token_table(self) -> Weight | None:
        """The table of each token's experts, if the layer chooses them by the token."""
        tensor = self.b + "ffn_gate_tid2eid.weight"
        if not self.moe.chosen_by_token:
            return None
        return self.w.integers(tensor, self.cfg.vocab, self.moe.expert_used_count)

    def _router_bias(self) -> Weight | None:
        """What is added to the probabilities when experts are chosen, if the file has it."""
        names = [self.b + name for name in ROUTER_BIASES if self.b + name in self.w]
        return self.w.vector((names[0], self.moe.expert_count)) if names else None

    def output(self, h: Buffer, norm: Weight, logits: Buffer) -> Buffer:
        """The mixture's output for h (normalised with `norm`): (n, n_embd). `logits`: the router's."""
        if not self.ops.small_batch:  # a small batch's products normalise their input themselves
            return self._combined(h, *self.hidden(self.ops.normed_input(h, norm, self.cfg.eps), None, logits))
        return self._combined(h, *self.hidden(h, norm, logits))

    def _combined(self, x: Buffer, hidden: experts.Hidden, down: ExpertMatrices) -> Buffer:
        """The weighted sum of the chosen experts' outputs, (n, width). x: any buffer of that shape."""
        ops = self.ops
        out = ops.rows("experts_out", self.width)
        zero(ops, x, out, self.width)
        experts.combine(ops, hidden, down, out)
        return out

    def _add_output(self, x: Buffer, hidden: experts.Hidden, down: ExpertMatrices) -> Buffer:
        """x += the mixture's output, which is returned: (n, n_embd)."""
        out = self._combined(x, hidden, down)
        self.ops.add_scaled(out, 1.0, x)
        return out

    def _network(self, kind: str, n: int, n_ff: int, norm: Weight | None) -> experts.ExpertNetwork:
        """The n networks in the tensors `kind`, for an input normalised with `norm`, if given."""
        cfg, w, b, limit = self.cfg, self.w, self.b, self.ops.device.max_binding
        joined, width = f"{b}ffn_gate_up_{kind}.weight", self.width
        activation = cfg.expert_activation or cfg.activation
        # limits are of gated activations: without the gates, experts() names the tensor that is missing
        gated = joined in w or f"{b}ffn_gate_{kind}.weight" in w or "<" in activation
        names = [f"{b}ffn_{part}_{kind}" for part in (("gate", "up") if gated else ("up",))]
        return experts.ExpertNetwork(
            w.gated_experts(joined, n, n_ff, width, limit) if joined in w else w.experts(names, n, n_ff, width, limit),
            w.experts([f"{b}ffn_down_{kind}"], n, width, n_ff, limit)[0],
            n_ff,
            activation,
            gated,
            norm,
            cfg.eps,
            self.moe.weighs_inputs,
        )

    def _shared(self, h: Buffer, norm: Weight | None, rows: int) -> tuple[Buffer, Weight]:
        """The shared expert's hidden layer for h (normalised), and the matrix after it. `rows`: of its ffn_up."""
        cfg, w, ops, b = self.cfg, self.w, self.ops, self.b
        n_embd, down = cfg.embedding_length, b + "ffn_down_shexp.weight"
        joined = b + "ffn_gate_shexp.weight" not in w and rows == 2 * w.cols(down)  # Granite's: gates, then inputs
        gated = b + "ffn_gate_shexp.weight" in w or ("<" in cfg.activation and not joined)
        parts = ("gate", "up") if gated else ("up",)
        stack = w.stack([(f"{b}ffn_{part}_shexp.weight", rows) for part in parts], n_embd)
        projection = Projection(stack, None, norm, cfg.eps)
        hidden = (ops.gated if joined or gated else ops.activated)(h, projection, cfg.activation)
        return hidden, w.matrix(down, n_embd, rows // 2 if joined else rows)
