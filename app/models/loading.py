"""Load a model: source, header, tokenizer and template first, then the weights. Report progress."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from app.models.adapters import Adapters, adapter_options
from app.models.catalog import Choice
from app.models.loaded import Loaded
from app.models.progress import OnProgress
from app.models.projector import load_beside, media_options, prompt_rows
from app.models.source import EngineSource, Source
from app.openai.fields import whole
from py_engine.errors import WispError
from py_engine.files.gguf_header import Header, read_header
from py_engine.files.records import plan_records
from py_engine.generate.request_queue import Job, aborted
from py_engine.options import PARALLEL, DraftOptions, LoadOptions
from py_engine.plan.adapters import check_files
from py_engine.plan.cache import KINDS
from py_engine.plan.draft import MAX_DRAFT
from py_engine.plan.shared_constants import MAX_SEQUENCES
from py_engine.text.chat_template import from_metadata
from py_engine.text.tokenizer import load_tokenizer

OpenSource = Callable[[Any, OnProgress], Awaitable[Any]]
Opened = tuple[list[Any], list[Header]]  # the sources and headers of files


@dataclass(frozen=True)
class Options:
    """A checked load request."""

    choice: Choice
    engine: LoadOptions = field(default_factory=LoadOptions)
    projector: tuple[Any, ...] = ()  # its parts; none: the model reads text only
    adapters: tuple[Any, ...] = ()  # the file of each LoRA adapter and control vector
    draft: tuple[Any, ...] = ()  # the parts of the draft model
    vocab_only: bool = False
    prompt_embeddings: bool = False  # prompts may have embeddings in place of tokens
    sha256: tuple[str, ...] = ()  # expected of each file, in hex; none: nothing is expected by the caller
    fields: dict[str, Any] = field(default_factory=dict, compare=False)  # of the request

    @property
    def parts(self) -> tuple[Any, ...]:
        """Addresses and files of the model, its adapters, its draft model and its projector."""
        return (*self.of_engine, *self.projector)

    @property
    def of_engine(self) -> tuple[Any, ...]:
        """Addresses and files that one engine loads: the model's, its adapters' and its draft model's."""
        return (*self.choice.parts, *self.adapters, *self.draft)

    @property
    def request(self) -> dict[str, Any]:
        """A load request that loads the same model again, perhaps in another worker."""
        return {name: self.fields[name] for name in _FIELDS if name in self.fields} | {
            "model": self.fields.get("model") or self.choice.id
        }

    def with_context(self, length: int) -> "Options":
        """The options of the same load with a context of `length` tokens, which is an error if the model has fewer."""
        engine = replace(self.engine, context_length=length, clamp_context=False)
        fields = {name: value for name, value in self.fields.items() if name != "clampContext"}
        return replace(self, engine=engine, fields={**fields, "contextLength": length})

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for two requests that load the same model with the same options."""
        parts = (*map(_identity, self.choice.parts), "", *map(_identity, self.projector), "")
        parts += (*map(_identity, self.adapters), "", *map(_identity, self.draft))
        return (self.choice.id, *parts, self.vocab_only, self.prompt_embeddings, self.sha256, repr(self.engine))


def _identity(part: Any) -> Any:
    """An address, or what distinguishes files. A file without a date equals only itself."""
    if isinstance(part, str):
        return part
    changed = getattr(part, "lastModified", None)
    return id(part) if changed is None else (str(part.name), int(part.size), int(changed))


_FIELDS = (
    "name", "contextLength", "clampContext", "backend", "kvType", "parallel", "threads", "speculation", "mtp", "tune",
    "prove", "variant", "vocabOnly", "promptEmbeddings", "sha256", "projector", "adapters", "lora", "draft",
    "draftTokens",
)  # fmt: skip
_OF_MESSAGES = ("id", "kind", "onDemand", "adapters", "promptEmbeddings", "variant")  # not listed in errors
_KNOWN = ("model", *_FIELDS, "default")
# fields of kernels.Device that a load may force
VARIANTS = ("dot8", "f16", "half_bits", "int8", "matrix", "software", "subgroup")


@dataclass(frozen=True)
class AuxiliaryFiles:
    """The files that a load request names beside the model's own (the fields of Options)."""

    projector: tuple[Any, ...] = ()
    adapters: tuple[Any, ...] = ()
    draft: tuple[Any, ...] = ()


