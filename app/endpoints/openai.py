"""The handlers of OpenAI's endpoints, and of those that other servers have beside them below /v1."""

from typing import Any

from app.answers import chat, embeddings, transcription
from app.client import Call, Fields
from app.endpoints.handlers import DONE, Handlers, answers
from app.openai.requests import ChatRequest, chat_request, completion_request
from app.openai.responses import responses_request
from app.openai.tokenize import tokenize_request, tokenized
from app.openai.transcriptions import TRANSCRIBE, TRANSLATE, Transcription, sound_request
from py_engine.errors import WispError


class OpenAIHandlers(Handlers):
    """Chats, completions, responses, transcriptions, embeddings, rankings, tokens."""

    @answers("v1/chat/completions")
    async def answer_chat(self, fields: Fields, call: Call) -> Any:
        """Answer a chat."""
        body = await self.with_files_read(fields, call, chat_request)
        return await self.answered(chat_request(body), fields, call)

    @answers("v1/chat/completions/input_tokens")
    async def count_chat(self, fields: Fields, call: Call) -> dict[str, Any]:
        """Count the tokens of a chat's prompt."""
        body = await self.with_files_read(fields, call, chat_request)
        return await self._counted(chat_request(body), fields, call)

    @answers("v1/responses/input_tokens")
    async def count_response(self, fields: Fields, call: Call) -> dict[str, Any]:
        """Count the tokens of a response's prompt."""
        request = responses_request(await self.with_files_read(fields, call, responses_request)).request
        assert isinstance(request, ChatRequest)
        return await self._counted(request, fields, call)

    async def _counted(self, request: ChatRequest, fields: Fields, call: Call) -> dict[str, Any]:
        async with self.held(fields.get("request"), call) as model:
            counted = await chat.count_tokens(model, request, self.platform.fetch_media)
        return {"object": "response.input_tokens", "input_tokens": counted["tokens"]}

    @answers("v1/completions")
    async def complete(self, fields: Fields, call: Call) -> Any:
        """Complete prompts."""
        return await self.answered(completion_request(fields.get("request")), fields, call)

    @answers("v1/responses")
    async def respond(self, fields: Fields, call: Call) -> Any:
        """Make a response."""
        body = await self.with_files_read(fields, call, responses_request)
        return await self.converted(responses_request(body), fields, call)

    @answers("v1/audio/transcriptions")
    async def transcribe(self, fields: Fields, call: Call) -> Any:
        """Write down what is said in a clip."""
        return await self._heard(fields, call, TRANSCRIBE)

    @answers("v1/audio/translations")
    async def translate(self, fields: Fields, call: Call) -> Any:
        """Write down in English what is said in a clip."""
        return await self._heard(fields, call, TRANSLATE)

    async def _heard(self, fields: Fields, call: Call, task: str) -> Any:
        request = sound_request(fields.get("request"), task)
        if fields.get("file") is None:
            raise WispError("file is missing: send the clip as the form's field file.", "invalid_type", param="file")
        exchange = self.exchange(fields, call, streamed=request.stream)
        journal = exchange.journal
        try:
            data = await self.platform.read_media(fields["file"])
            async with self.shared(fields.get("request"), call) as model:
                transcription.check_language(model, request)
                sound = await transcription.sound_of(model, data)
                emit, headed = journal.chunk if request.stream else None, transcription.tells_language(model)
                answer = Transcription(request, sound.seconds, emit, headed)
                exchange.emit = answer.chunk
                await self.generated(model, transcription.chat_of(model, request, data), exchange)
        except WispError as error:
            raise transcription.of_a_file(error) from None
        return DONE if request.stream else answer.body

    @answers("v1/embeddings")
    async def embed(self, fields: Fields, call: Call) -> dict[str, Any]:
        """Embed texts."""
        request = embeddings.embedding_request(fields.get("request"))
        async with self.alone(fields.get("request"), call) as model:
            return await embeddings.embeddings(model, request, call.job)

    @answers("v1/rerank")
    async def rerank(self, fields: Fields, call: Call) -> Any:
        """Rank documents."""
        request = embeddings.rank_request(fields.get("request"))
        async with self.alone(fields.get("request"), call) as model:
            return await embeddings.rank(model, request, call.job)

    @answers("v1/tokenize")
    async def tokenize(self, fields: Fields, call: Call) -> dict[str, Any]:
        """Tokenize a text."""
        request = tokenize_request(fields.get("request"))
        async with self.models.hold(request.model, call.job, call.progress) as model:
            model.check_ids([part for part in request.content if isinstance(part, int)], "content")
            return tokenized(request, model.tokenizer)
