"""Models on another server: a second Wisp with a bridge is a page's upstream. The official client calls the page."""

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.support.browser import new_profile, watch
from tests.support.chat_page import ask, keep_engine, last_answer, new_chat, open_page, send, wait_answer
from tests.support.openai_client import client_path
from tests.support.scripted_server import ScriptedServer
from tests.support.upstream_server import HOSTILE_MODEL, UpstreamServer
from tests.support.waiting import HANG_S, wait_for
from tests.support.weather_tool import WEATHER_TOOL
from tools.api import ApiServer
from tools.serve import Server

SERVICE_WORKER = True

MODEL = "office/wisp-mini-q8_0"
CLIENT = """async ({ client, how, model }) => {
    const { default: OpenAI } = await import(client);
    const { Wisp } = await import("/wisp.js");
    const engine = await Wisp.create();
    const fetching = how === "engine" ? { fetch: engine.fetch } : {};
    const openai = new OpenAI({ baseURL: location.origin + "/v1", apiKey: "none", dangerouslyAllowBrowser: true,
                                maxRetries: 0, ...fetching });
    CODE
}"""


@pytest.fixture(scope="module")
def bridge(dist: Path, chromium: Callable[[str | None], Browser]) -> Iterator[ApiServer]:
    """A real Wisp with an API for other programs: `serve --api` and its tab, with the 8-bit model."""
    running = ApiServer(dist, 0)
    running.start()
    made = new_profile(chromium(None), service_worker=False)
    page = made.new_page()
    page.add_init_script("""localStorage["wisp.model"] = '{"keep": "wisp-mini-q8_0", "name": "Wisp Mini, 8-bit"}'""")
    page.goto(running.lending_url)
    yield running  # its tab starts in parallel with the tests' page
    made.close()
    running.shutdown()
    running.server_close()


@pytest.fixture(scope="module")
def upstream(bridge: ApiServer, server: Server) -> Iterator[UpstreamServer]:
    running = UpstreamServer(bridge.url, server.url.rstrip("/"))
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture(scope="module")
def page(context: BrowserContext, server: Server, upstream: UpstreamServer, bridge: ApiServer) -> Page:
    """The page, after the user has added the server in it."""
    keep_engine(context, server.url)
    page = open_page(context, server.url)
    assert bridge.wait_for_tab(HANG_S)
    page.click("#model-button")
    page.click("#upstream-add")
    expect(page.get_by_label("Name", exact=False).first).to_be_focused()
    page.fill("#upstream-form [name=name]", "office")
    page.fill("#upstream-form [name=baseURL]", "http://gpu-box:8000/v1")
    page.fill("#upstream-form [name=apiKey]", bridge.key)
    page.press("#upstream-form [name=baseURL]", "Enter")
    expect(page.locator("#upstream-error")).to_contain_text("ssh -L 8000:127.0.0.1:8000 gpu-box")
    expect(page.locator("#upstream-form [name=baseURL]")).to_be_focused()
    page.fill("#upstream-form [name=baseURL]", upstream.url)
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#upstream-list .model")).to_have_count(3)
    expect(page.locator("#upstream-list")).to_contain_text("leaves this computer: goes to office")
    assert bridge.key not in page.content()
    assert page.locator("#upstream-form [name=apiKey]").input_value() == ""
    page.keyboard.press("Escape")
    return page


def run(page: Page, code: str, how: str = "engine", model: str = MODEL) -> Any:
    return page.evaluate(CLIENT.replace("CODE", code), {"client": client_path(), "how": how, "model": model})


ROUNDS = f"""
    const messages = [{{ role: "user", content: "What is the capital of Italy?" }}];
    const whole = await openai.chat.completions.create({{ model, messages, temperature: 0 }});
    const stream = await openai.chat.completions.create({{ model, messages, temperature: 0, stream: true,
                                                          stream_options: {{ include_usage: true }} }});
    let text = "", usage, named = new Set();
    for await (const chunk of stream) {{
        text += chunk.choices[0]?.delta.content ?? "";
        usage = chunk.usage ?? usage;
        named.add(chunk.model);
    }}
    const asked = [{{ role: "user", content: "What is the weather in Paris?" }}];
    const tools = [{json.dumps(WEATHER_TOOL)}];
    const calls = [];
    for await (const chunk of await openai.chat.completions.create({{ model, messages: asked, temperature: 0, tools,
                                                                     stream: true }}))
        for (const call of chunk.choices[0]?.delta.tool_calls ?? []) calls.push(call.function);
    const vectors = await openai.embeddings.create({{ model, input: ["Rome", "Oslo"] }});
    const response = await openai.responses.create({{ model, input: messages[0].content, temperature: 0 }});
    const completion = await openai.completions.create({{ model, prompt: "Once upon", max_tokens: 4 }});
    const models = (await openai.models.list()).data.map(({{ id }}) => id);
    return {{ whole, text, usage, named: [...named], calls, vectors, response, completion, models }};
"""


