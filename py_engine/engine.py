"""The engine: token ids in, token ids out. Read this first.

    load      header -> plan (planner.py) -> a runner for it (WebGPU, else numpy) -> every record's weights
    generate  reuse what a KV cache holds -> feed the rest of the prompt in batches -> ids as they come, of several
              requests together (together.py)
    evaluate  logits of every position
    embed     the embedding of a sequence, or of each of its tokens

Knows nothing of text (app/chat.py) or of the GPU (runners.py, gpu.py).
"""

from __future__ import annotations

import math
import struct
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import Any

from gguf.constants import GGMLQuantizationType as Q

from py_engine import planner
from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.files.parts import Parts
from py_engine.generate.answer import Answer, GenerationStats
from py_engine.generate.generation import Generation, Room
from py_engine.loader import Loader, LoadPackage, OnProgress
from py_engine.models.common import rope_factors
from py_engine.plan import budget
from py_engine.plan.kernels import Device
from py_engine.plan.ops import FEW
from py_engine.plan.plan import Plan
from py_engine.plan.pooling import NAMES
from py_engine.plan.sampling import Batch, Constraint, Sampling
from py_engine.plan.traffic import profiled
from py_engine.runners import Runner
from py_engine.tuning.choices import shown
from py_engine.tuning.read_rate import read_rates

DEFAULT_CONTEXT = 8192  # tokens, or the model's own limit where that is less
ENCODER_CONTEXT = 2048  # the same for encoders, which have room for activations of all of it
PARALLEL = 4  # requests that are answered side by side, unless the load says otherwise
BATCH, SOFTWARE_BATCH = 512, 64  # most tokens of a prefill step, on a GPU and where a CPU stands in for one


