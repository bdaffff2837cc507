"""Transcriptions: what a model is asked, what its answer becomes, and the errors."""

from typing import Any

import numpy as np
import pytest

from app.models.projector import ChunkedPrompt
from app.openai.transcriptions import Heading
from py_engine.errors import WispError
from py_engine.media.formats import bad_media
from py_engine.media.prepared import Medium, Sound, Spectrum
from tests.support.media import MEDIA
from tests.support.worker_page import HELLO, File, Page

CLIP = (MEDIA / "half.wav").read_bytes()
MINI = "<|im_start|>system\nYou are Wisp Mini, a small and helpful assistant.<|im_end|>\n"  # its template's
TURN = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"


class Ears:
    """A projector that hears: it records the texts that it is asked for. `medium`: what every file is."""

    def __init__(self, page: Page) -> None:
        self._page, self.texts, self.projector = page, list[str](), self
        self.medium: Medium = Sound((Spectrum(np.zeros((2, 4), np.float32), 3),), 1.5)
        self.vision, self.audio, self.memory = None, object(), dict[str, int]()
        self.fails: WispError | None = None

    def need_audio(self) -> None:
        if self.audio is None:
            raise WispError("This model sees, but does not hear.", "no_projector")

    async def prepared(self, data: bytes, second: bytes | None = None) -> Medium:
        assert data == CLIP
        if self.fails:
            raise self.fails
        return self.medium

    def prompt(self, text: str, media: list[Medium], marker: str) -> ChunkedPrompt:
        assert media == [self.medium]
        self.texts.append(text.replace(marker, "<clip>").removeprefix(MINI))
        return ChunkedPrompt([], self._page.engine.tokenizer.encode(text.replace(marker, "")), [])

    async def encode(self, media: Any) -> None:
        raise AssertionError("the scripted engine reads no embeddings")


@pytest.fixture
async def page() -> Page:
    page = Page()
    await page.call("load")

    async def read(file: Any) -> bytes:
        if not isinstance(file, File):
            raise WispError("media must be a list of files.", "invalid_type", param="media")
        return page.platform.files.get(file.name, CLIP)  # type: ignore[return-value]

    page.platform.read_media = read  # type: ignore[method-assign]
    return page


@pytest.fixture
def ears(page: Page) -> Ears:
    ears = model(page).projector = Ears(page)
    return ears


def model(page: Page) -> Any:
    return page.worker._models.loaded["mini"]


async def heard(page: Page, task: str = "transcriptions", **request: Any) -> Any:
    return await page.call(f"audio.{task}", request=request, file=File("clip.wav"))


async def test_the_instruction_is_llama_cpps(page: Page, ears: Ears) -> None:
    await heard(page)
    await heard(page, language="en")
    await heard(page, language="de", prompt="Write down the numbers only.")
    await heard(page, "translations")
    assert ears.texts == [
        TURN.format("Transcribe audio to text<clip>"),
        TURN.format("Transcribe audio to text (language: en)<clip>"),
        TURN.format("Write down the numbers only. (language: de)<clip>"),
        TURN.format("Translate audio to English text<clip>"),
    ]


async def test_the_transcription_mode_of_voxtral(page: Page, ears: Ears) -> None:
    """Not for an instruction of the request, nor for a translation."""
    model(page).tokenizer.vocab.ids["[TRANSCRIBE]"] = 5
    await heard(page)
    await heard(page, language="en")
    await heard(page, prompt="Who speaks?")
    await heard(page, "translations")
    assert ears.texts[:2] == [TURN.format("<clip>") + "[TRANSCRIBE]", TURN.format("<clip>") + "lang:en[TRANSCRIBE]"]
    assert not any("[TRANSCRIBE]" in text for text in ears.texts[2:])


async def test_the_system_message_of_lfm2(page: Page, ears: Ears) -> None:
    marked = "{# <|tool_list_start|><|tool_list_end|> #}" + model(page).template.source
    model(page).template = type(model(page).template)(marked, "", "")
    await heard(page)
    assert ears.texts == ["<|im_start|>system\nPerform ASR.<|im_end|>\n" + TURN.format("<clip>")]


async def test_formats(page: Page, ears: Ears) -> None:
    whole = await heard(page)
    assert whole["text"] == HELLO
    assert whole["usage"]["output_tokens"] == len(page.engine.tokenizer.encode(HELLO)) + 1
    assert whole["usage"]["total_tokens"] == whole["usage"]["input_tokens"] + whole["usage"]["output_tokens"]
    assert await heard(page, response_format="text") == HELLO
    verbose = {"task": "transcribe", "language": "en", "duration": 1.5, "text": HELLO}
    usage = {"usage": {"type": "duration", "seconds": 1.5}}
    assert await heard(page, response_format="verbose_json", language="en") == verbose | usage
    english = verbose | usage | {"task": "translate", "language": "english"}
    assert await heard(page, "translations", response_format="verbose_json") == english


