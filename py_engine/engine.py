"""The engine: token ids in, token ids out. Read this first.

    load      header -> plan (planner.py) -> runner (WebGPU, else numpy) -> weights of every record
    generate  reuse what a KV cache holds -> feed the rest of the prompt in batches -> yield ids as they are sampled
    evaluate  logits of every position
    embed     the embedding of a sequence, or of each of its tokens

The engine knows no text (app/answers/chat.py) and no GPU (runners.py, gpu/).
"""

from __future__ import annotations

import math
import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from gguf.constants import GGMLQuantizationType as Q

from py_engine import planner
from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.files.parts import Parts
from py_engine.generate.answer import Answer, AnswerLimits, GenerationStats
from py_engine.generate.generation import AskForMemory, Generation
from py_engine.loader import Loader, LoadPackage, OnProgress
from py_engine.models.common import rope_factors
from py_engine.options import PARALLEL, LoadOptions
from py_engine.plan import budget
from py_engine.plan.kernels import Device
from py_engine.plan.lists import ALL_LOGITS, BATCH_STEP, DECODE_STEP, EMBED, NORMALIZE, PREFILL
from py_engine.plan.lists import pool as pool_list
from py_engine.plan.plan import Plan
from py_engine.plan.pooling import NAMES
from py_engine.plan.sampling import Batch, Constraint, Sampling
from py_engine.plan.shared import MAX_BIASES, MAX_SEQUENCES, MAX_SMALL_BATCH
from py_engine.plan.traffic import StepTimes, profile
from py_engine.runners import Runner
from py_engine.tuning.cached_choices import as_stats
from py_engine.tuning.read_rate import read_rates

if TYPE_CHECKING:
    from py_engine.files.source import Source

DEFAULT_CONTEXT = 8192  # tokens, or the model's limit where that is less
ENCODER_CONTEXT = 2048  # the same for encoders, whose activations cover the whole context
BATCH, SOFTWARE_BATCH = 512, 64  # most tokens of a prefill step, on a real GPU and on a software one or the CPU
DEFAULTS = LoadOptions()


