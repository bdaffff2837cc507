"""The engine: token ids in, token ids out. Read this first.

    load      header -> plan (planner.py) -> runner (WebGPU, else the CPU) -> weights of every record
    generate  reuse what a KV cache holds -> feed the rest of the prompt in batches -> yield ids as they are sampled
    evaluate  logits of every position
    embeddings   embeddings and scores of whole sequences (embeddings.py)

The engine knows no text (app/answers/chat.py) and no GPU (runners.py, gpu/).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from math import inf
from typing import TYPE_CHECKING, Any

from py_engine import planner
from py_engine.embeddings import Embeddings, joined
from py_engine.errors import WispError, prompt_too_long
from py_engine.files.gguf_header import Header
from py_engine.files.parts import Parts
from py_engine.files.stored_blocks import BlockStore
from py_engine.generate.answer import Answer, GenerationRequest, GenerationStats
from py_engine.generate.generation import AskForMemory, Generation
from py_engine.generate.media import PromptMedia
from py_engine.generate.prefix_store import PrefixStore, layout_of
from py_engine.load_plan import adapter_for, plan_for, plan_that_fits, proven_kernels, run_loader, tuned_plan
from py_engine.loader import LoadPackage, OnProgress
from py_engine.options import PARALLEL, LoadOptions
from py_engine.plan import budget, diffusion, encoder_decoder
from py_engine.plan.draft import MAX_DRAFT
from py_engine.plan.encoder import EncoderInputs
from py_engine.plan.kernels import Device
from py_engine.plan.lists import ALL_LOGITS, DECODE_STEP, PREFILL, TOKEN_ROWS
from py_engine.plan.plan import Plan
from py_engine.plan.processors import Processor
from py_engine.plan.sampling import Batch
from py_engine.plan.shared_constants import MAX_SEQUENCES
from py_engine.plan.traffic import Limits
from py_engine.profiling import profile_step, profiled_end, timed
from py_engine.recovery import Notify, Recovery, Reload
from py_engine.request_checks import check_constrains, check_request, check_vocabulary
from py_engine.runners import Runner
from py_engine.tuning.when_idle import MeasureWhenIdle

if TYPE_CHECKING:
    from py_engine.files.source import Source

DEFAULTS, NO_MEDIA = LoadOptions(), PromptMedia()


class Engine:
    """One loaded model."""

    def __init__(
        self, plan: Plan, runner: Runner, backend: str, parallel: int = PARALLEL, speculation: bool = True,
        draft_tokens: int = MAX_DRAFT,
    ) -> None:  # fmt: skip
        self.plan, self.runner, self.backend, self.context_length = plan, runner, backend, plan.n_ctx
        self.parallel = min(parallel, MAX_SEQUENCES) if plan.generates else 1  # concurrent generate() calls
        self.notices: list[str] = []
        self.adapter: dict[str, Any] | None = None
        self.timings: dict[str, float] = {}
        self.kernels: dict[str, Any] | None = None
        self.proof: dict[str, Any] | None = None  # of the kernels; None if they were not proven
        self.limits: Limits | None = None  # of the device, once it was profiled
        self.last = GenerationStats()
        self.content: str | None = None  # identifies the model's bytes
        self._device: Device | None = None  # the kernel variants; None on the CPU
        self._recovery: Recovery | None = None
        self._measuring: MeasureWhenIdle | None = None
        self._encoding = 0  # calls of encode() in progress
        self._counted: tuple[Plan, dict[str, int]] | None = None  # bytes by pool
        self._generation = Generation(runner, self.context_length, self.parallel, speculation, draft_tokens)
        self.embeddings = Embeddings(self._generation, self.check_ids)

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
        parts = Parts.of(source, header, options.draft_files)
        report = on_progress or (lambda stage, done, total: None)
        adapter, device = await adapter_for(options)
        proven = await proven_kernels(adapter, device, options, load_package)
        plan = await plan_that_fits(parts, device, options)
        parts.prefetch()  # downloads while kernels are measured, without using the GPU
        tuning = await tuned_plan(parts, adapter, device, plan, options, report)
        right, loader, name, runner = await run_loader(parts, adapter, tuning, proven, options, report, load_package)
        # A software GPU takes too long to compile the kernels for drafts, unless they were asked for.
        asked = options.draft is not None or options.mtp
        speculation = options.speculation and (runner.on_gpu or name == "cpu" or asked)
        draft_tokens = options.draft.tokens if options.draft is not None else MAX_DRAFT
        self = cls(right.plan, runner, name, options.parallel, speculation, draft_tokens)
        self.notices, self.timings = [*right.notices, *loader.notices], loader.timings
        self.kernels = tuning.kernels if right.device == tuning.device else right.kernels
        self.proof = right.stats(loader.prover) if loader.proven is not None else None
        self.content, self._device = await parts.content(), right.device if name == "webgpu" else None
        if adapter is not None:
            from py_engine.gpu.adapter import describe

            self.adapter = describe(adapter)
        if tuning.measure_later is not None:
            self._measuring = MeasureWhenIdle(lambda: self._idle, tuning.measure_later)
        return self

    @staticmethod
    async def estimate(
        source: Source | list[Source], header: Header | list[Header], options: LoadOptions = DEFAULTS
    ) -> dict[str, Any]:
        """Memory that `load` would take (budget.estimate). Reads only the header and RoPE's factors."""
        _, device = await adapter_for(options)
        return budget.estimate(await plan_for(Parts.of(source, header, options.draft_files), device, options), device)

    # -- running ------------------------------------------------------------------------------------------------------

    async def generate(
        self, request: GenerationRequest, stats: GenerationStats | None = None
    ) -> AsyncGenerator[Batch, None]:
        """Yield ids in batches as they are sampled, and an empty batch after each batch of the prompt.

        The answer goes on while nobody reads. Closing the generator aborts the request at once. Up to `parallel`
        requests run side by side; more wait. `stats` is updated as the answer grows. The first tokens of an answer
        that was begun are not yielded. WispError for ids that are neither of the vocabulary nor of the media, and
        prompts longer than the context.
        """
        ids, limits, begun = list(request.prompt), request.limits, request.begun
        self.check_ids(ids, request.media)
        self.check_generates()
        check_request(self.plan, request)
        if request.sampling.processor is not None:
            await self.add_processor(request.sampling.processor)
        given = request.sampling if begun is None else replace(request.sampling, seed=begun.seed)
        sampling = given.seeded()
        answer = Answer(ids, sampling, limits.max_tokens, limits.stop_ids, request.constraint, request.media)
        answer.exact, answer.private = request.sampling.seed is not None, limits.private
        answer.scales = self.scales if request.scales is None else self.plan.adapters.checked(request.scales)
        answer.stats = self.last = stats or GenerationStats()
        answer.stats.prompt_tokens, answer.stats.seed = len(ids), sampling.seed
        keep, start = limits.keep, self.plan.decoder_start
        if begun is not None:
            check_vocabulary(self.plan, begun.ids)
            answer.exact = not begun.branched and (answer.exact or not sampling.is_random)
        if start is not None:
            answer.start_decoder(start)
            keep = None  # no part of an encoder's prompt can be dropped
        if begun is not None:
            answer.resume(begun.ids, keep, self.context_length)
        run = self._generation.access.yield_beside_others(self._generation.answer(answer, keep))
        async with aclosing(run) as batches:
            async for batch in batches:
                yield batch

    def reload_after_loss(self, options: LoadOptions, reload: Reload, notify: Notify) -> None:
        """Have a lost GPU come back: `reload(options)` loads this model again, `notify(text)` tells the user.

        Without it, a lost GPU ends every request with WispError device_lost. `options`: of the first load.
        """
        self._recovery = Recovery(self, options, reload, notify)
        self._generation.recover = self._recovery.run

    def take_over(self, other: Engine) -> None:
        """Go on with the runner of another engine of the same model, which may not be used any more."""
        self.plan, self.runner, self.backend = other.plan, other.runner, other.backend
        self.adapter, self.kernels = other.adapter, other.kernels
        if self._generation.prefixes is not None:
            self._generation.prefixes.close()
        self._generation.prefixes = other._generation.prefixes
        self.proof, self.notices = other.proof, other.notices
        if other._measuring is not None:
            other._measuring.stop()  # it would take this engine's requests for idleness
        self._generation.restart(other.runner)

    async def persist_prefixes(self, open_store: Callable[[str], BlockStore]) -> None:
        """Store what the KV caches hold when the engine is idle, and read it for later prompts, also of later visits.

        `open_store(layout)`: the blocks of one layout (prefix_store.layout_of). Does nothing for encoders, for models
        whose bytes are not identified, for recurrent models, because a block has no states, and for encoder-decoder
        models, whose prompts share nothing.
        """
        if not self.plan.causal or self.plan.recurrent or self.plan.encodes_prompts or self.content is None:
            return
        layout = layout_of(self.content, self.plan, repr(self._device))
        sizes = [sum(self.plan.page_sizes(group, group.stored)) for group in self.plan.page_groups]
        self._generation.prefixes = PrefixStore(open_store(layout), sizes)
        await self._generation.prefixes.blocks()

    @property
    def scales(self) -> Sequence[float]:
        """The scale of each LoRA adapter and control vector, of requests that give none."""
        return self._generation.scales

    @scales.setter
    def scales(self, scales: Sequence[float]) -> None:
        self._generation.scales = self.plan.adapters.checked(scales)

    def ask_before_growing(self, ask: AskForMemory) -> None:
        """Set the function that grants growth of the caches for more concurrent requests.

        `ask(bytes)` is an async context manager that yields whether the caches may grow. It is held until they have
        grown. Without it, caches grow as long as the device has memory.
        """
        self._generation.ask_for_memory = ask

    def forget(self) -> None:
        """Empty the KV caches: the next request computes all of its prompt."""
        self._generation.sequences.clear()

    async def evaluate(
        self, ids: list[int], media: PromptMedia = NO_MEDIA, answer: Sequence[int] = ()
    ) -> tuple[Any, tuple[int, int]]:
        """Logits of every position of a prompt and an answer after the last medium, float32 (n, vocab).

        Of an encoder-decoder model, those after the token that answers begin with, and after each token of the answer.
        A flat Float32Array, or a numpy array of numpy's runner. WispError as generate().
        """
        self.check_generates()
        if self.plan.encodes_prompts:
            return await self._evaluate_answer(ids, answer)
        ids = [*ids, *answer]
        self.check_ids(ids, media)
        if media and self.plan.diffusion is not None:
            raise diffusion.unsupported("messages", "Pictures and sound are")
        first = max((span.end for span in media.spans(ids)), default=0)
        return await self._generation.alone(lambda: self._evaluate(ids, first, media))

    async def _evaluate(self, ids: list[int], first: int, media: PromptMedia) -> tuple[Any, tuple[int, int]]:
        if self.plan.diffusion is not None:
            return joined(self.runner, await self._generation.all_logits(ids)), (len(ids), self.plan.n_vocab)
        parts = []
        size = min(planner.ALL_LOGITS_BATCH, self.plan.batch)
        feed = self._generation.feed(ids, size, [PREFILL, ALL_LOGITS], first, media)
        async with aclosing(feed) as batches:
            async for n in batches:
                parts.append(await self.runner.logits(n))
        return joined(self.runner, parts), (len(ids) - first, self.plan.n_vocab)

    async def _evaluate_answer(self, prompt: list[int], answer: Sequence[int]) -> tuple[Any, tuple[int, int]]:
        """evaluate() of an encoder-decoder model."""
        self.check_ids(prompt)
        self.check_ids([*prompt, *answer])
        parts = await self._generation.alone(lambda: self._generation.answer_logits(prompt, answer))
        return joined(self.runner, parts), (1 + len(answer), self.plan.n_vocab)

    async def token_rows(self, ids: list[int]) -> tuple[Any, tuple[int, int]]:
        """What the first layer reads of tokens, float32 (n, n_embd), as evaluate() returns it.

        WispError as generate(), and unsupported_parameter if the model was loaded for prompts of text only.
        """
        self.check_ids(ids)
        self.check_accepts_embeddings()
        op = next(op for op in self.plan.lists[TOKEN_ROWS] if op.kernel == "embed")
        x, width = op.bindings["x"].name, int(op.params["COLS"])

        async def rows() -> Any:
            parts = []
            async with aclosing(self._generation.feed(ids, self.plan.batch, [PREFILL, TOKEN_ROWS])) as batches:
                async for n in batches:
                    parts.append(await self.runner.rows(x, n, width))
            return joined(self.runner, parts)

        return await self._generation.alone(rows), (len(ids), width)

    def check_accepts_embeddings(self) -> None:
        """Raise WispError unsupported_parameter if prompts may not have embeddings in place of tokens."""
        self.check_generates()
        if not self.plan.media_width:
            raise WispError(
                "This model was loaded for prompts of tokens. Load it with prompt_embeddings=True.",
                "unsupported_parameter",
                param="embeddings",
            )

    async def encode(self, modality: str, inputs: EncoderInputs) -> Any:
        """Run an encoder of a projector (encoder.py): float32 (tokens, width), as evaluate() returns it."""
        encoder = self.plan.encoders[modality]
        self._encoding += 1
        try:
            return await self._generation.again_after_loss(lambda: self.runner.encode(encoder, inputs))
        finally:
            self._encoding -= 1

    @property
    def _idle(self) -> bool:
        return self._generation.sequences.idle and not self._encoding

    def check_generates(self) -> None:
        """Raise WispError unsupported_parameter for an encoder, which generates no text."""
        if not self.plan.generates:
            raise WispError(
                "This model makes embeddings, not text. Request embeddings from it, or load a language model.",
                "unsupported_parameter",
                param="model",
            )

    def check_constrains(self, param: str) -> None:
        """Raise WispError unsupported_parameter, naming `param`, if the model's answers cannot have a constraint."""
        check_constrains(self.plan, param)

    def check_continues(self, param: str) -> None:
        """Raise WispError unsupported_parameter, naming `param`, if the prompt cannot have an answer's beginning."""
        if self.plan.encodes_prompts:
            raise encoder_decoder.unsupported("Continuing a message is", param)

    @property
    def usual_tokens(self) -> int:
        """Tokens of an answer whose request sets no limit, at most."""
        return diffusion.USUAL_TOKENS if self.plan.diffusion is not None else self.context_length

    def check_ids(self, ids: Sequence[int], media: PromptMedia = NO_MEDIA) -> None:
        if not ids:
            raise WispError("The list of token ids is empty. Give at least one.", "invalid_value")
        check_vocabulary(self.plan, [i for i in ids if i not in media] if media else ids)
        most = self.context_length - self.plan.encodes_prompts  # the decoder begins with a token of its own
        if len(ids) > most:
            raise prompt_too_long(f"{len(ids)} tokens do not fit the context of {most}.", len(ids), most)

    async def add_processor(self, processor: Processor) -> None:
        """Compile a logits processor in WGSL. WispError with the compiler's message, or if this model has no GPU."""
        await self.runner.add_processor(processor)

    async def profile(self, position: int, n: int = 1) -> list[dict[str, Any]]:
        """The time of every dispatch of a step, and of the whole step: [{kernel, ns, bytes, flops, floor_ns}].

        The step is on n tokens at `position`: a decode step of n sequences up to Plan.max_small_batch, else prefill.
        Each dispatch is repeated by itself. `floor_ns`: the least time that this device needs for as many bytes and
        operations.
        """
        runner, end = timed(self.runner), profiled_end(self.plan, position, n)
        self.check_generates()
        on_gpu: Any = runner
        device = None if runner.threads else on_gpu.gpu.variant
        from py_engine.tuning.limits import measure

        self.limits = self.limits or await measure(device, runner.threads)
        async with self._generation.access.exclusive(), self._generation.sequences.acquire() as sequence:
            self._generation.set_scales(sequence, self.scales)
            sequences = self._generation.sequences
            await sequences.wait_for_pages(sequence, end)
            sequence.reserve(end)
            sequences.resumed(sequence)
            async with self._generation.time_slices.acquire():
                return await profile_step(runner, device, self.limits, sequence.number, position, n)

    # -- state ------------------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Figures as plain JSON: adapter, memory per pool, timings, kernels, the last request, counts per token."""
        steps, gpu = max(1, self.last.completion_tokens), self.backend == "webgpu"
        return {
            "adapter": self.adapter,
            "notices": self.notices,
            "memory": self._memory(),
            "threads": self.runner.threads,
            "batch": self.plan.batch,
            "parallel": self.parallel,
            "pages": self._generation.sequences.stats(),
            "sequences": self._generation.sequences.running(),
            "totals": asdict(self._generation.totals),
            "prefixes": self._generation.prefixes.stats() if self._generation.prefixes is not None else None,
            "timings": self.timings,
            "kernels": self.kernels,
            "proof": self.proof,
            "read_rates": self.limits.rates if self.limits else [],
            "multiply_rates": self.limits.multiply_rates if self.limits else {},
            "last": asdict(self.last),
            "dispatches_per_token": self.plan.dispatches(DECODE_STEP, self.last.context or inf) if gpu else 0,
            "submits_per_token": self.last.submits / steps,
        }

    def _memory(self) -> dict[str, int]:
        """Bytes by pool. Counted once per plan, apart from the caches: it takes longer than all other figures."""
        if self._counted is None or self._counted[0] is not self.plan:
            self._counted = self.plan, budget.pools(self.plan, on_cpu=self.backend == "cpu")
        return {**self._counted[1], "kv": self.plan.pool_bytes("kv")}

    async def unload(self) -> None:
        """Free all memory. The engine cannot be used afterwards."""
        if self._measuring is not None:
            self._measuring.stop()
        try:
            if self._recovery is not None:
                await self._recovery.stop()
        finally:
            if self._generation.prefixes is not None:
                self._generation.prefixes.close()
            self.runner.close()
