"""The handlers of Anthropic's, Ollama's and llama.cpp's own endpoints."""

import time
from dataclasses import replace
from typing import Any

from app.answers import chat, embeddings
from app.answers.recognition import dialect_of
from app.client import Call, Fields
from app.compatible import anthropic, llama_metrics, llama_server, ollama, ollama_models
from app.endpoints.handlers import DONE, Handlers, answers
from app.model_messages import model_name
from app.models.loaded import Loaded
from app.openai import lora
from app.openai.fields import Json, boolean, wrong_type
from app.openai.messages import MARKER
from app.openai.requests import chat_request
from py_engine.errors import SERVER_ERROR, WispError


class CompatibleHandlers(Handlers):
    """What these servers answer."""

    # -- Anthropic

    @answers("v1/messages")
    async def create_message(self, fields: Fields, call: Call) -> Any:
        """Create a message."""
        body = await self.with_pdf_texts(fields, call)
        return await self.converted(anthropic.messages_request(body), fields, call)

    @answers("v1/messages/count_tokens")
    async def count_tokens(self, fields: Fields, call: Call) -> dict[str, Any]:
        """Count the tokens of a message's prompt."""
        body = await self.with_pdf_texts(fields, call)
        request = anthropic.count_request(body)
        async with self.held(body, call) as model:
            counted = await chat.count_tokens(model, request, self.platform.fetch_media)
        return {"input_tokens": counted["tokens"]}

    # -- Ollama

    @answers("api/chat")
    async def ollama_chat(self, fields: Fields, call: Call) -> Any:
        """Answer a chat."""
        body = ollama.named(fields.get("request"))
        if ollama.only_loads(body, "messages"):
            return await self._load(body, call, {"message": {"role": "assistant", "content": ""}})
        return await self.converted(ollama.chat(body), fields, call)

    @answers("api/generate")
    async def generate(self, fields: Fields, call: Call) -> Any:
        """Answer a prompt."""
        body = ollama.named(fields.get("request"))
        if ollama.only_loads(body, "prompt"):
            return await self._load(body, call, {"response": ""})
        return await self.converted(ollama.generate(body), fields, call)

    async def _load(self, body: Any, call: Call, empty: dict[str, Any]) -> Any:
        """Load a model, or free its memory, which a request without a prompt asks for."""
        if ollama.frees(body):
            name = await self.models.free(model_name(body), call.job)
            answer = ollama.loaded(name, empty, "unload")
        else:
            async with self.held(body, call) as model:
                answer = ollama.loaded(model.id, empty)
        if not boolean(body, "stream", True):
            return answer
        call.chunk(answer)
        return DONE

    @answers("api/embed")
    async def ollama_embed(self, fields: Fields, call: Call) -> dict[str, Any]:
        """Embed texts."""
        body, started = ollama.named(fields.get("request")), time.perf_counter()
        if ollama.only_loads(body, "input"):
            async with self.held(body, call) as model:
                return {"model": model.id, "embeddings": []}
        request = embeddings.embedding_request(ollama.embed_request(body))
        request = replace(request, truncate=boolean(body, "truncate", True))
        async with self.alone(body, call) as model:
            answer = await embeddings.embeddings(model, request, call.job)
        return ollama.embedded(answer, time.perf_counter() - started)

    @answers("api/embeddings")
    async def ollama_embeddings(self, fields: Fields, call: Call) -> dict[str, Any]:
        """Embed one text, as older clients ask."""
        body = ollama.named(fields.get("request"))
        request = ollama.embeddings_request(body)
        if not request["input"]:
            return {"embedding": []}
        answer = await self.ollama_embed({"request": {"model": body.get("model"), **request}}, call)
        return {"embedding": answer["embeddings"][0]}

    @answers("api/show")
    async def show(self, fields: Fields, call: Call) -> dict[str, Any]:
        """What a model's file says about it."""
        async with self.held(ollama.named(_object(fields.get("request"))), call) as model:
            return ollama_models.shown(model)

    @answers("api/tags")
    async def tags(self, fields: Fields, call: Call) -> dict[str, Any]:
        """List the models."""
        listed, loaded = (await self.models.listing())["data"], self.models.loaded
        return {"models": [ollama_models.tag(one, loaded.get(one["id"])) for one in listed]}

    @answers("api/ps")
    async def ps(self, fields: Fields, call: Call) -> dict[str, Any]:
        """List the loaded models."""
        listed, loaded = (await self.models.listing())["data"], self.models.loaded
        return {"models": [ollama_models.running(one, loaded[one["id"]]) for one in listed if one["id"] in loaded]}

    @answers("api/version")
    async def version(self, fields: Fields, call: Call) -> dict[str, Any]:
        """The version of the API."""
        return {"version": ollama.VERSION}

    # -- llama.cpp's server

    @answers("completion")
    async def completion(self, fields: Fields, call: Call) -> Any:
        """Complete a prompt."""
        return await self.converted(llama_server.completion(fields.get("request")), fields, call)

    @answers("infill")
    async def infill(self, fields: Fields, call: Call) -> Any:
        """Fill a gap in a text."""
        return await self.converted(llama_server.infill(fields.get("request")), fields, call)

    @answers("embeddings")
    async def llama_embeddings(self, fields: Fields, call: Call) -> list[dict[str, Any]]:
        """Embed texts, each pooled."""
        body = _object(fields.get("request"))
        request = embeddings.embedding_request(llama_server.embeddings_request(body), llama_server.text_field(body))
        async with self.alone(body, call) as model:
            return llama_server.embedded(await embeddings.embeddings(model, request, call.job))

    @answers("detokenize")
    async def detokenize(self, fields: Fields, call: Call) -> dict[str, Any]:
        """The text of token ids."""
        body = _object(fields.get("request"))
        ids = body.get("tokens", [])
        if not isinstance(ids, list) or set(map(type, ids)) - {int}:
            raise wrong_type("tokens", "a list of token ids", ids)
        async with self.held(body, call) as model:
            model.check_ids(ids, "tokens")
            return {"content": model.tokenizer.decode(ids)}

    @answers("apply-template")
    async def apply_template(self, fields: Fields, call: Call) -> dict[str, Any]:
        """The prompt of a chat."""
        body = _object(await self.with_pdf_texts(fields, call))
        begun = llama_server.begins_answer(body)
        asked = {name: body.get(name) for name in ("messages", "tools", "chat_template_kwargs")}
        request = chat_request(asked | {"continue_final_message": begun})
        variables: dict[str, Any] = {"add_generation_prompt": boolean(body, "add_generation_prompt", True)}
        variables |= request.template_variables | {"tools": body.get("tools")}
        async with self.held(body, call) as model:
            template = dialect_of(model.template, request.tools, model.tokenizer.vocab.ids).template
            text = template.render(template.with_system_asked(template.prepare(request.messages)), **variables)
            return {"prompt": text + request.continued}

    @answers("props")
    async def props(self, fields: Fields, call: Call) -> dict[str, Any]:
        """Properties of the default model."""
        async with self.held({}, call) as model:
            engine = model.engine_or_error()
            return {
                "default_generation_settings": {
                    "params": llama_server.default_params(),
                    "n_ctx": engine.context_length,
                },
                "total_slots": engine.parallel,
                "model_alias": model.id,
                "model_ftype": ollama_models.details(model.header)["quantization_level"],
                "chat_template": model.template.source,
                **({"chat_template_tool_use": of_tools.source} if (of_tools := model.template.of_tools) else {}),
                "bos_token": _piece(model, model.tokenizer.bos_id),
                "eos_token": _piece(model, model.tokenizer.eos_id),
                "modalities": {"vision": model.senses["image"], "video": False, "audio": model.senses["audio"]},
                "media_marker": MARKER,
                "endpoint_slots": True,
                "endpoint_props": False,  # no request changes them
                "endpoint_metrics": True,
            }

    @answers("slots")
    async def slots(self, fields: Fields, call: Call) -> list[dict[str, Any]]:
        """The default model's slots: which work, and on what. With `fail_on_no_slot`, an error where all work."""
        query = fields.get("request") or {}
        async with self.held({}, call) as model:
            engine = model.engine_or_error()
            context, tasks = engine.context_length, model.slots.tasks
            found = [llama_server.slot(i, context, tasks.get(i)) for i in range(max(1, engine.parallel))]
            if query.get("fail_on_no_slot") and all(slot["is_processing"] for slot in found):
                raise WispError("no slot available", "not_ready", SERVER_ERROR)
            return found

    @answers("lora-adapters")
    async def lora_adapters(self, fields: Fields, call: Call) -> Any:
        """The default model's adapters with their default scales; with a request, set these scales."""
        body = fields.get("request")
        async with self.held({}, call) as model:
            if body is None:
                return model.adapters.listing()
            model.engine_or_error()
            model.adapters.set_default(lora.requested(body, "body") or ())
            return {"success": True}

    @answers("metrics")
    async def metrics(self, fields: Fields, call: Call) -> str:
        """Counters of all loaded models in Prometheus' text format."""
        loaded = [(model, model.engine) for model in self.models.loaded.values() if model.engine is not None]
        totals = [engine.stats()["totals"] for _, engine in loaded]
        running, waiting = (sum(getattr(m.queue, name) for m, _ in loaded) for name in ("running", "waiting"))
        return llama_metrics.metrics(totals, running, waiting)

    @answers("health")
    async def health(self, fields: Fields, call: Call) -> dict[str, Any]:
        """Whether a model is loaded."""
        if not self.models.loaded:
            raise WispError("No model is loaded yet.", "not_ready", SERVER_ERROR)
        return {"status": "ok"}


def _piece(model: Loaded, token: int | None) -> str:
    """A token's text; "" where the model has no such token."""
    return model.tokenizer.piece(token).decode("utf-8", "replace") if token is not None else ""


def _object(body: Json) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise wrong_type(None, "a JSON object as the request", body)
    return body
