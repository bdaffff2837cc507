"""From a header to a plan: the architecture, its weights, the cache, and one list of dispatches per way of running.

prefill   up to `batch` tokens through the layers
last      after it: logits of the batch's last token, and a sampled token
every     after it: logits of every token, at most EVERY of them (Engine.evaluate)
decode    one token through the layers, its logits, the next token
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from py_engine.errors import WispError
from py_engine.gguf_header import Header
from py_engine.kernels import Device
from py_engine.models import llama
from py_engine.ops import Ops
from py_engine.plan import Plan
from py_engine.rope import Rope, frequencies, table
from py_engine.weights import Weights

FAMILIES: dict[str, ModuleType] = {"llama": llama}
EVERY = 16


def family(header: Header) -> ModuleType:
    """The model module of the file's architecture; WispError unsupported_architecture."""
    if header.architecture not in FAMILIES:
        raise WispError(
            f"Models of the architecture {header.architecture!r} do not run yet; these do: {', '.join(FAMILIES)}.",
            "unsupported_architecture",
        )
    return FAMILIES[header.architecture]


def make_plan(
    header: Header, device: Device, n_ctx: int, batch: int, kv_type: str, rope_factors: Sequence[float] | None
) -> Plan:
    """Plan the model for a device. `rope_factors`: the values of rope_freqs.weight where the file has it."""
    model = family(header)
    cfg = model.Config.from_gguf(header)
    plan = Plan(min(batch, n_ctx), n_ctx, cfg.vocab)
    weights = Weights(header, plan)
    prefill = Ops(plan, "prefill", plan.batch, device)
    decode = Ops(plan, "decode", 1, device)
    shape = (n_ctx, cfg.head_count_kv * cfg.head_dim)
    caches = [
        (prefill.buffer(f"k.{i}", shape, kv_type, "kv"), prefill.buffer(f"v.{i}", shape, kv_type, "kv"))
        for i in range(cfg.block_count)
    ]
    freqs = frequencies(cfg.rope_dim, cfg.rope_freq_base, rope_factors, cfg.rope_linear)
    rope = Rope(cfg.rope_dim, model.NEOX, prefill.buffer("rope_freqs", (cfg.rope_dim // 2,), "u32", "state"))
    plan.constants["rope_freqs"] = table(freqs)

    x = model.build(cfg, weights, prefill, rope, caches)
    norm, matrix = model.output(cfg, weights)
    last = Ops(plan, "last", 1, device)
    last.sample(last.head(x, norm, matrix, cfg.eps))
    Ops(plan, "every", min(EVERY, plan.batch), device).head(x, norm, matrix, cfg.eps, every=True)

    x = model.build(cfg, weights, decode, rope, caches)
    decode.sample(decode.head(x, norm, matrix, cfg.eps))
    return plan
