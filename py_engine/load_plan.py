"""What a load begins with: the adapter, the plan that fits its device, and the kernels measured to be the fastest."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from py_engine import planner
from py_engine.cpu.device import MAX_BYTES
from py_engine.errors import WispError
from py_engine.files.convolutions import PROJECTOR
from py_engine.files.draft_header import DRAFT, TOKENS, check_draft, errors_of_draft, has_tokens, read_tokens
from py_engine.files.gguf_header import Header
from py_engine.files.parts import Parts
from py_engine.files.tensor_types import TensorType as Q
from py_engine.gpu import repack
from py_engine.loader import Loader, LoadPackage, OnProgress, cpu_limit_error
from py_engine.models.common import rope_factors
from py_engine.models.families import family
from py_engine.options import LoadOptions, MediaOptions
from py_engine.plan import budget
from py_engine.plan.adapters import read_adapters
from py_engine.plan.kernels import Device, Shader
from py_engine.plan.plan import Plan
from py_engine.plan.shared_constants import MAX_SMALL_BATCH, SHORT_BATCH
from py_engine.proof.variants import WrongKernels, check, shaders_of, variants
from py_engine.runners import Runner
from py_engine.tasks import begin
from py_engine.tuning.cached_choices import as_stats

if TYPE_CHECKING:
    from py_engine.proof.proven import Proven
    from py_engine.proof.prover import Prover

DEFAULT_CONTEXT = 8192  # tokens, or the model's limit where that is less
ENCODER_CONTEXT = 2048  # the same for encoders, whose activations cover the whole context
CPU = Device(  # the CPU engine as a device of plans: it has no limit of storage buffers
    software=True, max_binding=MAX_BYTES, max_buffer=MAX_BYTES, max_storage_buffers=16
)
BATCH, SOFTWARE_BATCH = 512, 64  # most tokens of a prefill step, on a real GPU and on a software one or the CPU
MATRIX_BATCH = 2048  # with subgroup matrices: fewer tokens do not fill their largest tiles
MAX_FACTORS = 4096  # of RoPE: one for each pair of a head's dimensions
NEEDED_MS = 2000  # to go on asking for a GPU where nothing else may run the model


async def plan_for(parts: Parts, device: Device | None, options: LoadOptions) -> Plan:
    """The plan of a model for a device, or for numpy."""
    with_media = bool(options.media and options.media.width)
    n_ctx = context_of(parts.header, options.context_length, options.clamp_context, with_media=with_media)
    factors = await _rope_factors(parts, parts.header, n_ctx)
    most = SOFTWARE_BATCH if device is None or device.software else MATRIX_BATCH if device.matrix else BATCH
    batch, media = min(options.batch or most, most), options.media or MediaOptions(0, 0)
    if media.whole:  # a picture is one step
        batch = max(batch, media.tokens)
    adapters = read_adapters(parts.header, parts.adapters, options.adapters)
    device = device or CPU
    if parts.draft is not None:
        check_draft(parts.header, parts.draft)
    sizes = planner.PlanOptions(
        n_ctx,
        batch,
        options.kv_type,
        factors,
        media_width=media.width,
        whole_media=media.whole,
        adapters=adapters,
        mtp=_drafts_by_mtp(parts, options),
        draft=parts.draft,
        draft_factors=await _draft_factors(parts, n_ctx),
        draft_tokens=await _draft_tokens(parts),
        max_small_batch=min(MAX_SMALL_BATCH, max(1, -(-options.parallel // SHORT_BATCH)) * SHORT_BATCH),
    )
    return planner.make_plan(parts.header, device, sizes)


def _drafts_by_mtp(parts: Parts, options: LoadOptions) -> bool:
    """Whether the model is to draft by its own MTP layer, if it has one.

    Only where that is asked for: a step with a draft of a small model took 1.8 plain ones on a fast GPU, and takes two
    on the CPU (docs/benchmarks.md).
    """
    return options.mtp and options.speculation and parts.draft is None


async def plan_that_fits(parts: Parts, device: Device | None, options: LoadOptions) -> Plan:
    """Plan a model for a device, or for numpy. WispError model_too_large if it exceeds the device's limits."""
    plan = await plan_for(parts, device, options)
    if device is not None and (error := budget.limit_error(plan, device)):
        raise error
    return plan