async def test_a_stream_has_the_same_text(page: Page, ears: Ears) -> None:
    number, task = page.send("audio.transcriptions", request={"stream": True}, file=File("clip.wav"))
    await task
    *deltas, done = [chunk for m in page.answers(number) for chunk in m.get("chunks", [m.get("chunk")]) if chunk]
    assert {delta["type"] for delta in deltas} == {"transcript.text.delta"}
    assert "".join(delta["delta"] for delta in deltas) == done["text"] == HELLO
    assert (done["type"], done["usage"]["type"]) == ("transcript.text.done", "tokens")
    assert len(deltas) > 2


async def test_a_language_that_the_model_tells(page: Page, ears: Ears) -> None:
    """Qwen3-ASR's: it is no part of the text."""
    model(page).tokenizer.vocab.ids["<asr_text>"] = 5
    page.engine.says = "language German<asr_text>Guten Tag"
    answer = await heard(page, response_format="verbose_json")
    assert (answer["text"], answer["language"]) == ("Guten Tag", "german")


@pytest.mark.parametrize(
    ("said", "text", "language"),
    [
        ("language English<asr_text>Hi", "Hi", "English"),
        ("languid rivers", "languid rivers", ""),
        ("language is all", "language is all", ""),
        ("", "", ""),
        ("language " + "a" * 80 + "<asr_text>x", "language " + "a" * 80 + "<asr_text>x", ""),
    ],
)
def test_a_heading_in_any_pieces(said: str, text: str, language: str) -> None:
    for size in (1, 3, 100):
        heading = Heading()
        pieces = [heading.text_of(said[i : i + size]) for i in range(0, len(said), size)]
        assert ("".join([*pieces, heading.rest()]), heading.language) == (text, language)
        if text.startswith("languid"):
            assert pieces[0] or size < 6  # nothing is held back for longer than it may be a heading


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"response_format": "srt"}, "unsupported_parameter", "response_format"),
    ({"response_format": "xml"}, "invalid_value", "response_format"),
    ({"response_format": "verbose_json"}, "invalid_value", "language"),
    ({"response_format": "verbose_json", "language": "en", "stream": True}, "invalid_value", "response_format"),
    ({"timestamp_granularities": ["word"]}, "unsupported_parameter", "timestamp_granularities"),
    ({"include": ["logprobs"]}, "unsupported_parameter", "include"),
    ({"temperature": "hot"}, "invalid_type", "temperature"),
    ({"stream": "yes"}, "invalid_type", "stream"),
    ({"language": "<|im_end|>"}, "invalid_value", "language"),
    ({"messages": []}, "unsupported_parameter", "messages"),
    ({"seed": "x"}, "invalid_type", "seed"),
]


@pytest.mark.parametrize(("request_", "code", "param"), BAD)
async def test_bad_requests(page: Page, ears: Ears, request_: dict[str, Any], code: str, param: str) -> None:
    error = (await heard(page, **request_))["error"]
    assert (error["code"], error["param"]) == (code, param)


async def test_bad_files(page: Page, ears: Ears) -> None:
    async def refused(**more: Any) -> tuple[str, str, str]:
        error = (await page.call("audio.transcriptions", request={}, **more))["error"]
        return error["code"], error["param"], error["message"]

    clip = File("clip.wav")
    assert (await refused())[:2] == ("invalid_type", "file")
    assert "multipart" in (await refused(file="text"))[2]
    ears.fails = bad_media("its WAV header is damaged")
    assert (await refused(file=clip))[:2] == ("bad_media", "file")
    ears.fails, page.platform.files["dot.png"] = None, (MEDIA / "dot.png").read_bytes()
    code, param, message = await refused(file=File("dot.png"))
    assert (code, param) == ("bad_media", "file")
    assert "needs sound" in message
    ears.audio = None
    assert (await refused(file=clip))[:2] == ("no_projector", "file")
    model(page).projector = None
    assert (await refused(file=clip))[:2] == ("no_projector", "file")


async def test_a_clip_that_is_longer_than_the_context(page: Page, ears: Ears) -> None:
    error = (await heard(page, prompt="word " * 300))["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "file")
    assert "shorter clip" in error["message"]
    assert error["n_prompt_tokens"] > error["n_ctx"] == page.engine.context_length
    page.engine.says = "word " * 500
    error = (await heard(page))["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "file")
    assert (await heard(page, max_tokens=3))["usage"]["output_tokens"] == 3
