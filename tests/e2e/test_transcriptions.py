# ruff: noqa: E501
"""Transcriptions by a golden that hears: the SDK, the service worker, and `serve --api` with the official clients."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from playwright.sync_api import BrowserContext, Page

from tests.support.openai_client import SET_UP, client_path, run
from tests.support.served_api import served_api
from tests.support.waiting import HANG_S
from tools.api import ApiServer
from tools.paths import ROOT

SERVICE_WORKER = True

MEDIA = ROOT / "tests" / "golden" / "vision" / "media"
LOAD = """const { Wisp } = await import("/wisp.js");
const at = (name) => `/repo/tests/golden/vision/${name}`;
globalThis.engine = await Wisp.create();
await engine.load({ model: at("qwen2a.gguf"), projector: at("qwen2a.mmproj.gguf"), name: "hearing", backend: "cpu", kvType: "f32", contextLength: 1024 });
globalThis.clip = new File([await (await fetch(at("media/half.wav"))).blob()], "half.wav");"""
ASK = """const what = { file: clip, model: "hearing", max_tokens: 8 };
const whole = await client.audio.transcriptions.create(what);
const text = await client.audio.transcriptions.create({ ...what, response_format: "text" });
const stream = [];
for await (const event of await client.audio.transcriptions.create({ ...what, stream: true })) stream.push(event);
return { whole, text, stream };"""


@pytest.fixture(scope="module")
def api(dist: Path) -> Iterator[ApiServer]:
    with served_api(dist, {"tests/": ROOT / "tests" / "support" / "pages", "repo/": ROOT}) as running:
        running.tab_s = HANG_S
        yield running


@pytest.fixture(scope="module")
def page(context: BrowserContext, api: ApiServer) -> Page:
    """The page whose engine the terminal's server asks, with the official client of npm."""
    page = context.new_page()
    page.set_default_timeout(1000 * HANG_S)
    page.goto(api.lending_url)
    assert api.wait_for_tab(HANG_S)
    run(page, LOAD)
    page.evaluate(SET_UP, client_path())
    return page


@pytest.fixture
def client(page: Page, api: ApiServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{api.url}v1", api_key=api.key, max_retries=0, timeout=HANG_S)


def test_the_sdk_and_the_service_worker(page: Page) -> None:
    """The text is a chat's that has llama.cpp's instruction."""
    chat: Any = run(
        page,
        """const data = new Uint8Array(await clip.arrayBuffer());
        const audio = { type: "input_audio", input_audio: { data: btoa(String.fromCharCode(...data)), format: "wav" } };
        const content = [{ type: "text", text: "Transcribe audio to text" }, audio];
        const asked = { model: "hearing", temperature: 0, max_tokens: 8, messages: [{ role: "user", content }] };
        return await engine.chat.completions.create(asked);""",
    )
    for name in ("engine", "openai"):
        got = run(page, f"const client = {name}; {ASK}")
        assert got["whole"]["text"] == got["text"] == chat["choices"][0]["message"]["content"].lstrip() != ""
        assert got["whole"]["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]
        assert "".join(event["delta"] for event in got["stream"][:-1]) == got["stream"][-1]["text"] == got["text"]


def test_the_python_client_in_the_terminal(client: openai.OpenAI, page: Page) -> None:
    want = run(page, "return (await engine.audio.transcriptions.create({ file: clip, max_tokens: 8 })).text;")
    more: Any = {"extra_body": {"max_tokens": 8}}
    with (MEDIA / "half.wav").open("rb") as file:
        assert client.audio.transcriptions.create(model="hearing", file=file, **more).text == want
    clip = ("half.wav", (MEDIA / "half.wav").read_bytes())
    assert client.audio.transcriptions.create(model="hearing", file=clip, response_format="text", **more) == want
    verbose = client.audio.transcriptions.create(
        model="hearing", file=clip, response_format="verbose_json", language="en", **more
    )
    assert (verbose.duration, verbose.language) == (0.5, "en")
    *deltas, done = client.audio.transcriptions.create(model="hearing", file=clip, stream=True, **more)
    assert "".join(event.delta for event in deltas if event.type == "transcript.text.delta") == want
    assert done.type == "transcript.text.done"
    english = client.audio.translations.create(model="hearing", file=clip, **more)
    assert (english.model_extra or {})["usage"]["output_tokens"] == 8


def test_errors_in_the_terminal(client: openai.OpenAI, page: Page) -> None:
    def refused(file: Any, **fields: Any) -> tuple[Any, Any]:
        with pytest.raises(openai.BadRequestError) as caught:
            client.audio.transcriptions.create(model="hearing", file=file, **fields)
        return caught.value.code, caught.value.param

    assert refused(("x.wav", b"RIFF\xff\x00")) == ("bad_media", "file")
    assert refused(("x.png", (MEDIA / "dot.png").read_bytes())) == ("bad_media", "file")
    assert refused(("x.wav", (MEDIA / "half.wav").read_bytes()), response_format="srt")[0] == "unsupported_parameter"
    with pytest.raises(openai.BadRequestError, match="multipart"):
        client.post("/audio/transcriptions", cast_to=object, body={"model": "hearing"})
    long = (MEDIA / "long.wav").read_bytes()
    assert refused(("long.wav", long)) == ("context_length_exceeded", "file")