@pytest.mark.parametrize("how", ["engine", "service worker"])
def test_the_official_client_asks_the_other_server(page: Page, upstream: UpstreamServer, how: str) -> None:
    page.evaluate("navigator.serviceWorker.ready.then(() => 0)")
    upstream.seen.clear()
    got = run(page, ROUNDS, how)
    assert "Rome" in got["text"]
    assert got["whole"]["choices"][0]["message"]["content"] == got["text"]
    assert got["whole"]["model"] == MODEL
    assert got["named"] == [MODEL]
    assert got["usage"]["completion_tokens"] > 0
    assert "".join(c.get("name") or "" for c in got["calls"]) == "get_weather"
    assert json.loads("".join(c.get("arguments") or "" for c in got["calls"])) == {"city": "Paris"}
    assert len(got["vectors"]["data"]) == 2
    assert "Rome" in got["response"]["output_text"]
    assert got["completion"]["model"] == MODEL
    assert {"wisp-mini-q4_0", MODEL} <= set(got["models"])
    assert [path for path, _, _ in upstream.seen] == [
        "/v1/chat/completions", "/v1/chat/completions", "/v1/chat/completions",
        "/v1/embeddings", "/v1/responses", "/v1/completions",
    ]  # fmt: skip
    assert {body["model"] for _, _, body in upstream.seen} == {"wisp-mini-q8_0"}
    assert not any("Cookie" in headers or "Referer" in headers for _, headers, _ in upstream.seen)


def test_a_late_answer_leaves_a_form_that_was_opened_meanwhile(page: Page) -> None:
    """A server that does not answer yet: the user changes another one, and then the first one fails."""
    form = page.locator("#upstream-form")
    field = form.locator("[name=baseURL]")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        page.click("#model-button")
        page.click("#upstream-add")
        form.locator("[name=name]").fill("silent")
        field.fill(address)
        page.get_by_role("button", name="Save").click()
        connection, _ = silent.accept()
        page.get_by_role("button", name="Change office").click()
        field.fill("http://127.0.0.1:1/typed")
    connection.close()
    page.evaluate(
        """async (baseURL) => {
            const { upstreams } = await (await import("/wisp.js")).Wisp.create();
            await upstreams.set({ name: "silent", baseURL }); // fails as the one of the form did before it
            await upstreams.remove("silent");
        }""",
        address,
    )
    expect(field).to_have_value("http://127.0.0.1:1/typed")
    expect(page.locator("#upstream-error")).to_be_hidden()
    expect(form).to_have_js_property("inert", False)
    page.keyboard.press("Escape")
    expect(page.locator("#model-dialog")).to_be_hidden()


def test_requests_for_other_models_stay_local(page: Page, upstream: UpstreamServer) -> None:
    upstream.seen.clear()
    code = """
        const messages = [{ role: "user", content: "What is the capital of Italy?" }];
        const { choices } = await openai.chat.completions.create({ model: "wisp-mini-q4_0", messages, temperature: 0 });
        return choices[0].message.content;
    """
    assert "Rome" in run(page, code)
    assert upstream.seen == []


