"""From a GGUF header to a plan: the architecture, its weights, its caches, and the lists of ops that a runner executes.

Prompts
    PREFILL             up to `batch` tokens through the layers
    MEDIA               PREFILL where tokens belong to pictures or sounds (plan/media.py)
    PACKED              tokens of several sequences through the layers; each sees only its own sequence
    PACKED_LAST         after PACKED: the last hidden states of its sequences become what SMALL_BATCH_LOGITS reads
    LAST_LOGITS         after PREFILL: logits of the batch's last token
    ALL_LOGITS          after it: logits of every token, ALL_LOGITS_BATCH at most (Engine.evaluate)
    EMBED               after PREFILL or PACKED: the embedding of every token
    TOKEN_ROWS          after PREFILL: what its first layer reads of every token, where MEDIA may replace it
    pool("...")         after PACKED and EMBED: the embedding of every sequence; then NORMALIZE
One sequence
    DECODE              one token through the layers, and its logits
    GREEDY, DRAW, SAMPLE   the next token from the logits: the likeliest; with temperature and min_p; with every filter
    SHAPED_GREEDY ...   the same three with bias, penalties and DRY
    MASKED_GREEDY ...   the same three after any of them: again with all of it, if a mask forbids the token
    LOGPROBS            after any of them: log-probabilities of the token and of the likeliest
Small batches: up to Plan.max_small_batch tokens, of one sequence or of several
    SMALL_BATCH         the tokens through the layers
    SMALL_BATCH_LAST_LOGITS   after it: logits of the last token
    SMALL_BATCH_LOGITS  after it: logits of every token; then one of these two:
    each(a list above)  what that list does for one sequence, for every sequence
    verify(a sampler)   one sequence: accept the draft up to the first token that differs from its sample; draft again

Encoders have PREFILL, PACKED, EMBED and the pooling lists only, and take a sequence in one batch.

An encoder-decoder model's PREFILL is its encoder, which takes a prompt in one batch and fills the part of the caches
that cross-attention reads (plan/encoder_decoder.py). DECODE and the lists of small batches are the decoder's. It has no
list for logits after PREFILL, and none for embeddings.

Diffusion models take a sequence in one batch, too. Their DECODE and SMALL_BATCH compute no layers: they read what
PREFILL has left, at any positions (plan/diffusion.py). They have no other list for one sequence or a small batch.

A model with LoRA adapters or control vectors has these lists twice: as if it had none, and as adapted(a list above),
where that differs. adapted_lists.py picks. PREFILL, PACKED and MEDIA also exist as short(a list above) and
medium(a list above), with tiles for at most 64 and 256 tokens, and as long(a list above), with tiles for more than 512;
PREFILL, short() and medium(PREFILL) also with split_attention(), for few tokens late in a context.

With a draft model there are four lists of its own, and DRAFT_BEGIN and DRAFT_END between its steps and the model's
(plan/draft.py). If the model drafts by its own MTP layer (models/mtp.py) or by an EAGLE-3 head (models/eagle.py), the
lists of prompts, of one sequence and of small batches also fill that layer's cache, and MTP and MTP_NEXT draft. With
Gemma 4's assistant (models/gemma4_assistant.py) they store hidden states instead. With a DFlash model
(models/dflash.py) they fill its layers' caches, and DRAFT_BLOCK and DRAFT_BLOCK_LOGITS draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from py_engine.errors import WispError
from py_engine.files.convolutions import PROJECTOR, flattened
from py_engine.files.draft_header import errors_of_draft
from py_engine.files.gguf_header import Header
from py_engine.models import embedding
from py_engine.models.architecture import Architecture
from py_engine.models.common import deepstack
from py_engine.models.config import Config, check_windows
from py_engine.models.draft_file import DraftFile
from py_engine.models.drafters import BlockDrafter, StepDrafter, make_drafter
from py_engine.models.families import decoder, family
from py_engine.models.mtp import MtpLayer, mtp_block
from py_engine.models.required import check_tensors
from py_engine.models.rope_tables import rope_tables
from py_engine.models.stored_heads import is_stored, stored
from py_engine.plan import (
    batch_sizes,
    diffusion,
    encoder_decoder,
    low_rank,
    low_rank_rows,
    media,
    merged_splits,
    post_norms,
    sampler_ops,
)
from py_engine.plan.adapters import EMBEDDINGS, NO_ADAPTERS, Adapters
from py_engine.plan.cache import NO_CACHE, Cache, make_cache, make_conv_cache, make_encoder_cache, page_group
from py_engine.plan.compressed_attention import make_compressed_cache
from py_engine.plan.draft import add_draft
from py_engine.plan.indexer import make_index_cache
from py_engine.plan.kernels import Device
from py_engine.plan.latent_attention import make_latent_cache
from py_engine.plan.lists import (
    ALL_LOGITS,
    DECODE,
    EMBED,
    LAST_LOGITS,
    MEDIA,
    NORMALIZE,
    PACKED,
    PACKED_LAST,
    PREFILL,
    SMALL_BATCH,
    SMALL_BATCH_LAST_LOGITS,
    SMALL_BATCH_LOGITS,
    TOKEN_ROWS,
    plain,
)
from py_engine.plan.ops import Ops
from py_engine.plan.packing import may_have_gaps, packed, packs_prompts
from py_engine.plan.pages import PAGE
from py_engine.plan.plan import Buffer, DraftsFor, Plan
from py_engine.plan.pooling import last_rows
from py_engine.plan.rope import Rope
from py_engine.plan.shared_constants import SHORT_BATCH
from py_engine.plan.states import make_states
from py_engine.plan.weights import Weights

ALL_LOGITS_BATCH = 16  # rows of logits read back at once


@dataclass(frozen=True)
class PlanOptions:
    """The sizes and types that a model is planned for."""

    n_ctx: int
    batch: int  # most tokens of a prefill step
    kv_type: str  # "f16", "f32" or "q8_0"
    rope_factors: Sequence[float] | None = None  # divisors of RoPE's frequencies, if the file has them
    page: int = PAGE  # positions of a page of the caches
    media_width: int = 0  # values of an embedding of media, if prompts may have any
    whole_media: bool = False  # a token of a picture sees all of it
    adapters: Adapters = field(default_factory=Adapters)
    drafts_for: DraftsFor | None = None  # the model is a draft model
    mtp: bool = False  # draft by the model's own MTP layer, if the file has one
    draft: Header | None = None  # of a draft model, by the names in its file; the model's header has its tensors, too
    draft_factors: Sequence[float] | None = None  # rope_factors of the draft model
    draft_tokens: Sequence[int] | None = None  # the model's tokens that it knows; None: all
    max_small_batch: int = SHORT_BATCH  # sequences that share a step


def make_plan(header: Header, device: Device, options: PlanOptions) -> Plan:
    """Plan the model for a device. A projector's plan has encoders only, and its sizes come from its header."""
    if header.architecture == PROJECTOR:
        from py_engine.models.projectors import families as projectors

        return projectors.make_plan(flattened(header), device)
    model = family(header)
    cfg = stored(model.Config.from_gguf(header), header.architecture, neox=model.NEOX)
    check_windows(header, cfg)
    check_tensors(header, cfg)
    if not options.whole_media:
        cfg = replace(cfg, whole_media="")
    n_ctx = options.n_ctx
    in_parts = cfg.causal and cfg.decoder_start is None  # else an encoder reads all tokens at once
    batch = min(options.batch, n_ctx) if in_parts else max(2, n_ctx)
    plan = Plan(batch, n_ctx, cfg.vocab, options.max_small_batch, options.page)
    plan.drafts_for, plan.decoder_start = options.drafts_for, cfg.decoder_start
    if plan.encodes_prompts and (options.media_width or options.adapters.count):
        raise (
            encoder_decoder.unsupported("Adapters are", "lora")
            if options.adapters.count
            else encoder_decoder.unsupported("Pictures, sound and embeddings in prompts are", "projector")
        )
    plan.adapters = options.adapters
    weights = Weights(header, plan)
    prefill = Ops(plan, PREFILL, plan.batch, device)
    caches: list[Cache] = []
    for i in range(cfg.block_count):
        j = cfg.cache_layer(i)
        caches.append(caches[j] if j < i else _cache(cfg.layer(i), prefill, i, options.kv_type))
    block = mtp_block(header) if options.mtp and options.draft is None and not is_stored(cfg) else None
    mtp_cache = _mtp_cache(plan, cfg, block, options.kv_type) if block is not None else NO_CACHE
    for i in range(cfg.block_count):
        if cfg.has_state(i) and (shape := cfg.layer(i).state_shape):
            caches[i] = replace(caches[i], states=make_states(plan, i, shape))
    ropes = rope_tables(prefill, cfg, model.NEOX, options.rope_factors)
    drafter: StepDrafter | BlockDrafter | None = None
    if options.draft is not None:
        file = DraftFile(options.draft, options.kv_type, options.draft_factors, options.draft_tokens)
        with errors_of_draft():
            drafter = make_drafter(file, cfg, prefill, weights, caches)
    elif block is not None:
        drafter = StepDrafter(MtpLayer(cfg, weights, block, ropes[-1], mtp_cache), n_ctx)
    parts = _Parts(header, model, cfg, weights, device, ropes, caches, drafter)
    _add_lists(parts, plan, options.media_width, NO_ADAPTERS)
    if options.adapters.count:
        _add_adapted_lists(parts, plan, options)
    if drafter is not None:
        drafter.add_to(plan, device)
    batch_sizes.split(plan, device)
    if options.draft is not None and drafter is None:
        _add_draft_model(plan, options.draft, device, options)
    return plan