def options(choice: Choice, fields: dict[str, Any], auxiliary: AuxiliaryFiles = AuxiliaryFiles()) -> Options:
    """Check the fields of a load request (docs/sdk.md). WispError with the name of the wrong field."""
    if unknown := next((name for name in fields if name not in _KNOWN and name not in _OF_MESSAGES), None):
        known = ", ".join(name for name in _KNOWN if name not in _OF_MESSAGES)
        raise WispError(f"{unknown} is no option of a load; there are {known}.", "unsupported_parameter", param=unknown)
    variant = fields.get("variant")
    if variant is not None and not isinstance(variant, dict):
        raise WispError("variant must be an object.", "invalid_type", param="variant")
    for key, value in (variant or {}).items():
        if key not in VARIANTS:
            raise WispError(
                f"variant.{key} is unknown; there are {', '.join(VARIANTS)}.", "invalid_value", param="variant"
            )
        if not isinstance(value, bool | int):
            raise WispError(f"variant.{key} must be a number, true or false.", "invalid_type", param="variant")
    speculation = _switch(fields, "speculation")
    draft_tokens = _integer(fields, "draftTokens", MAX_DRAFT) or MAX_DRAFT
    engine = LoadOptions(
        context_length=_integer(fields, "contextLength"),
        clamp_context=_switch(fields, "clampContext") is True,
        backend=_one_of(fields, "backend", ("auto", "webgpu", "cpu")),
        kv_type=_one_of(fields, "kvType", KINDS),
        parallel=_integer(fields, "parallel", MAX_SEQUENCES) or PARALLEL,
        threads=_integer(fields, "threads"),
        speculation=speculation is not False,
        mtp=_switch(fields, "mtp") is True,
        tune=_switch(fields, "tune"),
        prove=_switch(fields, "prove"),
        variant=variant or {},
        adapters=adapter_options(fields.get("lora"), len(auxiliary.adapters)),
        draft=DraftOptions(len(auxiliary.draft), draft_tokens) if auxiliary.draft or "draftTokens" in fields else None,
    )
    hashes = _hashes(fields.get("sha256"), len(choice.parts))
    vocab_only, rows = (bool(_switch(fields, name)) for name in ("vocabOnly", "promptEmbeddings"))
    return Options(
        choice, engine, auxiliary.projector, auxiliary.adapters, auxiliary.draft, vocab_only, rows, hashes, fields
    )


def _hashes(value: Any, files: int) -> tuple[str, ...]:
    """The expected SHA-256 of each file."""
    if value is None:
        return ()
    given = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not all(isinstance(one, str) for one in given):
        raise WispError("sha256 must be a string, or a list of one for each file.", "invalid_type", param="sha256")
    if len(given) != files or not all(re.fullmatch("[0-9a-fA-F]{64}", one) for one in given):
        what = "64 hexadecimal digits" if files == 1 else f"64 hexadecimal digits for each of the {files} files"
        raise WispError(f"sha256 must be {what}.", "invalid_value", param="sha256")
    return tuple(one.lower() for one in given)


def _integer(fields: dict[str, Any], name: str, most: int | None = None) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    found = whole(value)
    if found is None:
        raise WispError(f"{name} must be an integer.", "invalid_type", param=name)
    if found < 1 or (most is not None and found > most):
        limit = "must be at least 1" if most is None else f"must be between 1 and {most}"
        raise WispError(f"{name} {limit}.", "invalid_value", param=name)
    return found


def _switch(fields: dict[str, Any], name: str) -> bool | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, bool):
        raise WispError(f"{name} must be true or false.", "invalid_type", param=name)
    return value


def _one_of(fields: dict[str, Any], name: str, values: tuple[str, ...]) -> str:
    value = fields.get(name)
    if value is None:
        return values[0]
    if not isinstance(value, str):
        raise WispError(f"{name} must be a string.", "invalid_type", param=name)
    if value not in values:
        raise WispError(f"{name} is {value!r}; it must be one of {', '.join(values)}.", "invalid_value", param=name)
    return value


