"""Pictures and sound of the Prompt API, by a golden that sees and hears and by the catalog's model that sees."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser import new_profile
from tools.serve import Server

GOLDEN = Path(__file__).parents[1] / "golden"
SET_UP = """async () => {
  const { Wisp } = await import("/wisp.js");
  const { languageModel } = await import("/prompt-api.js");
  const at = (name) => `/repo/tests/golden/vision/${name}`;
  const engine = await Wisp.create();
  const golden = (name, vision = name) => languageModel(Wisp, { name, model: at(`${vision}.gguf`),
    projector: at(`${vision}.mmproj.gguf`), backend: "cpu", kvType: "f32", contextLength: 1024 });
  const both = [{ type: "image" }, { type: "audio" }];
  const exactly = { temperature: 0, topK: 1 };
  const file = async (name) => (await fetch(at(`media/${name}`))).blob();
  const asked = (type, value) => [{ role: "user", content: [{ type, value }, { type: "text", value: "what is it?" }] }];
  const failed = (promise) => promise.then(() => null, (error) => error.name);
  const encoded = async () => (await engine.stats()).projector.encoded;
  const LanguageModel = golden("gemma4"); // sees and hears
  Object.assign(globalThis, { Wisp, languageModel, LanguageModel, golden, both, exactly, file, asked, failed,
    encoded });
}"""


@pytest.fixture(scope="module")
def page(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    """A page with `LanguageModel` over a golden, and helpers."""
    context = new_profile(chromium(None))
    page = context.new_page()
    page.set_default_timeout(200_000)
    page.goto(f"{server.url}tests/blank.html")
    page.evaluate(SET_UP)
    yield page
    context.close()


def run(page: Page, code: str, given: Any = None) -> Any:
    """The value of an async function body; `given` is its variable."""
    return page.evaluate(f"async (given) => {{ {code} }}", given)


def test_availability_follows_the_projector(page: Page) -> None:
    assert run(
        page,
        """const textOnly = languageModel(Wisp, { model: "wisp-mini-q4_0" });
        const sees = languageModel(Wisp, { model: "wisp-mini-sees-q4_0" });
        const [image, audio] = both.map((kind) => ({ expectedInputs: [kind] }));
        const found = [await textOnly.availability(image), await failed(textOnly.create(image)),
          await sees.availability(image)];
        const hears = golden("hears", "qwen3a");
        found.push(await failed(hears.create(image)));
        return [...found, await hears.availability(image), await hears.availability(audio)];""",
    ) == ["unavailable", "NotSupportedError", "downloadable", "NotSupportedError", "unavailable", "available"]


def test_every_form_of_a_picture_is_the_same_prompt(page: Page) -> None:
    """Same pixels: the projector runs once, for the first."""
    forms, usages, answers, runs = run(
        page,
        """const session = await LanguageModel.create({ ...exactly, expectedInputs: both });
        const before = await encoded();
        const blob = await file("large.png"), bitmap = await createImageBitmap(blob);
        const canvas = Object.assign(document.createElement("canvas"), { width: bitmap.width, height: bitmap.height });
        canvas.getContext("2d").drawImage(bitmap, 0, 0);
        const offscreen = new OffscreenCanvas(bitmap.width, bitmap.height);
        offscreen.getContext("2d").drawImage(bitmap, 0, 0);
        const image = Object.assign(new Image(), { src: URL.createObjectURL(blob) }); // still loading
        const buffer = await blob.arrayBuffer();
        const longer = new Uint8Array(256 + buffer.byteLength);
        longer.set(new Uint8Array(buffer), 256);
        const forms = { blob, bitmap, canvas, offscreen, image, buffer, view: longer.subarray(256),
          data: canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height),
          frame: new VideoFrame(bitmap, { timestamp: 0 }) };
        const usages = [], answers = [];
        for (const value of Object.values(forms)) {
          const clone = await session.clone();
          usages.push(await clone.measureContextUsage(asked("image", value)));
          answers.push(await clone.prompt(asked("image", value), { responseConstraint: /[a-z ]{4}/ }));
        }
        forms.frame.close();
        return [Object.keys(forms), usages, answers, (await encoded()) - before];""",
    )
    assert len(set(usages)) == 1, dict(zip(forms, usages, strict=True))
    assert usages[0] > 77  # the picture's tokens
    assert len(set(answers)) == 1, dict(zip(forms, answers, strict=True))
    assert runs == 1


def test_every_form_of_a_sound_is_the_same_prompt(page: Page) -> None:
    usages, answers, runs = run(
        page,
        """const session = await LanguageModel.create({ ...exactly, expectedInputs: both });
        const before = await encoded();
        const blob = await file("half.wav"), whole = new Int16Array(await blob.arrayBuffer()).subarray(22);
        const decoded = new AudioBuffer({ length: whole.length, sampleRate: 16000 });
        whole.forEach((sample, i) => (decoded.getChannelData(0)[i] = sample / 2 ** 15));
        const usages = [], answers = [];
        for (const value of [blob, await blob.arrayBuffer(), decoded]) {
          const clone = await session.clone();
          answers.push(await clone.prompt(asked("audio", value), { responseConstraint: /[a-z ]{4}/ }));
          usages.push(clone.contextUsage);
        }
        return [usages, answers, (await encoded()) - before];""",
    )
    assert len(set(usages)) == len(set(answers)) == runs == 1
    assert usages[0] > 13  # the sound's tokens


def test_the_page_decodes_compressed_sound(page: Page) -> None:
    """8-bit mu-law, which the engine leaves to the browser: as many tokens as the same samples in 16 bits."""
    assert run(
        page,
        """const session = await LanguageModel.create({ expectedInputs: both });
        const wav = (code, bytes) => {
          const header = new DataView(new ArrayBuffer(44)), length = 8000 * bytes;
          [0x52494646, 0, 0x57415645, 0x666d7420].forEach((word, i) => header.setUint32(4 * i, word));
          [36 + length, 16].forEach((size, i) => header.setUint32([4, 16][i], size, true));
          [code, 1].forEach((value, i) => header.setUint16(20 + 2 * i, value, true));
          [16000, 16000 * bytes].forEach((value, i) => header.setUint32(24 + 4 * i, value, true));
          [bytes, 8 * bytes].forEach((value, i) => header.setUint16(32 + 2 * i, value, true));
          header.setUint32(36, 0x64617461);
          header.setUint32(40, length, true);
          const samples = Uint8Array.from({ length }, (_, i) => (i * 37) % 251);
          return new Blob([header, samples], { type: "audio/wav" });
        };
        const [law, plain] = [wav(7, 1), wav(1, 2)].map((file) => session.measureContextUsage(asked("audio", file)));
        return [await law === await plain, await law > 13];""",
    ) == [True, True]


def test_a_canvas_is_read_when_it_is_given(page: Page) -> None:
    """Also while the session is busy with another prompt."""
    assert (
        run(
            page,
            """const session = await LanguageModel.create({ ...exactly, expectedInputs: both });
        const canvas = new OffscreenCanvas(60, 40), context = canvas.getContext("2d");
        context.fillStyle = "red";
        context.fillRect(0, 0, 60, 40);
        const before = await encoded();
        const first = session.append(asked("image", canvas));
        const second = session.append(asked("image", canvas)); // waits for the first
        context.fillStyle = "blue";
        context.fillRect(0, 0, 60, 40);
        await Promise.all([first, second]);
        await session.prompt("?", { responseConstraint: /[a-z]/ });
        return (await encoded()) - before;""",
        )
        == 1
    )


def test_initial_prompts_and_appended_pictures_are_counted(page: Page) -> None:
    initial, appended, measured = run(
        page,
        """const session = await LanguageModel.create({ expectedInputs: both,
          initialPrompts: asked("image", await file("square.png")) });
        const initial = session.contextUsage;
        const measured = await session.measureContextUsage(asked("audio", await file("half.wav")));
        await session.append(asked("audio", await file("half.wav")));
        return [initial, session.contextUsage, measured];""",
    )
    assert initial > 81
    assert appended == initial + measured > initial + 13


def test_wrong_media(page: Page) -> None:
    """As the specification has it; the session stays usable."""
    assert run(
        page,
        """const session = await LanguageModel.create({ expectedInputs: [{ type: "image" }] });
        const hearing = await LanguageModel.create({ expectedInputs: [{ type: "audio" }] });
        const picture = await file("square.png"), noise = new Blob(["no"]);
        const results = [];
        for (const input of [asked("audio", picture), asked("image", "x"), asked("image", null), asked("text", picture),
            asked("video", picture), [{ role: "assistant", content: [{ type: "image", value: picture }] }],
            asked("image", new Blob(["not a picture"])), asked("image", new Blob()), asked("image", new Image())])
          results.push(await failed(session.prompt(input)));
        results.push(await failed(session.append(asked("image", await file("half.wav")))));
        for (const input of [asked("image", picture), asked("audio", new ImageData(4, 4)), asked("audio", noise),
            asked("audio", picture)])
          results.push(await failed(hearing.append(input)));
        results.push(await failed(LanguageModel.create({ initialPrompts: asked("image", picture) })));
        results.push(await failed(LanguageModel.create({ expectedInputs: [{ type: "smell" }] })));
        results.push(await failed(session.append(asked("image", picture))));
        return results;""",
    ) == [
        *("NotSupportedError", "TypeError", "TypeError", "TypeError", "TypeError", "NotSupportedError"),
        *("InvalidStateError", "InvalidStateError", "InvalidStateError", "InvalidStateError"),
        *("NotSupportedError", "TypeError", "DataError", "DataError"),
        *("NotSupportedError", "TypeError", None),
    ]


def test_a_drawing_on_a_canvas_is_answered(page: Page) -> None:
    """By Wisp Mini Sees, through a stream."""
    picture = GOLDEN / "sees" / "shapes-0.png"
    probe = next(
        one for one in json.loads((picture.parent / "probes.json").read_text()) if one["picture"] == picture.name
    )
    question, wanted = probe["turns"][0]
    answer = run(
        page,
        """const Sees = languageModel(Wisp, { model: "wisp-mini-sees-q4_0", backend: "cpu" });
        const session = await Sees.create({ ...exactly, expectedInputs: [{ type: "image" }] });
        const canvas = document.createElement("canvas"), image = new Image();
        image.src = given.url;
        await image.decode();
        Object.assign(canvas, { width: image.width, height: image.height }).getContext("2d").drawImage(image, 0, 0);
        const content = [{ type: "image", value: canvas }, { type: "text", value: given.question }];
        let answer = "";
        for await (const piece of session.promptStreaming([{ role: "user", content }])) answer += piece;
        return answer;""",
        {"url": "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode(), "question": question},
    )
    assert answer == wanted