def _add_draft_model(plan: Plan, header: Header, device: Device, options: PlanOptions) -> None:
    """Add a draft model to a plan (plan/draft.py). WispError draft_mismatch or unsupported_parameter."""
    kv_type = "f32" if options.kv_type == "f32" else "f16"  # small enough, and q8_0 needs rows of whole groups
    both = DraftsFor(page_group(plan, 0).index, plan.n_vocab)
    sizes = PlanOptions(
        plan.n_ctx,
        plan.batch,
        kv_type,
        options.draft_factors,
        page=plan.page,
        drafts_for=both,
        max_small_batch=plan.max_small_batch,
    )
    with errors_of_draft():
        draft = make_plan(header, device, sizes)
    for which, one in (("The model", plan), ("The draft model", draft)):
        why = "generates no text: there is nothing to draft" if not one.generates else ""
        why = why or ("is a diffusion model: it generates no token after the other" if one.diffusion else "")
        why = why or ("reads its prompt with an encoder: the other has none" if one.encodes_prompts else "")
        if why := why or ("is recurrent: rejected drafts cannot be undone" if one.recurrent else ""):
            raise WispError(f"{which} {why}. Load the model without draft.", "unsupported_parameter", param="draft")
    add_draft(plan, draft, device, family(header).Config.from_gguf(header).context_length)