def test_the_page_marks_forwarded_chats(page: Page, upstream: UpstreamServer) -> None:
    new_chat(page)
    before = page.inner_text("#privacy")
    page.click("#model-button")
    page.locator("#upstream-list .model", has_text="wisp-mini-q8_0").click()
    expect(page.locator("#model-badge")).to_have_text("office")
    expect(page.locator("#welcome-text")).to_contain_text("leaves this computer: it goes to office")
    upstream.seen.clear()
    assert "Rome" in ask(page, "What is the capital of Italy?")
    expect(last_answer(page).locator(".badge.away")).to_contain_text("office")
    expect(page.locator("#privacy")).to_have_text(re.compile(r"\d requests? for office\b.* left this computer"))
    assert page.inner_text("#privacy") != before
    ((path, _, body),) = upstream.seen
    assert path == "/v1/chat/completions"
    assert "top_k" not in body
    page.reload()  # the choice is saved, and so is the mark
    expect(page.locator("#model-badge")).to_have_text("office")
    expect(last_answer(page).locator(".badge.away")).to_contain_text("office")
    page.click("#model-button")
    page.locator("#model-list button").first.click()
    expect(page.locator("#model-badge")).to_have_text("CPU")
    new_chat(page)
    expect(page.locator("#welcome-text")).to_contain_text("Nothing you write leaves")
    ask(page, "What is the capital of Italy?")
    expect(last_answer(page).locator(".badge.away")).to_have_count(0)
    assert len(upstream.seen) == 1


def test_leaving_a_stream_stops_the_other_server(page: Page, upstream: UpstreamServer, bridge: ApiServer) -> None:
    code = """
        const messages = [{ role: "user", content: "Write a short story about a dragon." }];
        const stream = await openai.chat.completions.create({ model, messages, stream: true, max_tokens: 1500,
                                                              ignore_eos: true });
        let count = 0;
        for await (const chunk of stream) if (++count === 4) break;
        return count;
    """
    aborted = upstream.aborted
    assert run(page, code) == 4
    wait_for(lambda: upstream.aborted > aborted)
    assert upstream.aborted == aborted + 1
    tab = bridge.tab
    assert tab is not None
    wait_for(lambda: not tab.exchanges)  # the bridge's tab has stopped, too


ERRORS = """
    const out = [];
    const messages = [{ role: "user", content: "Hi" }];
    for (const extra of [{ temperature: 9 }, { model: "wrong/m" }, { model: "closed/m" }, { model: "strict/m" },
                         { model: "moved/m" }]) {
        const asked = { model, messages, ...extra };
        await openai.chat.completions.create(asked).catch(
            ({ status, type, code, param, message }) => out.push({ status, type, code, param, message }));
    }
    return out;
"""


def test_the_bridge_passes_on_too(page: Page, bridge: ApiServer, chromium: Callable[[str | None], Browser]) -> None:
    """A loop: a program calls a tab through the bridge, and the tab's upstream is the same tab with its own model."""
    loop = UpstreamServer(bridge.url, bridge.url.rstrip("/"))
    tab = next(p for context in chromium(None).contexts for p in context.pages if p.url.startswith(bridge.url))
    fields = {"name": "loop", "baseURL": loop.url, "apiKey": bridge.key}
    about = tab.evaluate(
        "async (fields) => (await (await import('/wisp.js')).Wisp.create()).upstreams.set(fields)", fields
    )
    assert about["models"] == ["loop/wisp-mini-q4_0", "loop/wisp-mini-q8_0", "loop/wisp-mini-sees-q4_0"]
    client = openai.OpenAI(base_url=f"{bridge.url}v1", api_key=bridge.key, max_retries=0, timeout=HANG_S)
    question: Any = [{"role": "user", "content": "What is the capital of Italy?"}]
    asked = client.chat.completions.create(model="loop/wisp-mini-q8_0", messages=question, temperature=0, stream=True)
    chunks = list(asked)
    loop.shutdown()
    loop.server_close()
    assert "Rome" in "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert {chunk.model for chunk in chunks} == {"loop/wisp-mini-q8_0"}
    assert loop.seen[-1][2]["model"] == "wisp-mini-q8_0"
    expect(tab.locator("#privacy")).to_contain_text("loop")  # the page says so for requests of any program


