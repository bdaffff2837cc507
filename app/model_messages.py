"""Messages about a loaded model that are not OpenAI endpoints: tokenizer, template, constraints, logits, kernels."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from app.answers import chat, encoded_prompts, grammar
from app.answers.page_files import PageReader, with_files_read
from app.client import Call, Fields
from app.models.loaded import Loaded
from app.models.projector import ChunkedPrompt
from app.models.registry import Models
from app.openai import formats
from app.openai.fields import Json
from app.openai.requests import chat_request
from py_engine.errors import WispError, prompt_too_long
from py_engine.text.chat_template import ChatTemplate

_TEMPLATE_OPTIONS = ("tools", "documents", "template", "addGenerationPrompt")


class Platform(PageReader, Protocol):
    """What the browser does for these handlers, and for those of endpoints."""

    async def load_grammar(self, instance: int) -> Any:
        """An instance of grammar.js as a module."""

    async def read_media(self, file: Any) -> bytes:
        """The bytes of a file of the browser. WispError invalid_type for anything else."""


class ModelMessages:
    """The handlers of these messages, by kind."""

    def __init__(self, models: Models, platform: Platform) -> None:
        self._models, self._platform = models, platform
        self.handlers: dict[str, Callable[[Fields, Call], Awaitable[Any]]] = {
            "tokenize": self._tokenize,
            "detokenize": self._detokenize,
            "applyTemplate": self._apply_template,
            "countTokens": self._count_tokens,
            "encode": self._encode,
            "evaluate": self._evaluate,
            "validate": self._validate,
            "profile": self._profile,
        }

    def _held(self, fields: Json, call: Call) -> AbstractAsyncContextManager[Loaded]:
        """The model that a message names, pinned. It may run requests meanwhile."""
        return self._models.hold(model_name(fields), call.job, call.progress)

    def _alone(self, fields: Fields, call: Call) -> AbstractAsyncContextManager[Loaded]:
        """The model that a message names, exclusively."""
        return self._models.alone(model_name(fields), call.job, call.progress)

    async def _tokenize(self, fields: Fields, call: Call) -> list[int]:
        text = fields.get("text")
        if not isinstance(text, str):
            raise WispError("text must be a string.", "invalid_type", param="text")
        async with self._held(fields, call) as model:
            return model.tokenizer.encode(text, bool(fields.get("addSpecial")), bool(fields.get("parseSpecial")))

    async def _detokenize(self, fields: Fields, call: Call) -> str:
        ids = _ids(fields.get("ids"))
        async with self._held(fields, call) as model:
            return model.tokenizer.decode(ids)

    async def _apply_template(self, fields: Fields, call: Call) -> str:
        messages, options = fields.get("messages"), fields.get("options") or {}
        if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
            raise WispError("messages must be a list of messages.", "invalid_type", param="messages")
        if not isinstance(options, dict):
            raise WispError("The options must be an object.", "invalid_type", param="options")
        source = options.get("template")
        if source is not None and not isinstance(source, str):
            raise WispError("template must be a string.", "invalid_type", param="template")
        async with self._held(fields, call) as model:
            template, tokenizer = model.template.for_tools(options.get("tools")), model.tokenizer
            if source is None:  # the prompt of a chat
                prepared = template.with_system_asked(template.prepare(messages))
            else:
                bos, eos = (tokenizer.text_of(i) for i in (tokenizer.bos_id, tokenizer.eos_id))
                template = ChatTemplate(source, bos, eos)
                prepared = template.prepare(messages)
            return template.render(
                prepared,
                tools=options.get("tools"),
                documents=options.get("documents"),
                add_generation_prompt=bool(options.get("addGenerationPrompt", True)),
                **{k: v for k, v in options.items() if k not in (*_TEMPLATE_OPTIONS, "add_generation_prompt")},
            )

    async def _count_tokens(self, fields: Fields, call: Call) -> dict[str, int | None]:
        body = fields.get("request")
        body = await with_files_read(body, self._platform, call.job, chat_request, lambda: self._held(body, call))
        request = chat_request(body)
        assert isinstance(body, dict)
        async with self._held(body, call) as model:
            return await chat.count_tokens(model, request, self._platform.fetch_media)

    async def _validate(self, fields: Fields, call: Call) -> dict[str, bool]:
        body, text = fields.get("format"), fields.get("text")
        if not isinstance(body, dict):
            raise WispError("Give {response_format}, {grammar} or {regex}.", "invalid_type", param="format")
        if not isinstance(text, str):
            raise WispError("text must be a string.", "invalid_type", param="text")
        async with self._held(fields, call) as model:
            form = formats.requested(body)
            if form is None:
                return {"accepted": True, "complete": True}
            grammar.expect(model, form, frozenset())
            rules = grammar.rules_of(form)
            matcher = await (await grammar.compiled(model, rules, frozenset(), self._platform.load_grammar)).matcher()
            try:
                return await matcher.judge(text)
            finally:
                matcher.close()

    async def _encode(self, fields: Fields, call: Call) -> dict[str, Any]:
        async with self._alone(fields, call) as model:
            return {"chunks": await encoded_prompts.encode(model, await self._prompt(fields, model))}

    async def _prompt(self, fields: Fields, model: Loaded) -> ChunkedPrompt:
        """The chunks of a message's prompt with its media."""
        text, media = fields.get("prompt"), fields.get("media")
        if not isinstance(text, str):
            raise WispError("prompt must be a string.", "invalid_type", param="prompt")
        if not isinstance(media, list):
            raise WispError("media must be a list of files.", "invalid_type", param="media")
        return await encoded_prompts.chunked(model, text, [await self._platform.read_media(one) for one in media])

    async def _evaluate(self, fields: Fields, call: Call) -> dict[str, Any]:
        if "prompt" in fields:
            return await self._evaluate_prompt(fields, call)
        ids = _ids(fields.get("ids"))
        if not ids:
            raise WispError("ids is empty.", "invalid_value", param="ids")
        pooling = fields.get("pooling")
        if pooling is not None and not isinstance(pooling, str):
            raise WispError("pooling must be a string.", "invalid_type", param="pooling")
        async with self._alone(fields, call) as model:
            engine = model.engine_or_error()
            model.check_ids(ids, "ids")
            if len(ids) > engine.context_length:
                raise prompt_too_long(
                    f"There are {len(ids)} ids; the context holds {engine.context_length}.",
                    len(ids),
                    engine.context_length,
                    "ids",
                )
            if pooling is not None or engine.embeddings.preferred:
                embedding, embedded = await engine.embeddings.one(ids, pooling)
                return {"embedding": embedding, "shape": list(embedded)}
            logits, shape = await engine.evaluate(ids)
        return {"logits": logits, "shape": list(shape)}

    async def _evaluate_prompt(self, fields: Fields, call: Call) -> dict[str, Any]:
        """Logits of each text position of a prompt's last chunk, then of each of the ids that follow.

        Of an encoder-decoder model, those of its answer's start and of the ids.
        """
        following, text = _ids(fields.get("ids") or []), fields.get("prompt")
        async with self._alone(fields, call) as model:
            model.check_ids(following, "ids")
            if fields.get("media") is None and isinstance(text, str):
                ids = model.ended(model.tokenizer.encode_prompt(text))
                logits, shape = await model.engine_or_error().evaluate(ids, answer=following)
            else:
                logits, shape = await encoded_prompts.evaluate(model, await self._prompt(fields, model), following)
        return {"logits": logits, "shape": list(shape)}

    async def _profile(self, fields: Fields, call: Call) -> list[dict[str, Any]]:
        position, n = (_integer(fields, name) for name in ("position", "n"))
        async with self._alone(fields, call) as model:
            return await model.engine_or_error().profile(position, n)


def _integer(fields: Fields, name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WispError(f"{name} must be an integer.", "invalid_type", param=name)
    return value


def _ids(value: Any) -> list[int]:
    if not isinstance(value, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in value):
        raise WispError("ids must be a list of token ids.", "invalid_type", param="ids")
    return value


def model_name(fields: Any) -> str | None:
    """The name of the model that a message or request is for."""
    name = fields.get("model") if isinstance(fields, dict) else None
    if name is not None and not isinstance(name, str):
        raise WispError("model must be a string.", "invalid_type", param="model")
    return name or None