@dataclass(frozen=True)
class Tuning:
    """The kernels chosen for a load. `device`: with the choices; `kernels`: for Engine.stats()."""

    device: Device | None
    plan: Plan
    kernels: dict[str, Any] | None
    measure_later: Callable[[], Awaitable[object]] | None = None  # for the next load, where this one does not wait


async def tuned_plan(
    parts: Parts, adapter: Any, device: Device | None, plan: Plan, options: LoadOptions, report: OnProgress
) -> Tuning:
    """Choose the kernels that were measured to be the fastest.

    A model that must be downloaded does not wait for a measurement, unless the load's `tune` is true.
    """
    if device is None:
        return Tuning(None, plan, None)
    if not (options.tune if options.tune is not None else not device.software):
        return Tuning(device, plan, {"source": "default", "why": "not measured", **as_stats(device, [])})
    from py_engine.tuning.measure import LATER, REST_LATER, TuningTarget, choose_kernels
    from py_engine.tuning.tuner import IDLE_BUDGET_S

    report("tune", 0, 1)
    target = TuningTarget(adapter, device, parts.header, plan, options.kv_type, options.variant)
    choose = partial(choose_kernels, target)
    chosen, kernels = await choose(measure=options.tune or parts.local)
    measure_later = partial(choose, seconds=IDLE_BUDGET_S) if kernels.get("why") in (LATER, REST_LATER) else None
    report("tune", 1, 1)
    chosen_plan = plan if chosen == device else await plan_that_fits(parts, chosen, options)
    return Tuning(chosen, chosen_plan, kernels, measure_later)


async def proven_kernels(
    adapter: Any, device: Device | None, options: LoadOptions, load_package: LoadPackage | None
) -> Proven | None:
    """The kernels that are known to be right or wrong on the device; None if the load is not to prove any.

    If nothing is known, the proof's modules begin to load: the waits for the device leave time for that.
    """
    if device is None or not (options.prove if options.prove is not None else not device.software):
        return None
    from py_engine.proof.modules import import_modules
    from py_engine.proof.proven import Proven

    proven = await Proven.of(adapter)
    if proven.is_empty:
        loading = begin(import_modules(load_package))
        loading.add_done_callback(lambda done: done.cancelled() or done.exception())  # the proof imports them again
    return proven


@dataclass(frozen=True)
class RightPlan:
    """A plan without kernels that are known to be wrong. `device` is None for numpy; `lacks`: what was left out."""

    device: Device | None
    plan: Plan
    wrong: WrongKernels | None = None
    lacks: str = ""

    @property
    def notices(self) -> list[str]:
        """What the user should know, in a line."""
        if self.wrong is None:
            return []
        how = f"without {self.lacks}" if self.device is not None else "on the CPU, which is slower"
        return [f"{self.wrong.message} The model runs {how}."]

    @property
    def kernels(self) -> dict[str, Any] | None:
        """Engine.stats()'s "kernels"."""
        if self.device is None:
            return None
        return {"source": "proof", "why": f"without {self.lacks}", **as_stats(self.device, [])}

    def stats(self, prover: Prover | None) -> dict[str, Any]:
        """Engine.stats()'s "proof"; its figures grow as more lists are compiled."""
        found = prover.stats if prover is not None else {}
        found |= {"wrong": self.wrong.found if self.wrong is not None else {}, "without": self.lacks}
        return found


async def right_plan(parts: Parts, device: Device, plan: Plan, options: LoadOptions, proven: Proven) -> RightPlan:
    """The plan, or another variant's if it has kernels that are known to be wrong. WrongKernels if all have."""
    if not proven.has_faults:
        return RightPlan(device, plan)
    try:
        check(_all_shaders(plan, device), proven)
        return RightPlan(device, plan)
    except WrongKernels as error:
        wrong = error
    for variant, lacks in variants(device, options.variant):
        changed = await plan_that_fits(parts, variant, options)
        if not any(proven.fault(shader) for shader in _all_shaders(changed, variant)):
            return RightPlan(variant, changed, wrong, lacks)
    changed = await plan_for(parts, None, options)
    if options.backend == "auto" and cpu_limit_error(changed) is None:
        return RightPlan(None, changed, wrong, "WebGPU")
    advice = " No variant of it is right. Update the browser and the GPU's driver, or load a smaller model on the CPU."
    raise WrongKernels(wrong.found, advice)


