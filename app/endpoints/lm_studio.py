"""The handlers of LM Studio's own endpoints."""

from typing import Any

from app.client import Call, Fields
from app.compatible import lm_studio, lm_studio_chat
from app.compatible.stored_chats import StoredChats
from app.endpoints.handlers import Handlers, answers
from app.model_messages import Platform
from app.models.registry import Models
from app.openai.requests import chat_request, completion_request
from py_engine.errors import WispError


class LMStudioHandlers(Handlers):
    """OpenAI's answers with figures, chats that are stored, and lists of models."""

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
        return {"object": "list", "data": [lm_studio.described(one, loaded.get(one["id"])) for one in listed]}

    @answers("api/v1/models")
    async def list_models_v1(self, fields: Fields, call: Call) -> dict[str, Any]:
        """List the models. It also has OpenAI's `data`, for clients whose base address ends with /api/v1."""
        listing, loaded = await self.models.listing(), self.models.loaded
        return listing | {"models": [lm_studio.described_v1(one, loaded.get(one["id"])) for one in listing["data"]]}