async def load(
    options: Options,
    source: EngineSource,
    on_progress: OnProgress,
    make_capacity: Callable[[int], Awaitable[None]] | None = None,
) -> Loaded:
    """Load a model beside those that are loaded. On failure nothing stays allocated.

    `make_capacity(bytes)` is awaited before anything is allocated, with the bytes that the load is estimated to take.
    """
    started = time.perf_counter()
    model: Loaded | None = None
    try:
        async with _opened(options.of_engine, options.sha256, source, on_progress) as (sources, headers):
            timings = {"header_ms": _since(started)}
            check_files(headers[: len(headers) - len(options.draft)], len(options.choice.parts))
            model = vocabulary(options.choice.id, headers[0], timings)
            model.source_stats = lambda: _sum([file.stats for file in sources])
            if not options.vocab_only:
                engines = _Engines(model, options, source)
                async with _opened(options.projector, (), source, on_progress) as projector:
                    await engines.load((sources, headers), projector, on_progress, make_capacity)
            model.notices += [notice for file in sources for notice in file.notices]
            timings["load_ms"] = _since(started)
    except BaseException as error:
        if model is not None:
            await model.close()
        if not isinstance(error, MemoryError):
            raise
        raise WispError(
            "The page has too little memory for this model on the CPU. Unload other models, choose a smaller one, or "
            "use a browser with WebGPU.",
            "out_of_memory",
        ) from None
    return model


@dataclass(frozen=True)
class _Engines:
    """The engines of a model and its projector: how they are loaded, and loaded again when their device is lost."""

    model: Loaded
    options: Options
    source: EngineSource

    async def load(
        self, files: Opened, projector: Opened, on_progress: OnProgress,
        make_capacity: Callable[[int], Awaitable[None]] | None,
    ) -> None:  # fmt: skip
        """Load both. `files`, `projector`: the opened files of each; empty lists for a model without a projector."""
        model, options, source = self.model, self.options, self.source
        media = prompt_rows(model) if options.prompt_embeddings else None
        media = media_options(model, projector[1]) if options.projector else media
        engine, alone = replace(options.engine, media=media), replace(options.engine, draft=None)
        if make_capacity is not None:
            needed = [(await source.estimate_engine(*files, engine))["total"]]
            if options.projector:
                needed.append((await source.estimate_engine(*projector, alone))["total"])
            await make_capacity(sum(needed))
        model.engine = await source.load_engine(*files, engine, on_progress)
        model.engine.reload_after_loss(engine, self.reload, model.notify)
        model.adapters = Adapters(options.adapters, model.engine)
        if options.projector:
            encoders, tell = source.load_projector, model.notices.append
            model.projector = await load_beside(model, encoders, projector, alone, on_progress, tell)
            model.projector.reload_after_loss(alone, self.reload_projector)

    async def reload(self, changed: LoadOptions) -> Any:
        """Load the engine again; the files come from the cache, if they are there."""
        async with _opened(self.options.of_engine, self.options.sha256, self.source) as (sources, headers):
            return await self.source.load_engine(sources, headers, changed, lambda *_: None)

    async def reload_projector(self, changed: LoadOptions) -> Any:
        """Load the projector's engine again, where the text model now runs."""
        model, encoders = self.model, self.source.load_projector
        asked = replace(changed, backend=self.options.engine.backend)
        async with _opened(self.options.projector, (), self.source) as opened:
            loaded = await load_beside(model, encoders, opened, asked, lambda *_: None, model.notify)
            return loaded.encoder.engine


async def estimate(options: Options, source: EngineSource) -> dict[str, Any]:
    """Memory that loading would take. Reads the files' headers only."""
    async with _opened(options.of_engine, options.sha256, source) as (sources, headers):
        check_files(headers[: len(headers) - len(options.draft)], len(options.choice.parts))
        return {
            "model": options.choice.id,
            "download": sum(file.size for file in sources),
            **await source.estimate_engine(sources, headers, options.engine),
        }


