"""The engine as Python's users see it: one loaded model, its answers, embeddings and tokens."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from app.answers import chat, embeddings
from app.answers.hooks import Hooks
from app.answers.journal import Journal
from app.models import loading
from app.models.catalog import Catalog
from app.models.loaded import Loaded
from app.openai.requests import chat_request, completion_request
from py_engine import json_input
from py_engine.errors import WispError
from py_engine.generate.request_queue import Job
from py_engine.text.chat_template import ChatTemplate
from py_engine.text.tokenizer import Tokenizer
from wisp.answer import Answer, Chunk
from wisp.hooks import AnyProcessor, StopWhen, WgslProcessor, array_of, hooks_of
from wisp.parameters import LoadParameters, Messages, OnProgress, OnText, Parameters
from wisp.rows import Piece, prompt_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from wisp.browser import BrowserModels
    from wisp.local import LocalModels

IN_BROWSER = sys.platform == "emscripten"
FILES = Catalog([])  # without models of its own


class Engine:
    """One loaded model. Engine.load() creates it."""

    def __init__(self, model: Loaded, platform: BrowserModels | LocalModels) -> None:
        self._model, self._platform, self._unloaded = model, platform, False

    # -- loading

    @classmethod
    async def load(
        cls, model: Any, *, on_progress: OnProgress | None = None, **parameters: Unpack[LoadParameters]
    ) -> Engine:
        """Load a model: the URL or path of a .gguf file, its bytes, a File, or a list of these for a split model.

        What was downloaded is cached in the browser. Outside a browser, models load with vocab_only=True only.
        WispError with one of the codes of docs/errors.md.
        """
        platform = await _platform()
        options = _options(platform, model, parameters)

        def report(stage: str, done: int, total: int) -> None:
            if on_progress is not None:
                on_progress(stage, done, total)

        loaded = await loading.load(options, platform, report)
        return cls(loaded, platform)

    @staticmethod
    async def estimate(model: Any, **parameters: Unpack[LoadParameters]) -> dict[str, Any]:
        """Plan a model without its weights: the bytes that it would take on the device, by pool and in total."""
        platform = await _platform()
        options = _options(platform, model, parameters)
        return await loading.estimate(options, platform)

    async def unload(self) -> None:
        """Free the model's memory, once the requests before have ended. Later ones get WispError model_not_loaded."""
        async with self._model.queue.exclusive(Job()):
            if not self._unloaded:
                self._unloaded = True
                try:
                    await self._model.close()
                finally:
                    self._model.engine = None

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.unload()

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.id

    @property
    def backend(self) -> str | None:
        """ "webgpu" or "cpu"; None with vocab_only, and after unload()."""
        return self._model.engine.backend if self._model.engine is not None else None

    def stats(self) -> dict[str, Any]:
        """Plain JSON: adapter, memory by pool, dispatches per token, timings (docs/sdk.md)."""
        return dict(self._model.engine.stats()) if self._model.engine is not None else {}

    # -- text

    def chat(
        self,
        messages: Messages,
        *,
        logits_processor: AnyProcessor | None = None,
        stop_when: StopWhen | None = None,
        on_text: OnText | None = None,
        **parameters: Unpack[Parameters],
    ) -> Answer:
        """Answer a conversation. WispError at once for wrong parameters; other errors come from the answer."""
        conversation = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        request = chat_request(_checked({**parameters, **_STREAM, "messages": conversation}))
        return self._answer(chat.chat, request, self._hooks(logits_processor, stop_when), on_text)

    def complete(
        self,
        prompt: str | list[int],
        *,
        logits_processor: AnyProcessor | None = None,
        stop_when: StopWhen | None = None,
        on_text: OnText | None = None,
        **parameters: Unpack[Parameters],
    ) -> Answer:
        """Continue a text, or token ids, without a chat template."""
        request = completion_request(_checked({**parameters, **_STREAM, "prompt": prompt}))
        return self._answer(chat.complete, request, self._hooks(logits_processor, stop_when), on_text)

    def generate(
        self,
        prompt: Piece | Sequence[Piece] = (),
        *,
        embeddings: NDArray[Any] | None = None,
        logits_processor: AnyProcessor | None = None,
        stop_when: StopWhen | None = None,
        on_text: OnText | None = None,
        **parameters: Unpack[Parameters],
    ) -> Answer:
        """Continue a prompt of embeddings: float32 (n, n_embd), what the first layer reads in place of n tokens.

        `prompt`: texts, lists of ids and arrays of such rows, in order; `embeddings` follow them. The model must be
        loaded with prompt_embeddings=True. WispError invalid_value for rows of another width or with NaN.
        """
        given = [prompt] if not isinstance(prompt, list | tuple) or _is_ids(prompt) else list(prompt)
        pieces = prompt_of([*given, *([] if embeddings is None else [embeddings])])
        request = completion_request(_checked({**parameters, **_STREAM, "prompt": ""}))
        hooks = self._hooks(logits_processor, stop_when)
        return self._answer(partial(chat.complete, pieces=pieces), request, hooks, on_text)

    async def token_embeddings(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """What the first layer reads of tokens: float32 (n, n_embd). Needs prompt_embeddings=True in the load."""
        self._model.engine_or_error()
        self._model.check_ids(list(ids), "ids")
        async with self._model.queue.exclusive(Job()):
            rows, shape = await self._model.engine_or_error().token_rows(list(ids))
        return array_of(rows).reshape(shape)

    async def compile(self, processor: WgslProcessor) -> None:
        """Compile a logits processor now; requests compile it when they first need it.

        WispError invalid_value with what the compiler says of its WGSL, by line.
        """
        self._model.engine_or_error()
        packed = self._hooks(processor, None).processor
        if packed is not None:
            async with self._model.queue.shared(Job()):
                await self._model.engine_or_error().add_processor(packed)

    def _hooks(self, processor: AnyProcessor | None, stop_when: StopWhen | None) -> Hooks:
        return hooks_of(processor, stop_when, self.backend, len(self._model.tokenizer))

    def _answer(self, generate: Callable[..., Any], request: Any, hooks: Hooks, on_text: OnText | None) -> Answer:
        async def run(emit: Callable[[Chunk], None], job: Job) -> None:
            journal = Journal(lambda *_, **__: None, streamed=False)
            exchange = chat.Exchange(job, emit, journal, time.perf_counter(), self._platform.fetch_media, hooks)
            async with self._model.queue.shared(job):
                await generate(self._model, request, exchange, self._platform.load_grammar)

        return Answer(run, on_text)

    async def embed(self, texts: str | Sequence[str]) -> NDArray[np.float32]:
        """Embeddings of length 1: float32 (n, n_embd), in the order of the texts."""
        import numpy as np

        request = embeddings.embedding_request({"input": texts if isinstance(texts, str) else list(texts)})
        job = Job()
        async with self._model.queue.exclusive(job):
            found = await embeddings.embeddings(self._model, request, job)
        return np.array([entry["embedding"] for entry in found["data"]], np.float32)

    async def evaluate(self, ids: Sequence[int], answer: Sequence[int] = ()) -> NDArray[np.float32]:
        """Logits of every position of a prompt's ids and an answer's: float32 (n, vocab).

        Of an encoder-decoder model, those after the token that answers begin with, and after each of the answer's.
        """
        self._model.engine_or_error()
        self._model.check_ids([*ids, *answer], "ids")
        async with self._model.queue.exclusive(Job()):
            logits, shape = await self._model.engine_or_error().evaluate(list(ids), answer=answer)
        return array_of(logits).reshape(shape)

    # -- tokens and templates

    def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = False) -> list[int]:
        """Token ids. add_special: with the model's BOS and EOS; parse_special: recognise control tokens."""
        return self._model.tokenizer.encode(text, add_special, parse_special)

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of token ids."""
        self._model.check_ids(list(ids), "ids")
        return self._model.tokenizer.decode(list(ids))

    def apply_template(self, messages: Messages, *, add_generation_prompt: bool = True, **variables: Any) -> str:
        """The text of a chat's prompt. `variables`: of the template, such as tools."""
        conversation = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        template = self._model.template.for_tools(variables.get("tools"))
        return template.render(template.prepare(conversation), add_generation_prompt=add_generation_prompt, **variables)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer. Assign another with the same methods and ids to replace it."""
        return self._model.tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: Tokenizer) -> None:
        self._model.tokenizer = tokenizer

    @property
    def chat_template(self) -> str:
        """The source of the chat template. Assign another to replace it. WispError bad_chat_template if it is wrong."""
        return self._model.template.source

    @chat_template.setter
    def chat_template(self, source: str) -> None:
        tokenizer = self._model.tokenizer
        bos, eos = (tokenizer.text_of(i) for i in (tokenizer.bos_id, tokenizer.eos_id))
        self._model.template = ChatTemplate(source, bos, eos)


_STREAM = {"stream": True, "stream_options": {"include_usage": True}}


def _checked(fields: dict[str, Any]) -> dict[str, Any]:
    """A request's fields. WispError if they are nested too deep: in WebAssembly the end of the stack ends Python."""
    if json_input.is_deep(fields):
        what = f"The request is nested more than {json_input.MAX_DEPTH} levels deep. Make it flatter."
        raise WispError(what, "invalid_value")
    return fields