class Engine:
    """One loaded model."""

    def __init__(
        self, plan: Plan, runner: Runner, backend: str, parallel: int = PARALLEL, speculation: bool = True
    ) -> None:
        self.plan, self.runner, self.backend, self.context_length = plan, runner, backend, plan.n_ctx
        self.parallel = min(parallel, MAX_SEQUENCES) if plan.generates else 1  # concurrent generate() calls
        self.notices: list[str] = []
        self.adapter: dict[str, Any] | None = None
        self.timings: dict[str, float] = {}
        self.kernels: dict[str, Any] | None = None
        self.read_rates: list[tuple[int, float]] = []  # of the device, once it was profiled
        self.last = GenerationStats()
        self._generation = Generation(runner, self.context_length, self.parallel, speculation)

    # -- loading ------------------------------------------------------------------------------------------------------

    @classmethod
    async def load(
        cls,
        source: Source | list[Source],
        header: Header | list[Header],
        options: LoadOptions = DEFAULTS,
        on_progress: OnProgress | None = None,
        load_package: LoadPackage | None = None,
    ) -> Engine:
        """Load the model of a source and its header, or of lists of them where it is split into several files.

        `on_progress(stage, done, total)`; `load_package(name)` makes a compiled package such as numpy importable.
        Raises WispError; nothing stays allocated then.
        """
        parts = Parts.of(source, header)
        report = on_progress or (lambda stage, done, total: None)
        adapter, device = await _adapter(options.backend)
        if device is not None and options.variant:
            device = replace(device, **options.variant)  # type: ignore[arg-type]
        plan = await _plan_that_fits(parts, device, options)
        kernels: dict[str, Any] | None = None
        if device is not None:
            tune = options.tune if options.tune is not None else not device.software
            if tune:
                report("tune", 0, 1)
                device, plan, kernels = await _tuned(parts, adapter, device, plan, options)
                report("tune", 1, 1)
            else:
                kernels = {"source": "default", "why": "not measured", **as_stats(device, [])}
        needed = sum(plan.memory().values())
        report("memory", needed, needed)
        loader = Loader(parts, plan, adapter, device, options.backend, report, load_package)
        name, runner = await loader.run()
        # A software GPU takes too long to compile the kernels for drafts.
        speculation = options.speculation and (runner.on_gpu or name == "cpu")
        self = cls(plan, runner, name, options.parallel, speculation)
        self.notices, self.timings, self.kernels = loader.notices, loader.timings, kernels
        if adapter is not None:
            from py_engine.gpu.adapter import describe

            self.adapter = describe(adapter)
        return self

    @staticmethod
    async def estimate(
        source: Source | list[Source], header: Header | list[Header], options: LoadOptions = DEFAULTS
    ) -> dict[str, Any]:
        """Memory that `load` would take (budget.estimate). Reads only the header and RoPE's factors."""
        _, device = await _adapter(options.backend)
        return budget.estimate(await _plan(Parts.of(source, header), device, options), device)

    # -- running ------------------------------------------------------------------------------------------------------

    async def generate(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        limits: AnswerLimits,
        constraint: Constraint | None = None,
        stats: GenerationStats | None = None,
    ) -> AsyncGenerator[Batch, None]:
        """Yield ids in batches as they are sampled, and an empty batch after each batch of the prompt.

        Closing the generator aborts the request at once. `constraint` limits each token. `stats` is updated as the
        answer grows. Up to `parallel` requests run side by side; more wait. WispError for ids outside the vocabulary
        and prompts longer than the context.
        """
        self._check_ids(prompt_ids)
        self.check_generates()
        self._check_sampling(sampling)
        answer = Answer(list(prompt_ids), sampling.seeded(), limits.max_tokens, limits.stop_ids, constraint)
        answer.exact = sampling.seed is not None
        answer.stats = self.last = stats or GenerationStats()
        answer.stats.prompt_tokens = len(prompt_ids)
        async with aclosing(self._generation.answer(answer, limits.keep)) as batches:
            async for batch in batches:
                yield batch

    def ask_before_growing(self, ask: AskForMemory) -> None:
        """Set the function that grants growth of the caches for more concurrent requests.

        `ask(bytes)` is an async context manager that yields whether the caches may grow. It is held until they have
        grown. Without it, caches grow as long as the device has memory.
        """
        self._generation.ask_for_memory = ask

    def forget(self) -> None:
        """Empty the KV caches: the next request computes all of its prompt."""
        self._generation.sequences.clear()

    async def evaluate(self, ids: list[int]) -> tuple[Any, tuple[int, int]]:
        """Logits of every position, float32 (n, vocab): a numpy array on the CPU, a flat Float32Array on the GPU."""
        self._check_ids(ids)
        self.check_generates()
        parts = []
        size = min(planner.ALL_LOGITS_BATCH, self.plan.batch)
        async with aclosing(self._generation.feed(ids, size, [PREFILL, ALL_LOGITS])) as batches:
            async for n in batches:
                parts.append(await self.runner.logits(n))
        return self._joined(parts), (len(ids), self.plan.n_vocab)

    async def embed(self, ids: list[int], pooling: str | None = None) -> tuple[Any, tuple[int, ...]]:
        """The embedding of a sequence before normalisation, float32 as evaluate() returns it, and its shape.

        `pooling`: "mean", "cls" (first token), "last" (last token), "rank" (the classification head's scores,
        (labels,)) or "none" (every token, (n, n_embd)). Default: the model's metadata, else "last" for a causal model
        and "none" for an encoder.
        """
        kind = pooling or self.pooling
        width = self._checked_width([ids], kind)
        if kind != "none":
            row = await self._pooled([ids], [pool_list(kind)], "ranked" if kind == "rank" else "pooled", width)
            return (row[0] if self.backend == "cpu" else row), (width,)
        assert self.plan.embedding is not None
        parts = []
        async with aclosing(self._generation.feed(ids, self.plan.batch, [PREFILL, EMBED])) as batches:
            async for n in batches:
                parts.append(await self.runner.rows(self.plan.embedding.rows, n, width))
        return self._joined(parts), (len(ids), width)

    async def embed_all(self, sequences: Sequence[list[int]], pooling: str) -> Any:
        """The pooled embedding of each sequence, scaled to length 1: (sequences, n_embd) as evaluate() returns it."""
        width = self._checked_width(sequences, pooling)
        return await self._pooled(sequences, [pool_list(pooling), NORMALIZE], "pooled", width)

    async def rank_all(self, sequences: Sequence[list[int]]) -> list[list[float]]:
        """A ranking model's score of each label, per sequence; probabilities where the architecture defines them so."""
        labels = self._checked_width(sequences, "rank")
        found = await self._pooled(sequences, [pool_list("rank")], "ranked", labels)
        flat = (found.reshape(-1) if self.backend == "cpu" else found.to_py()).tolist()
        rows: list[list[float]] = [flat[at : at + labels] for at in range(0, len(flat), labels)]
        return [_softmax(row) for row in rows] if self.plan.embedding and self.plan.embedding.softmax else rows

    def _checked_width(self, sequences: Sequence[list[int]], pooling: str) -> int:
        """The width of a pooled row. WispError for ids that are out of range and poolings that do not exist."""
        for ids in sequences:
            self._check_ids(ids)
        embedding = self.plan.embedding
        if embedding is None or pooling not in NAMES or (pooling == "rank" and not embedding.labels):
            raise WispError(
                f"This model's embeddings cannot be pooled by {pooling!r}.", "invalid_value", param="pooling"
            )
        return embedding.labels if pooling == "rank" else embedding.width

    async def _pooled(self, sequences: Sequence[list[int]], lists: list[str], name: str, width: int) -> Any:
        async with self._generation.sequences.acquire() as sequence:
            if self.plan.generates:
                longest = max(len(ids) for ids in sequences)
                await self._generation.sequences.wait_for_pages(sequence, longest)
                sequence.reserve(longest)
            return await self.runner.pooled_rows(sequences, [PREFILL, EMBED, *lists], name, width, sequence.number)

    @property
    def pooling(self) -> str:
        """The default pooling of this model's embeddings."""
        pooling = self.plan.embedding.pooling if self.plan.embedding else None
        if self.plan.generates and pooling in (None, "none"):
            return "last"
        return pooling or "none"

    @property
    def embeds(self) -> bool:
        """Whether this is an embedding model: an encoder, or a model whose metadata names a pooling."""
        pooling = self.plan.embedding.pooling if self.plan.embedding else None
        return not self.plan.generates or pooling not in (None, "none")

    def _joined(self, parts: list[Any]) -> Any:
        if self.backend == "cpu":
            import numpy as np

            return np.concatenate(parts)
        from py_engine.gpu.gpu import concatenate

        return concatenate(parts)

    def check_generates(self) -> None:
        """Raise WispError unsupported_parameter for an encoder, which generates no text."""
        if not self.plan.generates:
            raise WispError(
                "This model makes embeddings, not text. Request embeddings from it, or load a language model.",
                "unsupported_parameter",
                param="model",
            )

    def _check_ids(self, ids: Sequence[int]) -> None:
        if not ids:
            raise WispError("The list of token ids is empty. Give at least one.", "invalid_value")
        if bad := next((i for i in ids if not 0 <= i < self.plan.n_vocab), None):
            raise WispError(f"Token id {bad} is outside the vocabulary of {self.plan.n_vocab}.", "invalid_value")
        if len(ids) > self.context_length:
            raise WispError(
                f"{len(ids)} tokens do not fit the context of {self.context_length}.", "context_length_exceeded"
            )

    def _check_sampling(self, sampling: Sampling) -> None:
        if len(sampling.logit_bias) > MAX_BIASES:
            raise WispError(f"logit_bias has more than {MAX_BIASES} tokens.", "invalid_value", param="logit_bias")
        for name, ids in (("logit_bias", [i for i, _ in sampling.logit_bias]), ("dry_breakers", sampling.dry_breakers)):
            if bad := next((i for i in ids if not 0 <= i < self.plan.n_vocab), None):
                raise WispError(
                    f"Token id {bad} is outside the vocabulary of {self.plan.n_vocab}.", "invalid_value", param=name
                )

    async def profile(self, position: int, n: int = 1) -> list[dict[str, Any]]:
        """GPU time of every dispatch of a step, and of the whole step: [{kernel, ns, bytes, flops, floor_ns}].

        The step is on n tokens at `position`: a decode step of n sequences up to MAX_SMALL_BATCH, else prefill.
        Each dispatch is repeated by itself. `floor_ns`: the time in which this device reads as many bytes.
        """
        if self.backend != "webgpu":
            raise WispError(
                'Only WebGPU kernels can be profiled, and this model runs on the CPU. Load it with backend "webgpu".',
                "unsupported_parameter",
            )
        if not 0 <= position < self.context_length - 64 or not 1 <= n <= self.plan.batch:
            raise WispError(
                f"position must be below {self.context_length - 64} and n at most {self.plan.batch}.", "invalid_value"
            )
        self.check_generates()
        runner: Any = self.runner
        names = [PREFILL] if n > MAX_SMALL_BATCH else [*BATCH_STEP] if n > 1 else [*DECODE_STEP]
        async with self._generation.sequences.acquire() as sequence:
            sequence.reserve(position + n + 1)
            times = {name: await runner.profile(position, n, name, sequence.number) for name in names}
            step = await runner.time_lists(position, n, names, sequence.number)
        device = runner.gpu.variant
        self.read_rates = self.read_rates or await read_rates(device)
        return profile(self.plan, device, self.read_rates, StepTimes(n, position, times, step))

    # -- state ------------------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Figures as plain JSON: adapter, memory per pool, timings, kernels, the last request, counts per token."""
        steps, gpu = max(1, self.last.completion_tokens), self.backend == "webgpu"
        return {
            "adapter": self.adapter,
            "notices": self.notices,
            "memory": budget.pools(self.plan, on_cpu=self.backend == "cpu"),
            "batch": self.plan.batch,
            "parallel": self.parallel,
            "pages": self._generation.sequences.stats(),
            "timings": self.timings,
            "kernels": self.kernels,
            "read_rates": self.read_rates,
            "last": asdict(self.last),
            "dispatches_per_token": sum(len(self.plan.lists.get(n, [])) for n in DECODE_STEP) if gpu else 0,
            "submits_per_token": self.last.submits / steps,
        }

    async def unload(self) -> None:
        """Free all memory. The engine cannot be used afterwards."""
        self.runner.close()


