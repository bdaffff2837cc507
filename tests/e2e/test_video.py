"""Videos: the pictures that a page takes from them, in requests. Those of the page's chats: test_page_video.py."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser import new_profile
from tests.support.recorded_video import RECORD_WITH_SOUND
from tools.serve import Server

# The video has a second each of red, blue and green (tests/golden/make/video.py).
SET_UP = """async () => {
  const { Wisp } = await import("/wisp.js");
  const video = await (await fetch("/repo/tests/golden/video/colours.webm")).blob();
  const engine = await Wisp.create();
  await engine.load({ model: "wisp-mini-sees-q4_0", backend: "cpu" });
  const ask = (...content) => ({ temperature: 0, max_tokens: 4, messages: [{ role: "user", content }] });
  const failure = (promise) => promise.then(() => null, ({ error }) => error);
  Object.assign(globalThis, { video, engine, ask, failure });
}"""
# What is in the middle of each picture, and when it is shown.
FRAMES = """async ({ fps, most }) => {
  const { framesOf } = await import("/repo/app/sdk/video.js");
  const context = new OffscreenCanvas(96, 64).getContext("2d");
  const colours = [];
  for (const { seconds, blob } of await framesOf(video, { fps, most })) {
    const picture = await createImageBitmap(blob);
    context.drawImage(picture, 0, 0);
    colours.push([...context.getImageData(48, 32, 1, 1).data.slice(0, 3), seconds, picture.width, picture.height]);
  }
  return colours;
}"""


@pytest.fixture(scope="module")
def page(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    """A page with Wisp Mini Sees and the video."""
    context = new_profile(chromium(None))
    page = context.new_page()
    page.goto(f"{server.url}manifest.webmanifest")
    page.evaluate(SET_UP)
    yield page
    context.close()


@pytest.mark.parametrize(("fps", "most", "colours"), [(1, 8, "rbg"), (2, 8, "rrbbgg"), (9, 3, "rbg"), (0.01, 8, "b")])
def test_pictures_are_of_equal_parts(page: Page, fps: float, most: int, colours: str) -> None:
    found = page.evaluate(FRAMES, {"fps": fps, "most": most})
    brightest = ["rgb"[max(range(3), key=lambda channel: frame[channel])] for frame in found]
    assert "".join(brightest) == colours
    for i, (*_, seconds, width, height) in enumerate(found):
        assert abs(seconds - (i + 0.5) * 3 / len(found)) < 0.1
        assert (width, height) == (96, 64)


def run(page: Page, code: str) -> Any:
    return page.evaluate(f"async () => {{ {code} }}")


def test_a_chat_about_a_video(page: Page) -> None:
    """Usage counts what the pictures and times take. The next turn encodes nothing."""
    answered = run(
        page,
        """const url = URL.createObjectURL(video), what = { type: "text", text: "What colour is it?" };
        const part = { type: "video_url", video_url: { url, num_frames: 2 } };
        const request = ask(part, what);
        const one = await engine.chat.completions.create(request), before = (await engine.stats()).projector;
        const counted = await engine.countTokens(request);
        const { framesOf } = await import("/repo/app/sdk/video.js");
        const frames = await framesOf(video, { fps: 1, most: 2 });
        const parts = frames.flatMap(({ seconds, blob }) => [{ type: "text", text: `[0m${seconds.toFixed(2)}s]` },
          { type: "image_url", image_url: { url: URL.createObjectURL(blob) } }]);
        const same = await engine.chat.completions.create(ask(...parts, what));
        const messages = [...request.messages, one.choices[0].message, { role: "user", content: "And now?" }];
        const two = await engine.chat.completions.create({ ...request, messages });
        return { one, same, two, counted, before, after: (await engine.stats()).projector };""",
    )
    one, same, two = (answered[name] for name in ("one", "same", "two"))
    assert one["choices"][0]["message"] == same["choices"][0]["message"]
    assert one["usage"]["prompt_tokens"] == same["usage"]["prompt_tokens"] == answered["counted"]["tokens"]
    assert answered["before"]["encoded"] == answered["after"]["encoded"] == 2
    assert two["usage"]["prompt_tokens_details"]["cached_tokens"] >= one["usage"]["prompt_tokens"] - 2


def test_a_response_about_a_video(page: Page) -> None:
    """It reads what a chat reads; both forms of the part encode the same pictures."""
    counts, text, encoded = run(
        page,
        """const reader = new FileReader();
        const video_url = await new Promise((done) => {
          reader.onload = () => done(reader.result);
          reader.readAsDataURL(video);
        });
        const text = "What colour is it?", more = { temperature: 0, max_output_tokens: 4 };
        const asked = (part) => ({ ...more, input: [{ role: "user", content: [part, { type: "input_text", text }] }] });
        const part = { type: "input_video", video_url, num_frames: 3 }, counts = [];
        const before = (await engine.stats()).projector.encoded;
        const one = await engine.responses.create(asked(part));
        const input_video = { data: video_url, num_frames: 3 };
        for (const each of [part, { type: "input_video", input_video }])
          counts.push((await engine.responses.inputTokens.count(asked(each))).input_tokens);
        const chat = ask({ type: "input_video", input_video }, { type: "text", text });
        const same = await engine.chat.completions.create(chat);
        counts.push(one.usage.input_tokens, same.usage.prompt_tokens);
        const texts = [one.output[0].content[0].text, same.choices[0].message.content];
        return [counts, texts, (await engine.stats()).projector.encoded - before];""",
    )
    assert len(set(counts)) == 1
    assert text[0] == text[1]
    assert encoded <= 3


def test_two_frames_are_a_picture_for_a_model_that_reads_pairs(page: Page) -> None:
    """Twice the frames take the same tokens. A second question encodes nothing."""
    counts, encoded, cached = run(
        page,
        """const url = URL.createObjectURL(video), from = "/repo/tests/golden/vision/qwen3vl";
        const files = { model: `${from}.gguf`, projector: `${from}.mmproj.gguf` };
        const { model } = await engine.load({ ...files, backend: "cpu" });
        const asked = (num_frames) => ({ model,
          ...ask({ type: "video_url", video_url: { url, num_frames, fps: 9 } }, { type: "text", text: "Why?" }) });
        const counts = [];
        for (const n of [1, 2, 3, 4]) counts.push((await engine.countTokens(asked(n))).tokens);
        const encoded = async () => (await engine.stats(model)).projector.encoded;
        const one = await engine.chat.completions.create(asked(4)), first = await encoded();
        const two = await engine.chat.completions.create(asked(4)), second = await encoded();
        await engine.unload(model);
        return [counts, [first, second], two.usage.prompt_tokens_details.cached_tokens];""",
    )
    assert counts[0] == counts[1] < counts[2] == counts[3]
    assert encoded == [2, 2]
    assert cached > 0


def test_the_sound_of_a_video_is_heard_where_the_request_asks_for_it(page: Page) -> None:
    """It takes the tokens of the same sound as a part of its own. Without sound, or for a deaf model: an error."""
    counts, encoded, silent, deaf = run(
        page,
        RECORD_WITH_SOUND
        + """const from = "/repo/tests/golden/vision/gemma4";
        const files = { model: `${from}.gguf`, projector: `${from}.mmproj.gguf` };
        const { model } = await engine.load({ ...files, backend: "cpu" });
        const base64 = async (blob) => new Uint8Array(await blob.arrayBuffer()).toBase64();
        const part = (data, more) => ({ type: "input_video", input_video: { data, num_frames: 1, ...more } });
        const text = { type: "text", text: "Who speaks?" }, asked = { load_audio_from_video: true };
        const loud = await base64(recorded);
        const sound = { type: "input_audio", input_audio: { data: loud, format: "wav" } };
        const counts = [];
        for (const parts of [[part(loud)], [part(loud), sound], [part(loud, asked)]])
          counts.push((await engine.countTokens({ model, ...ask(...parts, text) })).tokens);
        await engine.chat.completions.create({ model, ...ask(part(loud, asked), text) });
        const { encoded } = (await engine.stats(model)).projector;
        const quiet = part(await base64(video), asked);
        const silent = await failure(engine.chat.completions.create({ model, ...ask(quiet, text) }));
        await engine.unload(model);
        const sees = { model: "wisp-mini-sees-q4_0", ...ask(part(loud, asked), text) };
        return [counts, encoded, silent, await failure(engine.chat.completions.create(sees))];""",
    )
    assert counts[0] < counts[1] == counts[2]
    assert encoded == 2  # a picture and the sound
    assert (silent["code"], silent["param"]) == ("bad_media", "messages[0].content[0].input_video")
    assert (deaf["code"], deaf["param"]) == ("no_projector", "messages[0].content[0].input_video")


def test_errors_of_videos(page: Page) -> None:
    broken, kind = run(
        page,
        """const part = (data) => ({ type: "input_video", input_video: { data } });
        return [await failure(engine.chat.completions.create(ask(part(btoa("film"))))),
          await failure(engine.chat.completions.create(ask({ type: "input_video" })))];""",
    )
    assert (broken["code"], broken["param"]) == ("bad_media", "messages[0].content[0].input_video")
    assert "video that cannot be used" in broken["message"]
    assert kind["code"] == "invalid_type"
