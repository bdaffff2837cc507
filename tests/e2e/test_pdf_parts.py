"""PDF files in requests through the SDK, on a page that is not Wisp's."""

import base64
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Browser

from tests.support.browser import new_profile
from tests.support.pdf_file import endless, pdf, without_time_limit
from tools.serve import Server

PRICES = pdf([[("Prices", 20, 60), ("The Lumo Lamp costs 12 euros.", 11, 100)], [("The Zeta Radio costs 9.", 11, 80)]])
ASK = """async ([text, ...pdfs]) => {
  const { Wisp } = await import("/wisp.js");
  const engine = await Wisp.create();
  await engine.load({ model: "wisp-mini-q4_0", backend: "cpu" });
  const messages = (file_data) => [{ role: "user", content: [{ type: "file", file: { filename: "a", file_data } }] }];
  const failed = (promise) => promise.then(() => null, ({ code, message }) => [code, message]);
  const tokens = async (data) => (await engine.countTokens({ messages: messages(data) })).tokens;
  const input = [{ role: "user", content: [{ type: "input_file", filename: "a", file_data: pdfs[0] }] }];
  return {
    tokens: [await tokens(text), await tokens(pdfs[0])],
    chat: (await engine.chat.completions.create({ messages: messages(pdfs[0]), max_tokens: 1 })).usage.prompt_tokens,
    response: (await engine.responses.create({ input, max_output_tokens: 16 })).usage.input_tokens,
    errors: [await failed(tokens(pdfs[1])), await failed(tokens(pdfs[2]))],
  };
}"""


def data_url(data: bytes, kind: str = "application/pdf") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def test_requests_read_pdf_files_as_their_text(chromium: Callable[[str | None], Browser], server: Server) -> None:
    text = "Prices\n\nThe Lumo Lamp costs 12 euros.\n\nThe Zeta Radio costs 9."
    given = [data_url(text.encode(), "text/plain"), *map(data_url, (PRICES, b"%PDF-1.4 and no more", pdf([[]])))]
    context = new_profile(chromium(None))
    page = context.new_page()
    page.goto(f"{server.url}tests/blank.html")
    found: dict[str, Any] = page.evaluate(ASK, given)
    context.close()
    assert found["tokens"][0] == found["tokens"][1] == found["chat"] == found["response"] > 20
    (broken, why), (scan, advice) = found["errors"]
    assert broken == scan == "invalid_value"
    assert "not a PDF file, or it is damaged" in why
    assert "image_url" in advice


ABORTED = """async (file_data) => {
  const { Wisp } = await import("/wisp.js");
  const engine = await Wisp.create();
  const controller = new AbortController();
  globalThis.abort = () => controller.abort();
  const messages = [{ role: "user", content: [{ type: "file", file: { filename: "a", file_data } }] }];
  globalThis.failed = engine.chat.completions.create({ messages }, { signal: controller.signal }).catch((e) => e.code);
}"""


def test_an_aborted_request_ends_the_reading(chromium: Callable[[str | None], Browser], server: Server) -> None:
    context = new_profile(chromium(None))
    context.add_init_script(without_time_limit())
    page = context.new_page()
    page.goto(f"{server.url}tests/blank.html")
    with page.expect_worker(lambda worker: "pdf" in worker.url) as reader:
        page.evaluate(ABORTED, data_url(endless()))
    page.wait_for_timeout(1000)
    with reader.value.expect_event("close"):
        page.evaluate("abort()")
    assert page.evaluate("failed") == "aborted"
    context.close()