async def run_loader(
    parts: Parts,
    adapter: Any,
    tuning: Tuning,
    proven: Proven | None,
    options: LoadOptions,
    report: OnProgress,
    load_package: LoadPackage | None,
) -> tuple[RightPlan, Loader, str, Runner]:
    """Load the weights. Load them again with another variant if kernels turn out to be wrong.

    Returns the plan that runs, its loader, and the loader's result: the backend's name and the runner.
    """
    device, plan = tuning.device, tuning.plan
    right = RightPlan(device, plan)
    found_wrong = False
    while True:
        if proven is not None and device is not None:
            right = await right_plan(parts, device, plan, options, proven)
        needed = sum(right.plan.memory().values())
        report("memory", needed, needed)
        backend = "cpu" if right.device is None and device is not None else options.backend
        loader = Loader(
            parts, right.plan, adapter, right.device, backend, report, load_package, proven, prove_first=found_wrong,
            threads=options.threads,
        )  # fmt: skip
        try:
            return right, loader, *await loader.run()
        except WrongKernels:
            found_wrong = True
            adapter, _ = await adapter_for(options)  # one adapter opens one device


def _all_shaders(plan: Plan, device: Device) -> list[Shader]:
    return [*shaders_of(plan, device, plan.lists), *repack.shaders(plan, device)]


def context_of(header: Header, asked: int | None, clamp: bool, *, with_media: bool) -> int:
    """The context length of a load that asks for so many tokens, or for none. WispError context_too_long."""
    if header.architecture == PROJECTOR:
        return 1
    cfg = family(header).Config.from_gguf(header)
    limit: int = cfg.context_length
    if with_media and cfg.context_with_media:
        limit = min(limit, cfg.context_with_media)
    if asked is not None and asked > limit and not clamp:
        raise WispError(
            f"contextLength is {asked}, but this model takes at most {limit} tokens. Choose {limit} or less.",
            "context_too_long",
            param="contextLength",
        )
    return min(limit, asked or default_context(header))


def default_context(header: Header) -> int:
    """The context length of a load that asks for none."""
    cfg = family(header).Config.from_gguf(header)
    encodes = not cfg.causal or cfg.decoder_start is not None
    return min(int(cfg.context_length), ENCODER_CONTEXT if encodes else DEFAULT_CONTEXT)


async def _rope_factors(parts: Parts, header: Header, n_ctx: int, prefix: str = "") -> list[float] | None:
    """The factors of a model among the files. `prefix`: of the names of its tensors there."""
    tensor = rope_factors(header, n_ctx)
    if tensor is None or header.tensors[tensor].type != Q.F32:
        return None
    if (size := header.tensors[tensor].nbytes) > 4 * MAX_FACTORS:  # before it is read, or downloaded
        raise WispError(
            f"The GGUF file has {size // 4} RoPE factors in {tensor}; at most {MAX_FACTORS} make sense. Download it "
            "again.",
            "corrupt_header",
        )
    raw = await parts.read(prefix + tensor)
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))


async def _draft_factors(parts: Parts, n_ctx: int) -> list[float] | None:
    """The same of a draft model among the files."""
    if parts.draft is None:
        return None
    with errors_of_draft():
        return await _rope_factors(parts, parts.draft, n_ctx, DRAFT)


async def _draft_tokens(parts: Parts) -> list[int] | None:
    """The model's tokens that a head or a DFlash model among the files knows; None: there is none, or it knows all."""
    if parts.draft is None or not has_tokens(parts.draft):
        return None
    return read_tokens(await parts.read(DRAFT + TOKENS))


async def adapter_for(options: LoadOptions) -> tuple[Any, Device | None]:
    """(adapter, its kernel variants with those that the options force), or (None, None) where the CPU is to run."""
    if options.backend == "cpu":
        return None, None
    from py_engine.gpu.adapter import device_of, request_adapter

    adapter = await request_adapter(NEEDED_MS if options.backend == "webgpu" else 0)
    device = await device_of(adapter) if adapter is not None else None
    if device is not None:
        device = replace(device, **options.variant)  # type: ignore[arg-type]
    if options.backend == "auto" and device is not None and device.software:
        return None, None  # the CPU engine is faster than WebGPU emulated on the CPU
    if adapter is None and options.backend == "webgpu":
        raise WispError(
            "This browser offers no WebGPU. Use a recent Chrome, Edge, Safari or Firefox, turn hardware acceleration "
            'on, or load with backend "cpu".',
            "no_webgpu",
        )
    return adapter, device