async def inspect(options: Options, source: Source, capacity: tuple[int, bool]) -> dict[str, Any]:
    """Whether and how well the model would run here. Reads the files' headers only."""
    async with _opened(options.choice.parts, options.sha256, source) as (sources, headers):
        found = await source.inspect_engine(sources, headers, replace(options.engine, draft=None), *capacity)
        travelled = sum(int(file.stats["downloaded_bytes"]) for file in sources)
        download = sum(file.size for file in sources)
        return {"model": options.choice.id, "download": download, "travelled": travelled, **found}


async def download(options: Options, open_source: OpenSource, on_progress: OnProgress) -> int:
    """Store a model's files in the browser, without loading them; returns their bytes.

    WispError quota_exceeded, storage_failed.
    """
    sizes: dict[int, int] = {}  # part -> its bytes

    def reporter(part: int) -> OnProgress:
        def report(stage: str, loaded: int, total: int) -> None:
            if stage != "hash":
                before = sum(sizes.get(i, 0) for i in range(part))
                on_progress("download", before + loaded, max(sum(sizes.values()), before + total))

        return report

    for i, (part, sha256) in enumerate(zip_longest(options.parts, options.sha256)):
        file = await open_source(part, reporter(i))
        try:
            file.expected = sha256
            sizes[i] = file.size
            header = await read_header(file.read, file.size, file.header_bytes)
            await file.fill(plan_records(header, file.size))
        finally:
            file.close()
    return sum(sizes.values())


@asynccontextmanager
async def _opened(
    parts: tuple[Any, ...],
    sha256: tuple[str, ...],
    source: EngineSource,
    on_progress: OnProgress = lambda *_: None,
) -> AsyncIterator[Opened]:
    """The sources and headers of the files of a model or a projector."""
    sources: list[Any] = []
    try:
        for part, expected in zip_longest(parts, sha256):
            sources.append(await source.open_source(part, on_progress))
            sources[-1].expected = expected
        yield sources, [await read_header(file.read, file.size, file.header_bytes) for file in sources]
    finally:
        for file in sources:
            file.close()


def vocabulary(name: str, header: Header, timings: dict[str, float]) -> Loaded:
    """A model without weights: its tokenizer and chat template."""
    started = time.perf_counter()
    _ = header.architecture  # raises missing_metadata
    tokenizer = load_tokenizer(header.metadata)
    template, notices = from_metadata(
        header.metadata, tokenizer.text_of(tokenizer.bos_id), tokenizer.text_of(tokenizer.eos_id)
    )
    timings["tokenizer_ms"] = _since(started)
    notices = [*tokenizer.notices, *notices]
    return Loaded(name, header, tokenizer, template, notices=notices, timings=timings)


def _since(started: float) -> float:
    return 1000 * (time.perf_counter() - started)


def _sum(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: sum(part[key] for part in parts) for key in parts[0]} if parts else {}


class Loading:
    """A load in progress and the requests that wait for it. It is cancelled when the last of them is aborted."""

    def __init__(self, work: Callable[["Loading"], Awaitable[Loaded]]) -> None:
        self.open = True  # other requests may join
        self._waiting = 0
        self._reports: list[OnProgress] = []
        self._task: asyncio.Future[Loaded] = asyncio.ensure_future(work(self))

    def report(self, stage: str, done: int, total: int) -> None:
        """Report progress to every waiting request."""
        for report in self._reports:
            report(stage, done, total)

    def close(self) -> int:
        """Let no more requests join; returns how many wait."""
        self.open = False
        return self._waiting

    async def wait(self, job: Job, report: OnProgress) -> Loaded:
        """Wait for the model and pin it. Raises the error of the load, or WispError aborted."""
        job.check()
        self._waiting += 1
        self._reports.append(report)
        try:
            if await job.wait_for(self._task):
                return self._task.result()
            if self._waiting == 1:
                self.close()
                self._task.cancel()
                await asyncio.wait([self._task])
            raise aborted()
        finally:
            self._waiting -= 1
            self._reports.remove(report)
