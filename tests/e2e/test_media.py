# ruff: noqa: E501
"""Pictures and sound through the SDK, against llama.cpp's goldens: chunks, pixels, embeddings, logits, answers."""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser import new_profile
from tests.support.openai_client import client_path
from tests.support.tolerances import distance
from tools.serve import Server

VISION = Path(__file__).parents[1] / "golden" / "vision"
SET_UP = """async (client) => {
  const { Wisp } = await import("/wisp.js");
  const { default: OpenAI } = await import(client);
  const engine = await Wisp.create();
  const options = { baseURL: `${location.origin}/v1`, apiKey: "none", dangerouslyAllowBrowser: true, maxRetries: 0 };
  const openai = new OpenAI({ ...options, fetch: engine.fetch });
  const at = (name) => `/repo/tests/golden/vision/${name}`;
  const blob = async (name) => (await fetch(at(`media/${name}`))).blob();
  const load = (text, projector, how = { backend: "cpu", kvType: "f32" }) =>
    engine.load({ model: at(text), projector: at(projector), name: "seeing", contextLength: 1024, ...how });
  const base64 = (array) => {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    let text = "";
    for (let i = 0; i < bytes.length; i += 30000) text += String.fromCharCode(...bytes.subarray(i, i + 30000));
    return btoa(text);
  };
  const url = async (name) => {
    const file = await blob(name);
    return `data:${file.type};base64,${base64(new Uint8Array(await file.arrayBuffer()))}`;
  };
  const failure = async (promise) => {
    try { await promise; return null; } catch (error) { return error.error ?? { message: String(error) }; }
  };
  const picture = (url) => ({ type: "image_url", image_url: { url } });
  const ask = (content, more = {}) => ({ model: "seeing", temperature: 0, max_tokens: 8, messages: [{ role: "user", content }], ...more });
  Object.assign(globalThis, { engine, openai, blob, load, base64, url, failure, picture, ask });
}"""
ALL = """const files = await Promise.all(media.map(blob));
const { chunks } = await engine.encode({ prompt, media: files });
const { logits, shape } = await engine.evaluate({ prompt, media: files, ids });
const arrays = (chunk) => Object.fromEntries(Object.entries(chunk).map(([key, value]) =>
  [key, ArrayBuffer.isView(value) ? base64(value) : value]));
return { chunks: chunks.map(arrays), logits: base64(logits), shape };"""
# (golden, case): one for each way in which pictures and sounds are prepared, and read by a text model
CASES = [
    ("qwen2vl", "pair"),
    ("gemma3", "alpha"),
    ("idefics3", "wide"),
    ("qwen3a", "stereo"),
    ("lfm2a", "pair"),
    ("hunyuanvl", "alpha"),
    ("granite4_vision", "pair"),
]
# deepstack; pictures that are read whole, also by a model of another kind; sound; pictures with numbers
ON_GPU = [("qwen3vl", "wide"), ("gemma3", "pair"), ("gemma3.llama", "pair"), ("lfm2a", "half"), ("hunyuanvl", "pair")]
LIMITS = {"f32": (8e-3, 0.05, 2e-5), "f16": (1.5e-2, 0.15, 1e-3)}  # embedding / rms, logits, KL


def opened(browser: Browser, server: Server) -> Page:
    """A page with `engine`, and `openai`, the official client."""
    page = new_profile(browser).new_page()
    page.set_default_timeout(200_000)
    page.goto(f"{server.url}tests/blank.html")
    page.evaluate(SET_UP, client_path())
    return page