def _is_ids(prompt: Any) -> bool:
    return bool(prompt) and all(isinstance(one, int) for one in prompt)


async def _platform() -> BrowserModels | LocalModels:
    if IN_BROWSER:
        from wisp.browser import start

        return await start()
    from wisp.local import LocalModels

    return LocalModels()


def _options(platform: BrowserModels | LocalModels, model: Any, parameters: LoadParameters) -> loading.Options:
    """The checked options of a load. Errors name the parameters as Python does."""
    given = {name: value for name, value in parameters.items() if name not in ("projector", "lora", "draft")}
    if unknown := next((name for name in given if name not in LoadParameters.__annotations__), None):
        raise TypeError(f"{unknown} is not a parameter of a load.")
    names = {re.sub("_(.)", lambda m: m[1].upper(), name): name for name in given}

    def parts(files: Any) -> Any:
        return [platform.part(one) for one in files] if isinstance(files, list | tuple) else platform.part(files)

    projector, draft = parameters.get("projector"), parameters.get("draft")
    adapters = [one if isinstance(one, dict) else {"model": one} for one in parameters.get("lora") or ()]
    adapter_options = [{name: value for name, value in one.items() if name != "model"} for one in adapters]
    try:
        return loading.options(
            FILES.choose(parts(model), parameters.get("name")),
            {name: given[names[name]] for name in names} | {"lora": adapter_options},
            loading.AuxiliaryFiles(
                FILES.projector(parts(projector), model) if projector is not None else (),
                FILES.adapters(parts([one.get("model") for one in adapters])),
                FILES.draft(parts(draft)) if draft is not None else (),
            ),
        )
    except WispError as error:
        name = names.get(error.param or "", error.param)
        raise WispError(error.message.replace(error.param or "\0", name or ""), error.code, error.type, name) from None