async def _plan(parts: Parts, device: Device | None, options: LoadOptions) -> Plan:
    n_ctx = _context(parts.header, options.context_length)
    factors = await _rope_factors(parts, n_ctx)
    batch = SOFTWARE_BATCH if device is None or device.software else BATCH
    return planner.make_plan(
        parts.header,
        device or Device(software=True),
        planner.PlanOptions(n_ctx, batch, options.kv_type, factors),
    )


async def _plan_that_fits(parts: Parts, device: Device | None, options: LoadOptions) -> Plan:
    plan = await _plan(parts, device, options)
    if device is not None and (error := budget.limit_error(plan, device)):
        raise error
    return plan


async def _tuned(
    parts: Parts, adapter: Any, device: Device, plan: Plan, options: LoadOptions
) -> tuple[Device, Plan, dict[str, Any]]:
    """The device with the kernels measured to be the fastest, the plan for it, and Engine.stats()'s "kernels"."""
    from py_engine.tuning.measure import tuned

    parts.prefetch()  # the download runs meanwhile; it leaves the GPU to the measurement
    load_settings = {"n_ctx": plan.n_ctx, "kv_type": options.kv_type}
    chosen, kernels = await tuned(adapter, device, parts.header, load_settings, options.variant, plan)
    return chosen, plan if chosen == device else await _plan_that_fits(parts, chosen, options), kernels