@pytest.fixture(scope="module")
def page(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    page = opened(chromium(None), server)
    yield page
    page.context.close()


@pytest.fixture(scope="module")
def gpu_page(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    page = opened(chromium("lavapipe"), server)
    yield page
    page.context.close()


def run(page: Page, code: str, **given: Any) -> Any:
    """The value of an async function body; `given` are its variables."""
    return page.evaluate(f"async ({{{', '.join(given)}}}) => {{ {code} }}", given)


def array(text: str, dtype: Any) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype)


def golden(name: str) -> tuple[dict[str, Any], Any]:
    return json.loads((VISION / f"{name}.json").read_text()), np.load(VISION / f"{name}.npz")


@pytest.mark.parametrize(("name", "case"), CASES)
def test_goldens(page: Page, name: str, case: str) -> None:
    judge(page, name, case, {"backend": "cpu", "kvType": "f32"}, "f32")


@pytest.mark.parametrize(("name", "case"), ON_GPU)
def test_goldens_on_a_gpu(gpu_page: Page, name: str, case: str) -> None:
    judge(gpu_page, name, case, {"backend": "webgpu", "prove": True}, "f16")
    stats = run(gpu_page, "return engine.stats();")
    assert stats["backend"] == stats["projector"]["backend"] == "webgpu"
    assert not stats["proof"]["wrong"]


def judge(page: Page, name: str, case: str, how: dict[str, Any], precision: str) -> None:
    """Compare a case with its golden."""
    about, arrays = golden(name)
    wanted = next(c for c in about["cases"] if c["id"] == case)
    run(page, "await load(text, projector, how);", text=about["text_model"], projector=about["mmproj"], how=how)
    most_embedding, most_logits, most_kl = LIMITS[precision]
    forced = arrays[f"{case}/forced"].tolist()
    got = run(page, ALL, prompt=wanted["prompt"], media=wanted["media"], ids=forced)
    assert [chunk["kind"] for chunk in got["chunks"]] == [chunk["kind"] for chunk in wanted["chunks"]]
    for i, (chunk, want) in enumerate(zip(got["chunks"], wanted["chunks"], strict=True)):
        if want["kind"] == "text":
            assert chunk["ids"] == want["ids"]
            continue
        if want["kind"] == "image":
            assert hashlib.sha256(base64.b64decode(chunk["pixels"])).hexdigest() == want["pixels"]["sha256"]
            assert chunk["pixelsShape"] == [want["pixels"]["height"], want["pixels"]["width"], 3]
        else:
            mel = array(chunk["mel"], np.float32).reshape(chunk["melShape"])
            assert np.abs(mel[:, arrays[f"{case}/{i}/frames"]] - arrays[f"{case}/{i}/mel"]).max() <= 2e-3
        embedding = array(chunk["embedding"], np.float32).reshape(chunk["shape"])
        assert np.abs(embedding - arrays[f"{case}/{i}/embd"]).max() <= most_embedding * want["rms"]
        if about["mrope"]:
            places = array(chunk["positions"], np.int32).reshape(-1, 3)
            assert np.array_equal(places, arrays[f"{case}/{i}/pos"])
    want = arrays[f"{case}/logits"]
    difference, kl = distance(want, array(got["logits"], np.float32).reshape(got["shape"])[-len(want) :])
    assert difference <= most_logits
    assert kl <= most_kl


@pytest.fixture
def seeing(page: Page) -> Page:
    """The page with a model that sees."""
    run(page, 'await load("qwen2vl.gguf", "qwen2vl.mmproj.gguf");')
    return page


def test_a_chat_about_pictures(seeing: Page) -> None:
    """Each form of address gives the same answer; another picture gives another one. Usage counts the tokens."""
    data, streamed, blob, text, other, plain, scored = run(
        seeing,
        """const address = await url("square.png"), what = { type: "text", text: "What is it?" };
        const create = (content, more) => openai.chat.completions.create(ask(content, more));
        const stream = await openai.chat.completions.create({ ...ask([picture(address), what]), stream: true });
        let streamed = "";
        for await (const chunk of stream) streamed += chunk.choices[0]?.delta?.content ?? "";
        const held = URL.createObjectURL(await blob("square.png"));
        return [await create([picture(address), what]), streamed, await create([picture(held), what]),
          await openai.responses.create({ model: "seeing", temperature: 0, max_output_tokens: 8, input: [{ role: "user",
            content: [{ type: "input_image", image_url: address, detail: "auto" }, { type: "input_text", text: "What is it?" }] }] }),
          await create([picture(await url("alpha.png")), what], { logprobs: true }), await create([what]),
          await create([picture(address), what], { logprobs: true })];""",
    )
    answer = data["choices"][0]["message"]["content"]
    assert streamed == blob["choices"][0]["message"]["content"] == answer
    assert text["output"][0]["content"][0]["text"] == answer
    first, changed = (one["choices"][0]["logprobs"]["content"][0]["logprob"] for one in (scored, other))
    assert abs(first - changed) > 0.01
    assert data["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"] + 9 + 2  # with the tokens around it


def test_a_completion_about_a_picture(seeing: Page) -> None:
    """llama.cpp's form of prompts with media, against the golden's greedy ids."""
    about, arrays = golden("qwen2vl")
    wanted = next(c for c in about["cases"] if c["id"] == "square")
    text, want = run(
        seeing,
        """const data = (await url("square.png")).split(",")[1];
        const prompt = { prompt_string, multimodal_data: [data] };
        const done = await engine.completions.create({ model: "seeing", temperature: 0, max_tokens: 4, prompt, ignore_eos: true });
        return [done.choices[0].text, await engine.detokenize(ids)];""",
        prompt_string=wanted["prompt"],
        ids=arrays["square/greedy"].tolist()[:4],
    )
    assert text == want


def test_a_second_question_encodes_nothing(seeing: Page) -> None:
    cached = run(
        seeing,
        """const address = await url("large.png"), what = { type: "text", text: "What is it?" };
        const first = { role: "user", content: [picture(address), what] };
        const one = await engine.chat.completions.create({ ...ask(""), messages: [first] });
        const before = (await engine.stats()).projector;
        const messages = [first, one.choices[0].message, { role: "user", content: "And what colour has it?" }];
        const two = await engine.chat.completions.create({ ...ask(""), messages });
        return [before, (await engine.stats()).projector, one.usage, two.usage];""",
    )
    before, after, one, two = cached
    assert before["encoded"] == after["encoded"]
    assert two["prompt_tokens_details"]["cached_tokens"] >= one["prompt_tokens"] - 2 > 140


def test_a_constrained_answer_about_a_picture(seeing: Page) -> None:
    answer = run(
        seeing,
        """const content = [picture(await url("square.png")), { type: "text", text: "What is it?" }];
        return (await engine.chat.completions.create(ask(content, { regex: "(a red|a blue) circle", max_tokens: 20 }))).choices[0].message.content;""",
    )
    assert answer in ("a red circle", "a blue circle")


def test_a_chat_about_sound(page: Page) -> None:
    """Streamed or not, the answer is the same; another clip changes it. Usage counts a token for 8 frames."""
    run(page, 'await load("lfm2.gguf", "lfm2a.mmproj.gguf");')
    answer, streamed, other, plain = run(
        page,
        """const sound = async (name) =>
          ({ type: "input_audio", input_audio: { data: (await url(name)).split(",")[1], format: "wav" } });
        const what = { type: "text", text: "What is said?" }, three = await sound("three.wav");
        const create = (content) => openai.chat.completions.create(ask(content, { logprobs: true }));
        const stream = await openai.chat.completions.create({ ...ask([three, what]), stream: true });
        let streamed = "";
        for await (const chunk of stream) streamed += chunk.choices[0]?.delta?.content ?? "";
        return [await create([three, what]), streamed, await create([await sound("half.wav"), what]), await create([what])];""",
    )
    assert streamed == answer["choices"][0]["message"]["content"] != ""
    first, changed = (one["choices"][0]["logprobs"]["content"][0]["logprob"] for one in (answer, other))
    assert abs(first - changed) > 0.01
    tokens = [one["usage"]["prompt_tokens"] - plain["usage"]["prompt_tokens"] for one in (answer, other)]
    assert tokens == [38, 7]  # without tokens around them


BAD: list[tuple[str, str, str | None]] = [
    ("picture('data:image/png;base64,' + btoa('not a picture'))", "bad_media", "messages[0].content[0].image_url.url"),
    ("picture('https://127.0.0.1:1/x.png')", "network_error", "messages[0].content[0].image_url.url"),
    ("picture(location.origin + '/nothing.png')", "http_error", "messages[0].content[0].image_url.url"),
    (
        "{ type: 'input_audio', input_audio: { data: (await url('half.wav')).split(',')[1], format: 'wav' } }",
        "no_projector",
        None,
    ),
]


@pytest.mark.parametrize(("part", "code", "param"), BAD, ids=[code for _, code, _ in BAD])
def test_bad_media(seeing: Page, part: str, code: str, param: str | None) -> None:
    """A clear error before anything is computed, and the engine stays usable."""
    error, after = run(
        seeing,
        f"""const error = await failure(engine.chat.completions.create(ask([{part}])));
        return [error, (await engine.chat.completions.create(ask("Hi"))).choices.length];""",
    )
    assert error["code"] == code, error
    assert param is None or error["param"] == param
    assert after == 1


def test_more_pictures_than_the_context_holds(seeing: Page) -> None:
    error = run(
        seeing,
        "return failure(engine.chat.completions.create(ask(Array(9).fill(picture(await url('large.png'))))));",
    )
    assert error["code"] == "context_length_exceeded"


def test_projectors_that_do_not_fit(page: Page) -> None:
    """What was loaded before stays."""
    errors = run(
        page,
        """await load("qwen2vl.gguf", "qwen2vl.mmproj.gguf");
        return [await failure(load("qwen3vl.gguf", "qwen2vl.mmproj.gguf")), await failure(load("qwen2vl.gguf", "gemma3.gguf")),
          (await engine.stats()).model];""",
    )
    assert [error["code"] for error in errors[:2]] == ["projector_mismatch", "not_a_projector"]
    assert errors[2] == "seeing"


def test_a_model_without_a_projector(page: Page) -> None:
    error = run(
        page,
        """await engine.load({ backend: "cpu" });
        return failure(engine.chat.completions.create({ ...ask([picture(await url("square.png"))]), model: undefined }));""",
    )
    assert error["code"] == "no_projector"
    assert "projector" in error["message"]
