"""Transcriptions and translations of sound: check their requests, and make their answers of a chat's chunks.

Source: OpenAI's API reference, "Audio". No model here tells when a word is spoken, so there are no timestamps.
"""

from dataclasses import dataclass

from app.openai.converted import Emit
from app.openai.fields import Body, Json, boolean, integer, number, one_of, text, unsupported, wrong_type, wrong_value
from py_engine.errors import WispError

TRANSCRIBE, TRANSLATE = "transcribe", "translate"  # OpenAI's names of the tasks
_FORMATS = ("json", "text", "verbose_json")
_TIMED = ("srt", "vtt", "diarized_json")  # formats with timestamps
_KNOWN = frozenset(["model", "prompt", "language", "response_format", "temperature", "max_tokens", "seed", "stream"])
_NEUTRAL: dict[str, tuple[Json, ...]] = {
    "include": ([],),
    "timestamp_granularities": ([],),
    "chunking_strategy": (),
    "known_speaker_names": ([],),
    "known_speaker_references": ([],),
}


@dataclass(frozen=True)
class SoundRequest:
    """A checked request. `sampling`: fields of the chat request that answers it."""

    task: str
    instruction: str | None  # the request's own, in place of the task's
    language: str | None  # of the clip
    form: str  # one of _FORMATS
    stream: bool
    limited: bool  # the request says how long the answer may be
    sampling: Body


def sound_request(body: Json, task: str) -> SoundRequest:
    """Check the fields beside the file. The temperature defaults to 0, as OpenAI's does."""
    if not isinstance(body, dict):
        raise wrong_type(None, "a JSON object as the request", body)
    for name, value in body.items():
        if name in _KNOWN or value is None or value in _NEUTRAL.get(name, ()):
            continue
        if name not in _NEUTRAL:
            raise unsupported(f"Unrecognized request argument supplied: {name}", name)
        raise unsupported(f"{name} is not supported by this engine; leave it out.", name)
    if task == TRANSLATE and body.get("language") is not None:
        raise unsupported("A translation is into English, from any language; leave language out.", "language")
    stream = boolean(body, "stream")
    form = _format(body, stream)
    language = text(body, "language")
    if language is not None and not (0 < len(language) <= 32 and language.replace("-", "").isalpha()):
        raise wrong_value('language must be the code or name of a language, such as "en".', "language")
    sampling: Body = {
        "temperature": number(body, "temperature", 0, 2, 0.0),
        "max_tokens": integer(body, "max_tokens", 1),
        "seed": body.get("seed"),
    }
    limited = sampling["max_tokens"] is not None
    return SoundRequest(task, text(body, "prompt") or None, language, form, stream, limited, sampling)


def _format(body: Body, stream: bool) -> str:
    asked = text(body, "response_format")
    if asked in _TIMED:
        what = "needs timestamps or speaker labels; models that hear produce neither"
        raise unsupported(f"response_format {asked!r} {what}; use {', '.join(_FORMATS)}.", "response_format")
    form = one_of(body, "response_format", _FORMATS) or "json"
    if stream and form == "verbose_json":
        raise wrong_value("A stream has the text alone: leave out response_format, or stream.", "response_format")
    return form


class Transcription:
    """A builder of one answer from the chunks of a chat; `emit` receives its events, if it is streamed.

    `headed`: the model's answers begin with the clip's language, as "language English<asr_text>".
    """

    def __init__(self, request: SoundRequest, seconds: float, emit: Emit | None, headed: bool) -> None:
        self._request, self._seconds, self._emit = request, seconds, emit
        self._heading = Heading() if headed else None
        self._pieces: list[str] = []
        self._usage: dict[str, Json] = {}

    def chunk(self, chunk: dict[str, Json]) -> None:
        """Add the next chunk of the chat. WispError context_length_exceeded where the context ends the transcript."""
        for choice in chunk["choices"]:
            piece = choice["delta"].get("content") or ""
            self._add(self._heading.text_of(piece) if self._heading else piece)
            if choice["finish_reason"] == "length" and not self._request.limited:
                raise WispError(
                    "The transcript is longer than the model's context. Send a shorter clip, or load the model with a "
                    "longer context.",
                    "context_length_exceeded",
                    param="file",
                )
        if chunk.get("usage"):
            self._end(chunk["usage"])

    def _add(self, piece: str) -> None:
        if not self._pieces:
            piece = piece.lstrip()
        if piece:
            self._pieces.append(piece)
            if self._emit is not None:
                self._emit({"type": "transcript.text.delta", "delta": piece})

    def _end(self, usage: dict[str, Json]) -> None:
        if self._heading:
            self._add(self._heading.rest())
        self._usage = {
            "type": "tokens",
            "input_tokens": usage["prompt_tokens"],
            "output_tokens": usage["completion_tokens"],
            "total_tokens": usage["total_tokens"],
        }
        if self._emit is not None:
            self._emit({"type": "transcript.text.done", "text": self._text, "usage": self._usage})

    @property
    def _text(self) -> str:
        return "".join(self._pieces)

    @property
    def body(self) -> Json:
        """The whole answer: an object, or a string for the format "text"."""
        request = self._request
        if request.form == "text":
            return self._text
        if request.form == "json":
            return {"text": self._text, "usage": self._usage}
        heard = self._heading.language.lower() if self._heading else ""
        return {
            "task": request.task,
            "language": "english" if request.task == TRANSLATE else heard or request.language,
            "duration": round(self._seconds, 3),
            "text": self._text,
            "usage": {"type": "duration", "seconds": round(self._seconds, 3)},
        }


class Heading:
    """Takes the language out of the beginning of an answer, as Qwen3-ASR has it: "language English<asr_text>"."""

    BEGINS, ENDS, LONGEST = "language ", "<asr_text>", 64

    def __init__(self) -> None:
        self.language = ""
        self._held: str | None = ""  # None: the beginning is over

    def text_of(self, piece: str) -> str:
        """The text of the next piece."""
        if self._held is None:
            return piece
        self._held += piece
        before, found, after = self._held.partition(self.ENDS)
        if found and before.startswith(self.BEGINS) and len(before) < self.LONGEST:
            self.language, self._held = before.removeprefix(self.BEGINS).strip(), None
            return after
        if self._held[: len(self.BEGINS)] == self.BEGINS[: len(self._held)] and len(self._held) < self.LONGEST:
            return ""
        return self.rest()

    def rest(self) -> str:
        """What is held back, where no heading has come."""
        held, self._held = self._held or "", None
        return held
