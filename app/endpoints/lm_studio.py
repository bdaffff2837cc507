"""The handlers of LM Studio's own endpoints."""

import time
from typing import Any

from app.client import Call, Fields
from app.compatible import lm_studio, lm_studio_chat, lm_studio_models
from app.compatible.stored_chats import StoredChats
from app.endpoints.handlers import Handlers, answers
from app.model_messages import Platform
from app.models.registry import Models
from app.openai.requests import chat_request, completion_request
from py_engine.errors import NOT_FOUND, WispError


class LMStudioHandlers(Handlers):
    """OpenAI's answers with figures, chats that are stored, lists of models, and loads of those in the lists."""

    def __init__(self, models: Models, platform: Platform) -> None:
        super().__init__(models, platform)
        self._chats = StoredChats()

    @answers("api/v0/chat/completions")
    async def chat_with_stats(self, fields: Fields, call: Call) -> Any:
        """Answer a chat."""
        body = await self.with_files_read(fields, call, chat_request)
        return await self.answered(chat_request(body), fields, call, lm_studio.with_stats)

    @answers("api/v0/completions")
    async def complete_with_stats(self, fields: Fields, call: Call) -> Any:
        """Complete prompts."""
        request = completion_request(fields.get("request"))
        return await self.answered(request, fields, call, lm_studio.with_stats)

    @answers("api/v1/chat")
    async def chat(self, fields: Fields, call: Call) -> Any:
        """Answer a chat, and store it."""
        given = lm_studio_chat.chat(fields.get("request"), self._chats)
        try:
            return await self.converted(given, fields, call)
        except WispError as error:
            raise lm_studio_chat.reworded(error, given.request) from None

    @answers("api/v0/models")
    async def list_models(self, fields: Fields, call: Call) -> dict[str, Any]:
        """List the models."""
        listed, loaded = (await self.models.listing())["data"], self.models.loaded
        return {"object": "list", "data": [lm_studio_models.described(one, loaded.get(one["id"])) for one in listed]}

    @answers("api/v1/models")
    async def list_models_v1(self, fields: Fields, call: Call) -> dict[str, Any]:
        """List the models. It also has OpenAI's `data`, for clients whose base address ends with /api/v1."""
        listing, loaded = await self.models.listing(), self.models.loaded
        return listing | {
            "models": [lm_studio_models.described_v1(one, loaded.get(one["id"])) for one in listing["data"]]
        }

    @answers("api/v1/models/load")
    async def load(self, fields: Fields, call: Call) -> dict[str, Any]:
        """Load a model that a request may name. A loaded one keeps its context: another one is an error."""
        asked, started = lm_studio_models.load_request(fields.get("request")), time.perf_counter()
        options, length = await self.models.options(asked.model), asked.context_length
        if length is not None and options.choice.id not in self.models.loaded:
            options = options.with_context(length)
        try:
            async with self.models.hold_loaded(options, call.job, call.progress) as model:
                self.models.tell_loads()
                lm_studio_models.check_context(model, length)
                return lm_studio_models.loaded(model, time.perf_counter() - started, echo=asked.echo)
        except WispError as error:
            raise lm_studio_models.reworded(error) from None

    @answers("api/v1/models/unload")
    async def unload(self, fields: Fields, call: Call) -> dict[str, Any]:
        """Free the memory of a loaded model when its requests have ended. A request that names it loads it again."""
        name = self.models.resolve(lm_studio_models.unload_request(fields.get("request")))
        if name not in self.models.loaded:
            loaded = ", ".join(self.models.loaded) or "none"
            message = f"No model {name!r} is loaded. Loaded are: {loaded}."
            raise WispError(message, "model_not_found", NOT_FOUND, "instance_id")
        await self.models.free(name, call.job)
        return {"instance_id": name}
