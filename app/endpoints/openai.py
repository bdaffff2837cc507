"""The handlers of OpenAI's endpoints, and of those that other servers have beside them below /v1."""

from typing import Any

from app.answers import embeddings
from app.client import Call, Fields
from app.endpoints.handlers import Handlers, answers
from app.openai.requests import chat_request, completion_request
from app.openai.responses import responses_request
from app.openai.tokenize import tokenize_request, tokenized


class OpenAIHandlers(Handlers):
    """Chats, completions, responses, embeddings, rankings, tokens."""

    @answers("v1/chat/completions")
    async def chat(self, fields: Fields, call: Call) -> Any:
        """Answer a chat."""
        return await self.answered(chat_request(fields.get("request")), fields, call)

    @answers("v1/completions")
    async def complete(self, fields: Fields, call: Call) -> Any:
        """Complete prompts."""
        return await self.answered(completion_request(fields.get("request")), fields, call)

    @answers("v1/responses")
    async def respond(self, fields: Fields, call: Call) -> Any:
        """Make a response."""
        return await self.converted(responses_request(fields.get("request")), fields, call)

    @answers("v1/embeddings")
    async def embed(self, fields: Fields, call: Call) -> dict[str, Any]:
        """Embed texts."""
        request = embeddings.embedding_request(fields.get("request"))
        async with self.alone(fields.get("request"), call) as model:
            return await embeddings.embeddings(model, request, call.job)

    @answers("v1/rerank")
    async def rerank(self, fields: Fields, call: Call) -> dict[str, Any]:
        """Rank documents."""
        request = embeddings.rank_request(fields.get("request"))
        async with self.alone(fields.get("request"), call) as model:
            return await embeddings.rank(model, request, call.job)

    @answers("v1/tokenize")
    async def tokenize(self, fields: Fields, call: Call) -> dict[str, Any]:
        """Tokenize a text."""
        request = tokenize_request(fields.get("request"))
        async with self.models.hold(request.model, call.job, call.progress) as model:
            return tokenized(request, model.tokenizer)