@dataclass(frozen=True)
class _Parts:
    """What a model's lists are made from."""

    header: Header
    model: Architecture[Any]
    cfg: Any
    weights: Weights
    device: Device
    ropes: list[Rope]
    caches: list[Cache]
    drafter: StepDrafter | BlockDrafter | None

    def layers(self, ops: Ops) -> Buffer:
        """Append the layers; return the last hidden state."""
        ops.features = self.drafter.features if self.drafter is not None else None
        caches = [ops.staging(cache) for cache in self.caches]
        return self.model.build(self.cfg, self.weights, ops, self.ropes, caches)

    def fill_drafter(self, ops: Ops, x: Buffer) -> None:
        """Append what the drafter needs of a batch with the last hidden state x, if there is one."""
        if self.drafter is not None:
            self.drafter.fill(ops, x)

    def output(self, ops: Ops, x: Buffer, all_tokens: bool = False) -> Buffer:
        """Append the head of a model that generates text; return the logits."""
        return decoder(self.header).output(self.cfg, self.weights, ops, x, all_tokens=all_tokens)


def _add_lists(parts: _Parts, plan: Plan, media_width: int, adapters: Adapters) -> None:
    """Add all lists to the plan, with what these adapters add."""

    def ops_of(name: str, batch: int, state_per_token: bool = False) -> Ops:
        return Ops(plan, name, batch, parts.device, state_per_token, adapters)

    cfg, prefill = parts.cfg, ops_of(PREFILL, plan.batch)
    x = prompt_end = parts.layers(prefill)
    if not plan.encodes_prompts:  # else the decoder alone reads what the encoder computes
        if PACKED not in plan.lists:  # else these are the lists of adapters: batches have the form of the first lists
            plan.packs_prefixes = may_have_gaps(prefill.ops)
        plan.lists[prefill.list_of(PACKED)] = packed(plan, prefill.ops)
        plan.embedding = embedding.add_lists(cfg, parts.header, parts.weights, prefill, x)
    if not cfg.causal and not cfg.diffusion:
        plan.lazy.add(PREFILL)
        return
    parts.fill_drafter(prefill, x)
    if media_width and cfg.causal:
        reader = prefill
        if cfg.visual_experts:
            reader = ops_of(MEDIA, plan.batch)
            reader.name, reader.reads_media = PREFILL, True  # it has the buffers of PREFILL, and others
            plan.media_apart = True
            parts.layers(reader)
        ends = [reader.layer_ends[layer] for layer in deepstack(parts.header) if layer < cfg.block_count]
        media.add_list(reader, ends, media_width, cfg.embedding_length)
        plan.lists.setdefault(TOKEN_ROWS, media.token_rows(prefill.ops))
    plan.lazy |= {
        name for name in plan.lists if name in (PACKED, EMBED, NORMALIZE, TOKEN_ROWS) or name.startswith("pool.")
    }
    if cfg.diffusion:
        plan.diffusion = diffusion.read_metadata(parts.header, cfg.vocab)
    elif not plan.encodes_prompts:
        parts.output(ops_of(LAST_LOGITS, 1), x)
        parts.output(ops_of(ALL_LOGITS, min(ALL_LOGITS_BATCH, plan.batch)), x, all_tokens=True)
        plan.lazy.add(ALL_LOGITS)
    decode = ops_of(DECODE, 1)
    last = diffusion.pick_rows(decode, x) if cfg.diffusion else parts.layers(decode)
    parts.fill_drafter(decode, last)
    logits = parts.output(decode, last)
    merged_splits.merge(decode.ops, parts.device)
    post_norms.merge(decode)
    small_batch = ops_of(SMALL_BATCH, plan.max_small_batch, True)
    if cfg.diffusion:
        x = diffusion.pick_rows(small_batch, x)
    else:
        x = parts.layers(small_batch)
        parts.fill_drafter(small_batch, x)
        merged_splits.merge(small_batch.ops, parts.device)
        low_rank_rows.merge(small_batch)
        post_norms.merge(small_batch)
        parts.output(ops_of(SMALL_BATCH_LAST_LOGITS, 1), x)
        plan.lazy |= {SMALL_BATCH, SMALL_BATCH_LAST_LOGITS, SMALL_BATCH_LOGITS}
    batch_logits = parts.output(ops_of(SMALL_BATCH_LOGITS, plan.max_small_batch, True), x)
    if not adapters.count and parts.drafter is None and packs_prompts(plan, prompt_end, x):
        last_rows(ops_of(PACKED_LAST, plan.batch), prompt_end, x)
        plan.lazy.add(PACKED_LAST)
    if (drafter := parts.drafter) is not None and not adapters.count:  # drafts may be a little worse without
        drafter.add_lists(plan, ops_of, logits, batch_logits)
    if not adapters.count:  # the samplers know nothing of adapters
        sampler_ops.add_lists(plan, parts.device, logits)
        sampler_ops.add_batch_lists(plan, parts.device, batch_logits)


