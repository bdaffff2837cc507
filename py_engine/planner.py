"""From a header to a plan: the architecture, its weights, the cache, and one list of dispatches per way of running.

prefill   up to `batch` tokens through the layers
last      after it: logits of the batch's last token
every     after it: logits of every token, at most EVERY of them (Engine.evaluate)
decode    one token through the layers, and its logits
few       up to FEW tokens, of one sequence or of several, through the layers
few.last  after it: logits of the batch's last token
each      after few: logits of every token; then
choose    the next token of every sequence from them, or
draft     of one sequence, of which the tokens were guesses, as far as they were right; and the next guesses
sample    the next token from the logits: temperature, top_k, top_p, min_p
resample  after it: again, where a mask forbids the token
shaped    instead of sample, with everything that a request can ask for; after it: reshaped
logprobs  after any: log-probabilities of the token and of the likeliest
embed     after prefill: the embedding of every token; then pool.mean, .cls, .last or .rank: one of the sequence

Encoders, whose tokens see those after them, have the first and the last kind only, and take a sequence in one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models import (
    bert,
    cohere,
    embedding,
    exaone,
    falcon,
    gemma,
    gemma4,
    glm4,
    gpt2,
    gpt_oss,
    granite,
    lfm2,
    llama,
    modern_bert,
    olmo2,
    phi3,
    qwen,
    smollm3,
    stablelm,
)
from py_engine.models.config import Config
from py_engine.plan import sampler_ops
from py_engine.plan.cache import Cache, make_cache, make_conv_cache, slack
from py_engine.plan.kernels import Device
from py_engine.plan.ops import FEW, Ops
from py_engine.plan.plan import Plan
from py_engine.plan.rope import Rope, RopeSpec, table
from py_engine.plan.weights import Weights

FAMILIES: dict[str, ModuleType] = {
    "arcee": llama,
    "baichuan": llama,
    "bert": bert,
    "codeshell": gpt2,
    "cohere2": cohere,
    "command-r": cohere,
    "dots1": qwen,
    "ernie4_5": llama,
    "ernie4_5-moe": llama,
    "exaone": exaone,
    "exaone4": exaone,
    "falcon": falcon,
    "gemma": gemma,
    "gemma-embedding": gemma,
    "gemma2": gemma,
    "gemma3": gemma,
    "gemma4": gemma4,
    "glm4": glm4,
    "glm4moe": qwen,
    "gpt-oss": gpt_oss,
    "gpt2": gpt2,
    "gptneox": gpt2,
    "granite": granite,
    "granitemoe": granite,
    "internlm2": llama,
    "jina-bert-v2": bert,
    "jina-bert-v3": bert,
    "lfm2": lfm2,
    "lfm2moe": lfm2,
    "llama": llama,
    "minicpm": granite,
    "mistral3": llama,
    "modern-bert": modern_bert,
    "nemotron": gpt2,
    "nomic-bert": bert,
    "nomic-bert-moe": bert,
    "olmo2": olmo2,
    "olmoe": qwen,
    "orion": stablelm,
    "phi2": gpt2,
    "phi3": phi3,
    "qwen2": qwen,
    "qwen2moe": qwen,
    "qwen2vl": qwen,
    "qwen3": qwen,
    "qwen3moe": qwen,
    "qwen3vl": qwen,
    "qwen3vlmoe": qwen,
    "seed_oss": qwen,
    "smollm3": smollm3,
    "stablelm": stablelm,
    "starcoder": gpt2,
    "starcoder2": gpt2,
    "xverse": llama,
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
    plan = Plan(min(batch, n_ctx) if cfg.causal else max(2, n_ctx), n_ctx, cfg.vocab)
    weights = Weights(header, plan)
    prefill = Ops(plan, "prefill", plan.batch, device)
    spare = slack(plan.batch) if spare is None else spare
    caches: list[Cache] = []
    for i in range(cfg.block_count):
        j = cfg.cache_of(i)
        caches.append(caches[j] if j < i else _cache(cfg.layer(i), prefill, i, kv_type, spare))
    plan.spare = spare if any(c.ring for c in caches) else 0
    tables = {
        spec: _rope(plan, prefill, spec, model.NEOX, f"rope_freqs.{n}", rope_factors)
        for n, spec in enumerate(dict.fromkeys(cfg.ropes))
    }
    ropes = [tables[spec] for spec in cfg.ropes]

    x = model.build(cfg, weights, prefill, ropes, caches)
    plan.embedding = embedding.add_lists(cfg, header, weights, plan, device, x)
    if not cfg.causal:
        return plan
    plan.lazy |= {name for name in plan.lists if name == "embed" or name.startswith("pool.")}
    model.output(cfg, weights, Ops(plan, "last", 1, device), x)
    model.output(cfg, weights, Ops(plan, "every", min(EVERY, plan.batch), device), x, every=True)

    decode = Ops(plan, "decode", 1, device)
    x = model.build(cfg, weights, decode, ropes, caches)
    logits = model.output(cfg, weights, decode, x)
    sampler_ops.sample(Ops(plan, "sample", 1, device), logits)
    sampler_ops.resample(Ops(plan, "resample", 1, device), logits)
    sampler_ops.sample(Ops(plan, "shaped", 1, device), logits, shaped=True)
    sampler_ops.resample(Ops(plan, "reshaped", 1, device), logits, shaped=True)
    sampler_ops.logprobs(Ops(plan, "logprobs", 1, device), logits)
    few = Ops(plan, "few", FEW, device, each=True)
    x = model.build(cfg, weights, few, ropes, caches)
    model.output(cfg, weights, Ops(plan, "few.last", 1, device), x)
    each = model.output(cfg, weights, Ops(plan, "each", FEW, device, each=True), x)
    sampler_ops.choose(Ops(plan, "choose", FEW, device, each=True), each)
    sampler_ops.choose(Ops(plan, "draft", FEW, device, each=True), each, FEW - 1)
    plan.lazy |= {"every", "resample", "shaped", "reshaped", "logprobs", "few", "few.last", "each", "choose", "draft"}
    return plan


def _cache(cfg: Config, ops: Ops, layer: int, kv_type: str, spare: int) -> Cache:
    """A layer's keys and values, or what its convolution is of. An encoder forgets them when the layer is done."""
    plan, cols = ops.plan, cfg.head_count_kv * cfg.head_dim
    if not cfg.causal:
        k, v = (ops.buffer(f"{ops.name}.{name}", (plan.n_ctx, cols)) for name in ("k", "v"))
        return Cache(k, v, "f32", plan.n_ctx)
    if cfg.taps and cfg.taps[layer]:
        return make_conv_cache(plan, layer, cfg.embedding_length, kv_type, cfg.taps[layer], spare)
    return make_cache(plan, layer, cols, kv_type, cfg.windows[layer], spare)


def _rope(plan: Plan, ops: Ops, spec: RopeSpec, neox: bool, name: str, factors: Sequence[float] | None) -> Rope:
    """The table of a rotation, on the device."""
    buffer = ops.buffer(name, (max(4, spec.dim // 2),), "u32", "state")
    plan.constants[name] = table(spec.frequencies(factors)) if spec.dim else bytes(16)
    return Rope(spec.dim, neox, buffer, spec.magnitude)