def test_errors_name_the_upstream(page: Page, upstream: UpstreamServer, bridge: ApiServer) -> None:
    strict = UpstreamServer(bridge.url, None)  # no CORS
    unused = socket.socket()
    unused.bind(("127.0.0.1", 0))  # it does not listen, and nobody else gets the port
    closed = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
    moved = upstream.url.replace("/v1", "/moved/v1")
    for name, url in {"wrong": upstream.url, "closed": closed, "strict": strict.url, "moved": moved}.items():
        fields = {"name": name, "baseURL": url, "apiKey": "no-key-of-it"}
        about = page.evaluate(
            "async (fields) => (await (await import('/wisp.js')).Wisp.create()).upstreams.set(fields)", fields
        )
        assert about["error"]
    upstream.seen.clear()
    value, wrong, unreachable, refused, redirected = run(page, ERRORS)
    strict.shutdown()
    strict.server_close()
    unused.close()
    assert (value["status"], value["param"]) == (400, "temperature")
    assert "office: " in value["message"]
    assert (wrong["status"], wrong["type"]) == (401, "authentication_error")
    assert "API key" in wrong["message"]
    for error in (unreachable, refused):
        assert (error["status"], error["code"]) == (502, "upstream_unreachable")
        assert "CORS" in error["message"]
    assert (redirected["status"], redirected["code"]) == (502, "upstream_error")
    assert [path for path, _, _ in upstream.seen][-1] == "/moved/v1/chat/completions"  # and nowhere else
    assert page.evaluate("""async () => {
        const { upstreams } = await (await import("/wisp.js")).Wisp.create();
        for (const name of ["wrong", "closed", "strict", "moved"]) await upstreams.remove(name);
        return (await upstreams.list()).data.map(({ name }) => name);
    }""") == ["office"]


BUSY = """
    const messages = [{ role: "user", content: "Hi" }];
    await engine.upstreams.set({ name: "busy", baseURL: BASE });
    const asked = { model: "busy/scripted", messages };
    const failure = (asking) => asking.then(
        () => null,
        ({ status, headers, message, type, code }) => [status, headers?.get("retry-after"), message, type, code],
    );
    const streamed = openai.chat.completions.create({ ...asked, stream: true });
    const found = [await failure(openai.chat.completions.create(asked)), await failure(streamed),
                   await failure(engine.chat.completions.create(asked))];
    await engine.upstreams.remove("busy");
    return found;
"""


@pytest.mark.parametrize("how", ["engine", "service worker"])
def test_a_server_that_is_asked_too_often_says_when_to_try_again(
    page: Page, scripted: ScriptedServer, how: str
) -> None:
    scripted.wait = "7200"
    *by_http, by_call = run(page, BUSY.replace("BASE", json.dumps(scripted.url)), how)
    scripted.wait = "Fri, 01 Jan 1999 00:00:00 GMT"  # is over
    *_, passed = run(page, BUSY.replace("BASE", json.dumps(scripted.url)), how)
    scripted.wait = ""
    for status, after, message, kind, code in by_http:
        assert (status, after, kind, code) == (429, "7200", "rate_limit_error", "rate_limit_exceeded")
        assert "busy: Rate limit reached. Try again in 2 hours." in message
    assert by_call[1:] == ["7200", by_call[2], "rate_limit_error", "rate_limit_exceeded"]
    assert passed[1] == "0"


def test_a_hostile_server_stays_text(page: Page, upstream: UpstreamServer) -> None:
    errors = watch(page)
    page.evaluate(
        """async (baseURL) =>
            (await (await import("/wisp.js")).Wisp.create()).upstreams.set({ name: "evil", baseURL })""",
        upstream.url.replace("/v1", "/hostile/v1"),
    )
    new_chat(page)
    page.click("#model-button")
    model = page.locator("#upstream-list .model", has_text="onerror")
    expect(model).to_have_text(HOSTILE_MODEL)
    model.click()
    send(page, "Hi")
    wait_answer(page)
    answer = last_answer(page)
    expect(answer.locator("strong")).to_have_text("bold")
    expect(answer).to_contain_text("<script>")
    page.click("#model-button")
    page.locator("#upstream-list .model", has_text="short").click()
    for _ in range(3):  # its context is not known: older turns are left out when it refuses
        send(page, "Hi")
        wait_answer(page)
    expect(page.locator("#thread .answer-error")).to_have_count(0)
    expect(page.locator("#thread .not-sent")).to_have_count(1)
    page.click("#model-button")
    page.locator("#upstream-list .model", has_text="refuses").click()
    send(page, "Hi")
    expect(page.locator(".answer-error")).to_contain_text("evil: <img")
    assert page.locator("body :is(script, img, iframe)").count() == 0
    assert page.evaluate("globalThis.pwned") is None
    assert not [error for error in errors if not re.search("status of 400", error)]
    page.click("#model-button")
    page.get_by_role("button", name="Remove evil").click()
    expect(page.locator("#upstream-list .upstream")).to_have_count(1)
    expect(page.locator("#model-badge")).to_have_text("CPU")  # its models are no longer listed
    page.keyboard.press("Escape")
