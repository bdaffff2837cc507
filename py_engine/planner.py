"""From a header to a plan: the architecture, its weights, the cache, and one list of dispatches per way of running.

prefill   up to `batch` tokens through the layers
last      after it: logits of the batch's last token
every     after it: logits of every token, at most EVERY of them (Engine.evaluate)
decode    one token through the layers, and its logits
sample    the next token from the logits: temperature, top_k, top_p, min_p
resample  after it: again, where a mask forbids the token
shaped    instead of sample, with everything that a request can ask for; after it: reshaped
logprobs  after any: log-probabilities of the token and of the likeliest
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from py_engine import sampler_ops
from py_engine.cache import make_cache, slack
from py_engine.errors import WispError
from py_engine.gguf_header import Header
from py_engine.kernels import Device
from py_engine.models import cohere2, gemma, gpt2, gpt_oss, granite, llama, olmo2, phi3, qwen, smollm3, stablelm
from py_engine.ops import Ops
from py_engine.plan import Plan
from py_engine.rope import Rope, RopeSpec, table
from py_engine.weights import Weights

FAMILIES: dict[str, ModuleType] = {
    "cohere2": cohere2,
    "gemma": gemma,
    "gemma2": gemma,
    "gemma3": gemma,
    "gpt-oss": gpt_oss,
    "gpt2": gpt2,
    "gptneox": gpt2,
    "granite": granite,
    "granitemoe": granite,
    "llama": llama,
    "olmo2": olmo2,
    "olmoe": qwen,
    "phi2": gpt2,
    "phi3": phi3,
    "qwen2": qwen,
    "qwen2moe": qwen,
    "qwen3": qwen,
    "qwen3moe": qwen,
    "smollm3": smollm3,
    "stablelm": stablelm,
    "starcoder2": gpt2,
}
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
    header: Header, device: Device, n_ctx: int, batch: int, kv_type: str, rope_factors: Sequence[float] | None,
    spare: int | None = None,
) -> Plan:  # fmt: skip
    """Plan the model for a device. `rope_factors`: the divisors of RoPE's frequencies where the file has them; `spare`:
    rows of a sliding window's cache beside the window.
    """
    model = family(header)
    cfg = model.Config.from_gguf(header)
    plan = Plan(min(batch, n_ctx), n_ctx, cfg.vocab)
    weights = Weights(header, plan)
    prefill = Ops(plan, "prefill", plan.batch, device)
    decode = Ops(plan, "decode", 1, device)
    cols = cfg.head_count_kv * cfg.head_dim
    spare = slack(plan.batch) if spare is None else spare
    caches = [make_cache(plan, i, cols, kv_type, cfg.windows[i], spare) for i in range(cfg.block_count)]
    plan.spare = spare if any(c.ring for c in caches) else 0
    tables = {
        spec: _rope(plan, prefill, spec, model.NEOX, f"rope_freqs.{n}", rope_factors)
        for n, spec in enumerate(dict.fromkeys(cfg.ropes))
    }
    ropes = [tables[spec] for spec in cfg.ropes]

    x = model.build(cfg, weights, prefill, ropes, caches)
    model.output(cfg, weights, Ops(plan, "last", 1, device), x)
    model.output(cfg, weights, Ops(plan, "every", min(EVERY, plan.batch), device), x, every=True)

    x = model.build(cfg, weights, decode, ropes, caches)
    logits = model.output(cfg, weights, decode, x)
    sampler_ops.sample(Ops(plan, "sample", 1, device), logits)
    sampler_ops.resample(Ops(plan, "resample", 1, device), logits)
    sampler_ops.sample(Ops(plan, "shaped", 1, device), logits, shaped=True)
    sampler_ops.resample(Ops(plan, "reshaped", 1, device), logits, shaped=True)
    sampler_ops.logprobs(Ops(plan, "logprobs", 1, device), logits)
    plan.lazy |= {"resample", "shaped", "reshaped", "logprobs"}
    return plan


def _rope(plan: Plan, ops: Ops, spec: RopeSpec, neox: bool, name: str, factors: Sequence[float] | None) -> Rope:
    """The table of a rotation, on the device."""
    buffer = ops.buffer(name, (max(4, spec.dim // 2),), "u32", "state")
    plan.constants[name] = table(spec.frequencies(factors)) if spec.dim else bytes(16)
    return Rope(spec.dim, neox, buffer, spec.magnitude)