def _add_adapted_lists(parts: _Parts, plan: Plan, options: PlanOptions) -> None:
    """Add the lists with adapters that differ from those without.

    They are compiled with the model if requests have adapters by default; else when the first request has any.
    """
    adapters = options.adapters
    if options.media_width and adapters.of(EMBEDDINGS):
        raise WispError(
            f"An adapter that changes {EMBEDDINGS} cannot be applied beside a projector. Load one of the two.",
            "unsupported_adapter",
            param="lora",
        )
    before = set(plan.lists)
    _add_lists(parts, plan, options.media_width, adapters)
    low_rank.check_used(plan)
    for name in set(plan.lists) - before:
        if plan.lists[name] == plan.lists[plain(name)]:
            del plan.lists[name]
        elif plain(name) in plan.lazy or not any(adapters.defaults):
            plan.lazy.add(name)
    plan.lazy &= plan.lists.keys()


def _cache(cfg: Config, ops: Ops, layer: int, kv_type: str) -> Cache:
    """A layer's KV cache, or the window of its short convolution. A layer without attention has none."""
    plan, cols = ops.plan, cfg.head_count_kv * cfg.head_dim
    if not cfg.causal:
        return make_encoder_cache(plan, f"{ops.name}.{cols}", cols)  # layers may differ
    if not cfg.attends(layer):
        return NO_CACHE
    if cfg.conv_kernel_sizes and (size := cfg.conv_kernel_sizes[layer]):
        return make_conv_cache(plan, layer, cfg.embedding_length, kv_type, page_group(plan, size))
    if cfg.compressed:
        return make_compressed_cache(plan, layer, cfg.compressed, kv_type)
    if cfg.latent:
        cache = make_latent_cache(plan, layer, cfg.latent, kv_type, page_group(plan, cfg.windows[layer]))
        return _with_index(cfg, plan, layer, cache)
    cache = make_cache(plan, layer, cols, kv_type, page_group(plan, cfg.windows[layer]))
    return _with_index(cfg, plan, layer, cache)


def _with_index(cfg: Config, plan: Plan, layer: int, cache: Cache) -> Cache:
    """The cache with the keys of the layer's own index, if a context may have positions that it does not choose."""
    if cfg.index is None or not (cfg.index.own and cfg.index.chooses(plan)):
        return cache
    return replace(cache, index=make_index_cache(plan, layer, cfg.index, page_group(plan, cfg.windows[layer])))


def _mtp_cache(plan: Plan, cfg: Config, block: int, kv_type: str) -> Cache:
    """The KV cache of the MTP layer. Not in q8_0: attention quantizes for one token, and filling it has none."""
    kind, group = "f32" if kv_type == "f32" else "f16", page_group(plan, 0)
    if cfg.latent:
        return make_latent_cache(plan, block, cfg.latent, kind, group)
    return make_cache(plan, block, cfg.head_count_kv * cfg.head_dim, kind, group)
