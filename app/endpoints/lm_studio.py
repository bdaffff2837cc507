"""The handlers of LM Studio's own endpoints."""

from typing import Any

from app.client import Call, Fields
from app.compatible import lm_studio
from app.endpoints.handlers import DONE, Handlers, answers
from app.openai.requests import ChatRequest, CompletionRequest, chat_request, completion_request


class LMStudioHandlers(Handlers):
    """OpenAI's answers with figures, and lists of models."""

    @answers("api/v0/chat/completions")
    async def chat_with_stats(self, fields: Fields, call: Call) -> Any:
        """Answer a chat."""
        body = await self.with_files_read(fields, call, chat_request)
        return await self._with_stats(chat_request(body), fields, call)

    @answers("api/v0/completions")
    async def complete_with_stats(self, fields: Fields, call: Call) -> Any:
        """Complete prompts."""
        return await self._with_stats(completion_request(fields.get("request")), fields, call)

    async def _with_stats(self, request: ChatRequest | CompletionRequest, fields: Fields, call: Call) -> Any:
        exchange = self.exchange(fields, call, streamed=request.stream)
        emit = exchange.emit
        async with self.shared(fields.get("request"), call) as model:
            exchange.emit = lambda chunk: emit(lm_studio.with_stats(chunk, model))
            result = await self.generated(model, request, exchange)
            return DONE if result is None else lm_studio.with_stats(result, model)

    @answers("api/v0/models")
    async def list_models(self, fields: Fields, call: Call) -> dict[str, Any]:
        """List the models."""
        listed, loaded = (await self.models.listing())["data"], self.models.loaded
        return {"object": "list", "data": [lm_studio.described(one, loaded.get(one["id"])) for one in listed]}

    @answers("api/v1/models")
    async def list_models_v1(self, fields: Fields, call: Call) -> dict[str, Any]:
        """List the models. The answer is OpenAI's, too, whose clients ask here where their base address ends so."""
        listing, loaded = await self.models.listing(), self.models.loaded
        return listing | {"models": [lm_studio.described_v1(one, loaded.get(one["id"])) for one in listing["data"]]}
