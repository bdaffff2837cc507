"""How a model is asked to write down what it hears: the chat that a request for a transcription stands for.

Source of the instructions: llama.cpp's server and `common/chat.cpp` (b11549). Voxtral has a mode of its own instead
(mistral-common, `encode_transcription`): after the user's turn with the clip come `lang:en` and the token [TRANSCRIBE].
"""

from app.answers.media import projector_of
from app.answers.prompts import SHORTEN
from app.models.loaded import Loaded
from app.openai.fields import Json, wrong_value
from app.openai.media import MediaPart
from app.openai.requests import ChatRequest, chat_request
from app.openai.transcriptions import TRANSCRIBE, TRANSLATE, SoundRequest
from py_engine.errors import WispError
from py_engine.media.formats import bad_media, format_of
from py_engine.media.prepared import Sound

INSTRUCTIONS = {TRANSCRIBE: "Transcribe audio to text", TRANSLATE: "Translate audio to English text"}
MODE = "[TRANSCRIBE]"  # Voxtral's token
HEADING = "<asr_text>"  # Qwen3-ASR's token between the clip's language and its text
LFM2 = ("<|tool_list_start|>", "<|tool_list_end|>")  # of LFM2's template
LFM2_SYSTEM = "Perform ASR."


async def sound_of(model: Loaded, data: bytes) -> Sound:
    """The clip of a request. WispError no_projector, bad_media, media_too_large."""
    projector = projector_of(model, "file")
    try:
        projector.projector.need_audio()
        if format_of(data).is_picture:
            raise bad_media("it is a picture; a transcription needs sound")
        sound = await projector.prepared(data)
    except WispError as error:
        raise error.reworded(error.message, "file") from None
    assert isinstance(sound, Sound)
    return sound


def tells_language(model: Loaded) -> bool:
    """Whether the model's answers begin with the clip's language."""
    return HEADING in model.tokenizer.vocab.ids


def check_language(model: Loaded, request: SoundRequest) -> None:
    """Raise WispError if the answer is to name a language that nobody tells."""
    if request.form == "verbose_json" and request.task == TRANSCRIBE and not request.language:
        if tells_language(model):
            return
        what = "verbose_json names the clip's language, which this model does not tell"
        raise wrong_value(f"{what}: give language, or use response_format json.", "language")


def chat_of(model: Loaded, request: SoundRequest, data: bytes) -> ChatRequest:
    """The chat that asks the model, streamed and with usage. `data`: the clip's file."""
    heard = {"type": "input_audio", "input_audio": MediaPart("file", data)}
    text, own = request.instruction or INSTRUCTIONS[request.task], request.instruction is None
    continued, system = "", ""
    language = request.language or ""
    if own and request.task == TRANSCRIBE and MODE in model.tokenizer.vocab.ids:
        text, continued = "", f"{f'lang:{language}' if language else ''}{MODE}"
    else:
        if request.task == TRANSCRIBE and all(marker in model.template.source for marker in LFM2):
            system, text = LFM2_SYSTEM, request.instruction or ""
        text += f" (language: {language})" if language else ""
    content: list[Json] = [{"type": "text", "text": text}, heard] if text else [heard]
    messages: list[Json] = [{"role": "system", "content": system}] if system else []
    made = chat_request(
        {
            **request.sampling,
            "messages": [*messages, {"role": "user", "content": content}],
            "reasoning_effort": "none",
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    )
    made.continued, made.continues_verbatim = continued, True
    return made


def of_a_file(error: WispError) -> WispError:
    """The error of the chat as one of the request that it stands for."""
    if error.code == "context_length_exceeded" and error.param != "file":
        message = error.message.replace(SHORTEN, "Send a shorter clip, or load the model with a longer context.")
        return error.reworded(message, "file")
    if error.code == "invalid_type" and error.param == "media":
        return WispError("file must be a file: a Blob, or a file in a multipart form.", error.code, param="file")
    return error