def _context(header: Header, asked: int | None) -> int:
    cfg = planner.family(header).Config.from_gguf(header)
    limit: int = cfg.context_length
    if asked is not None and asked > limit:
        raise WispError(
            f"contextLength is {asked}, but this model was trained for at most {limit} tokens. Choose {limit} or less.",
            "context_too_long",
            param="contextLength",
        )
    return asked or min(limit, DEFAULT_CONTEXT if cfg.causal else ENCODER_CONTEXT)


async def _rope_factors(parts: Parts, n_ctx: int) -> list[float] | None:
    tensor = rope_factors(parts.header, n_ctx)
    if tensor is None or parts.header.tensors[tensor].type != Q.F32:
        return None
    raw = await parts.read(tensor)
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))


async def _adapter(backend: str) -> tuple[Any, Device | None]:
    """(adapter, its kernel variants), or (None, None) where numpy is to run."""
    if backend == "cpu":
        return None, None
    from py_engine.gpu.adapter import device_of, request_adapter

    adapter = await request_adapter()
    if adapter is None and backend == "webgpu":
        raise WispError(
            "This browser offers no WebGPU. Use a recent Chrome, Edge, Safari or Firefox, turn hardware acceleration "
            'on, or load with backend "cpu".',
            "no_webgpu",
        )
    return adapter, device_of(adapter) if adapter is not None else None


def _softmax(values: list[float]) -> list[float]:
    top = max(values)
    exponentials = [math.exp(v - top) for v in values]
    return [e / sum(exponentials) for e in exponentials]