class Engine:
    """One loaded model."""

    def __init__(
        self, plan: Plan, runner: Runner, backend: str, context_length: int, parallel: int = PARALLEL,
        speculation: bool = True,
    ) -> None:  # fmt: skip
        self.plan, self.runner, self.backend, self.context_length = plan, runner, backend, context_length
        self.parallel = (
            min(parallel, FEW) if plan.generates else 1
        )  # generate() calls side by side; all else wants it alone
        self.notices: list[str] = []
        self.adapter: dict[str, Any] | None = None
        self.timings: dict[str, float] = {}
        self.kernels: dict[str, Any] | None = None
        self.read_rates: list[tuple[int, float]] = []  # of the device, once it was profiled
        self.last = GenerationStats()
        self._generation = Generation(runner, context_length, self.parallel, speculation)

    # -- loading ------------------------------------------------------------------------------------------------------

    @classmethod
    async def load(
        cls,
        source: Any,
        header: Header | list[Header],
        *,
        context_length: int | None = None,
        backend: str = "auto",
        kv_type: str = "f16",
        on_progress: OnProgress | None = None,
        load_package: LoadPackage | None = None,
        variant: dict[str, Any] | None = None,
        tune: bool | None = None,
        parallel: int = PARALLEL,
        speculation: bool = True,
    ) -> Engine:
        """Load the model of a shards.Source and its header, or of lists of them where it is in several files.

        `backend`: "webgpu", "cpu", or "auto": WebGPU where there is any, but numpy where the adapter is a software
        one and numpy measures faster. `load_package` makes a compiled package such as numpy importable. `variant`
        overrides fields of kernels.Device, to force a kernel variant. `tune`: choose kernels by measuring them, once
        for a device and model (tuning.py); None: where there is a GPU. `parallel`: requests, FEW at most, that are
        answered side by side; caches for them are made when they come. `speculation`: guess the next tokens where that
        pays. Raises WispError; nothing stays allocated then.
        """
        parts = Parts.of(source, header)
        report = on_progress or (lambda stage, done, total: None)
        adapter, device = await _adapter(backend)
        tune = tune if tune is not None else device is not None and not device.software
        if device is not None and variant:
            device = replace(device, **variant)

        async def planned(device: Device | None) -> Plan:
            plan = await _plan(parts, device, context_length, kv_type)
            if device is not None and (error := budget.refusal(plan, device)):
                raise error
            return plan

        kernels: dict[str, Any] | None = None
        plan = await planned(device)
        if device is not None and tune:
            from py_engine.tuning.measure import tuned

            parts.begin()  # the download, which leaves the GPU to the measurement
            way = {"n_ctx": plan.n_ctx, "kv_type": kv_type}
            report("tune", 0, 1)
            chosen, kernels = await tuned(adapter, device, parts.header, way, variant or {}, plan)
            report("tune", 1, 1)
            device, plan = chosen, plan if chosen == device else await planned(chosen)
        elif device is not None:
            kernels = {"source": "default", "why": "not measured", **shown(device, [])}
        needed = sum(plan.memory().values())
        report("memory", needed, needed)
        loader = Loader(parts, plan, adapter, device, backend, report, load_package)
        name, runner = await loader.run()
        worth = speculation and (runner.quick or name == "cpu")  # a GPU in software compiles kernels for too long
        self = cls(plan, runner, name, plan.n_ctx, parallel, worth)
        self.notices, self.timings, self.kernels = loader.notices, loader.timings, kernels
        if adapter is not None:
            from py_engine.gpu.adapter import describe

            self.adapter = describe(adapter)
        return self

    @staticmethod
    async def estimate(
        source: Any,
        header: Header | list[Header],
        *,
        context_length: int | None = None,
        backend: str = "auto",
        kv_type: str = "f16",
    ) -> dict[str, Any]:
        """What `load` would take of the device (budget.estimate); reads no more of the file than its header."""
        _, device = await _adapter(backend)
        return budget.estimate(await _plan(Parts.of(source, header), device, context_length, kv_type), device)

    # -- running ------------------------------------------------------------------------------------------------------

    async def generate(
        self,
        prompt_ids: list[int],
        sampling: Sampling,
        max_tokens: int,
        stop_ids: frozenset[int],
        constraint: Constraint | None = None,
        keep: int | None = None,
        stats: GenerationStats | None = None,
    ) -> AsyncGenerator[Batch, None]:
        """Yields the ids as they come, a few at a time (none after each batch of the prompt); ends after an id of
        `stop_ids` (yielded last) or `max_tokens`.

        Closing the generator ends the request at once. ids must be below the vocabulary's size and fit the context.
        `constraint`: what each token may be. `keep`: when the context is full, the answer ends (None), or the first
        `keep` tokens stay, the older half of the others is dropped, and the answer goes on. `stats` are kept up to
        date. `parallel` requests at once are served together; more wait.
        """
        self._check_ids(prompt_ids)
        self.check_generates()
        self._check_sampling(sampling)
        answer = Answer(list(prompt_ids), sampling.seeded(), max_tokens, stop_ids, constraint)
        answer.exact = sampling.seed is not None
        answer.stats = self.last = stats or GenerationStats()
        answer.stats.prompt_tokens = len(prompt_ids)
        async with aclosing(self._generation.answer(answer, keep)) as batches:
            async for batch in batches:
                yield batch

    def ask_before_growing(self, room: Room) -> None:
        """`room(bytes)` says whether the caches may grow by so much to serve more requests side by side, and is held
        until they have; without, they grow as long as the device has memory.
        """
        self._generation.room = room

    def forget(self) -> None:
        """The next request computes all of its prompt."""
        self._generation.seats.forget()

    async def evaluate(self, ids: list[int]) -> tuple[Any, tuple[int, int]]:
        """Logits of every position, float32 (n, vocab): a numpy array on the CPU, a flat Float32Array on the GPU."""
        self._check_ids(ids)
        self.check_generates()
        self._generation.seats.first.cache.reuse([])
        parts = []
        size = min(planner.EVERY, self.plan.batch)
        for at in range(0, len(ids), size):
            batch = ids[at : at + size]
            await self.runner.feed(at, batch, ["prefill", "every"])
            parts.append(await self.runner.logits(len(batch)))
        self._generation.seats.first.cache.append(ids)
        return self._joined(parts), (len(ids), self.plan.n_vocab)

    async def embed(self, ids: list[int], pooling: str | None = None) -> tuple[Any, tuple[int, ...]]:
        """The embedding of a sequence, before any normalisation, in float32 as evaluate() has it, and its shape.

        `pooling`: "mean", "cls" (of the first token), "last" or "rank" (what the classification head says: (labels,));
        "none": of every token, (n, n_embd). Default: what the model's metadata says, else "last" for a causal model
        and "none" for an encoder.
        """
        self._check_ids(ids)
        embedding = self.plan.embedding
        kind = pooling or self.pooling
        if embedding is None or kind not in NAMES or (kind == "rank" and not embedding.labels):
            raise WispError(f"This model's embeddings cannot be pooled by {kind!r}.", "invalid_value", param="pooling")
        self._generation.seats.first.cache.reuse([])
        parts = []
        for at in range(0, len(ids), self.plan.batch):
            batch = ids[at : at + self.plan.batch]
            await self.runner.feed(at, batch, ["prefill", "embed", *([f"pool.{kind}"] if kind != "none" else [])])
            if kind == "none":
                parts.append(await self.runner.rows(embedding.rows, len(batch), embedding.width))
        if self.plan.generates:
            self._generation.seats.first.cache.append(ids)
        if kind == "none":
            return self._joined(parts), (len(ids), embedding.width)
        name, width = ("ranked", embedding.labels) if kind == "rank" else ("pooled", embedding.width)
        row = await self.runner.rows(name, 1, width)
        return (row[0] if self.backend == "cpu" else row), (width,)

    async def rank(self, ids: list[int]) -> list[float]:
        """The numbers of a ranking model's labels for a sequence; shares of one where the architecture has it so."""
        array, _ = await self.embed(ids, "rank")
        values: list[float] = (array if self.backend == "cpu" else array.to_py()).tolist()
        if self.plan.embedding and self.plan.embedding.softmax:
            top = max(values)
            shares = [math.exp(v - top) for v in values]
            return [share / sum(shares) for share in shares]
        return values

    @property
    def pooling(self) -> str:
        """How this model's embeddings are pooled unless a request says otherwise."""
        said = self.plan.embedding.pooling if self.plan.embedding else None
        if self.plan.generates and said in (None, "none"):
            return "last"
        return said or "none"

    @property
    def embeds(self) -> bool:
        """Whether this is an embedding model: an encoder, or one whose metadata says how to pool."""
        said = self.plan.embedding.pooling if self.plan.embedding else None
        return not self.plan.generates or said not in (None, "none")

    def _joined(self, parts: list[Any]) -> Any:
        if self.backend == "cpu":
            import numpy as np

            return np.concatenate(parts)
        from py_engine.gpu.gpu import concatenate

        return concatenate(parts)

    def check_generates(self) -> None:
        """WispError unsupported_parameter where the model is an encoder, which makes no text."""
        if not self.plan.generates:
            raise WispError(
                "This model makes embeddings, not text. Ask it for embeddings, or load a language model.",
                "unsupported_parameter",
                param="model",
            )

    def _check_ids(self, ids: Sequence[int]) -> None:
        if not ids:
            raise WispError("There are no tokens to work on.", "invalid_value")
        if bad := next((i for i in ids if not 0 <= i < self.plan.n_vocab), None):
            raise WispError(f"Token id {bad} is outside the vocabulary of {self.plan.n_vocab}.", "invalid_value")
        if len(ids) > self.context_length:
            raise WispError(
                f"{len(ids)} tokens do not fit the context of {self.context_length}.", "context_length_exceeded"
            )

    def _check_sampling(self, sampling: Sampling) -> None:
        for name, ids in (("logit_bias", [i for i, _ in sampling.logit_bias]), ("dry_breakers", sampling.dry_breakers)):
            if bad := next((i for i in ids if not 0 <= i < self.plan.n_vocab), None):
                raise WispError(
                    f"Token id {bad} is outside the vocabulary of {self.plan.n_vocab}.", "invalid_value", param=name
                )

    async def profile(self, position: int, n: int = 1) -> list[dict[str, Any]]:
        """GPU time of every dispatch of a step: [{kernel, ns, bytes, flops, floor_ns}] for n tokens at `position`
        (up to FEW: of as many sequences; more: prefill), each repeated by itself; and of all in a row, as "step".
        `floor_ns`: in which this device reads so many bytes.
        """
        if self.backend != "webgpu":
            raise WispError("Only WebGPU's kernels can be timed; this model runs on the CPU.", "unsupported_parameter")
        if not 0 <= position < self.context_length - 64 or not 1 <= n <= self.plan.batch:
            raise WispError(
                f"position must be below {self.context_length - 64} and n at most {self.plan.batch}.", "invalid_value"
            )
        self.check_generates()
        self._generation.seats.first.cache.reuse([])
        runner: Any = self.runner
        lists = ["prefill"] if n > FEW else ["few", "each", "choose"] if n > 1 else ["decode", "sample"]
        times = {name: await runner.profile(position, n, name) for name in lists}
        step = await runner.time_lists(position, n, lists)
        device = runner.gpu.variant
        self.read_rates = self.read_rates or await read_rates(device)
        return profiled(self.plan, device, n, position, self.read_rates, times, step)

    # -- the rest -----------------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Plain JSON: adapter, memory per pool, timings, kernels and why, the last request, counts per token."""
        steps, gpu = max(1, self.last.completion_tokens), self.backend == "webgpu"
        return {
            "adapter": self.adapter,
            "notices": self.notices,
            "memory": budget.pools(self.plan, on_cpu=self.backend == "cpu"),
            "batch": self.plan.batch,
            "parallel": self.parallel,
            "sequences": self.plan.sequences,
            "timings": self.timings,
            "kernels": self.kernels,
            "read_rates": self.read_rates,
            "last": asdict(self.last),
            "dispatches_per_token": sum(len(self.plan.lists.get(n, [])) for n in ("decode", "sample")) if gpu else 0,
            "submits_per_token": self.last.submits / steps,
        }

    async def unload(self) -> None:
        """Give the memory back; the engine is of no use afterwards."""
        self.runner.close()


async def _plan(parts: Parts, device: Device | None, context_length: int | None, kv_type: str) -> Plan:
    n_ctx = _context(parts.header, context_length)
    factors = await _rope_factors(parts, n_ctx)
    batch = SOFTWARE_BATCH if device is None or device.software else BATCH
    return planner.make_plan(parts.header, device or Device(software=True), n_ctx, batch, kv_type, factors)


def _context(header: Header, asked: int | None) -> int:
    cfg = planner.family(header).Config.from_gguf(header)
    limit: int = cfg.context_length
    if asked is not None and asked > limit:
        raise WispError(
            f"A context of {asked} tokens was asked for; this model was made for {limit}. Choose {limit} or less.",
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
    """(adapter, what it can do), or None twice where numpy is to run."""
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
