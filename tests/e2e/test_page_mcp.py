"""MCP servers in the page: the sheet that lists them, the tools that models get of them, and their questions."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses.response_output_item import McpApprovalRequest, McpCall, McpListTools
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.support.browser import watch
from tests.support.chat_page import wait_ready
from tests.support.mcp_servers import STDIO, mcp_server
from tests.support.openai_client import bundle
from tests.support.served_api import served_api
from tests.support.waiting import HANG_S, wait_for
from tools.api import ApiServer
from tools.mcp_servers import Address, Program, Target
from tools.paths import ROOT

# The page's own list of servers, as its models see it, in a second copy of the modules.
SERVERS = """async (modules) => {
  const { McpServers, askUser } = await import(modules);
  const engine = await (await import("/wisp.js")).Wisp.create();
  globalThis.called = [];
  const called = (name) => globalThis.called.push(name);
  globalThis.servers = new McpServers({ wisp: async () => engine, ask: askUser, changed: () => {}, called });
  globalThis.call = async (name, given, options = {}) => {
    const [{ tools }] = servers.sources;
    return tools.find((tool) => tool.name === name).run(given, options).catch((error) => ({ text: error.message }));
  };
}"""

# What the browser has stored of the switches of relayed servers.
SWITCHES = """async () => {
  const result = (request) => new Promise((resolve) => (request.onsuccess = () => resolve(request.result)));
  const db = await result(indexedDB.open("wisp-kept"));
  const text = await result(db.transaction("texts").objectStore("texts").get("mcp-relayed"));
  db.close();
  return text ?? "";
}"""


@pytest.fixture(scope="module")
def api(dist: Path) -> Iterator[ApiServer]:
    """`serve --api --mcp`, with a server over HTTP that allows no pages, and a program."""
    with mcp_server() as url:
        relayed: dict[str, Target] = {"shop": Address(url), "program": Program(STDIO)}
        with served_api(dist, {"repo/": ROOT}, relayed) as running:
            yield running


@pytest.fixture(scope="module")
def opened(context: BrowserContext, api: ApiServer) -> tuple[Page, list[str]]:
    page = context.new_page()
    errors = watch(page)
    page.goto(api.lending_url)
    wait_ready(page)
    return page, errors


@pytest.fixture
def page(opened: tuple[Page, list[str]]) -> Iterator[Page]:
    """The page with its sheet of servers open; a test fails if the page logged an error."""
    page, errors = opened
    page.click("#settings-button")
    page.click("#mcp-button")
    yield page
    page.click("#mcp-dialog [data-close]")
    page.click("#settings-dialog [data-close]")
    assert [error for error in errors if not error.startswith("Failed to load resource")] == []  # of what tests break


def entry(page: Page, name: str) -> Locator:
    return page.locator("#mcp-list > li").filter(has=page.get_by_text(name, exact=True))


def connect(page: Page, name: str) -> Locator:
    """Connect to a server; return its list of tools."""
    found = entry(page, name)
    found.get_by_role("button", name=f"Connect to {name} again").click()
    found.locator(f"#mcp-tools-{name}").evaluate("(details) => { details.open = true; }")  # perhaps it is already
    return found.get_by_role("list", name=f"Tools of {name}")


def test_servers_of_the_command_line_are_listed_with_their_tools(page: Page) -> None:
    for tools in [connect(page, name) for name in ("shop", "program")]:  # a list stays open when another is drawn
        expect(tools).to_contain_text("get_weather")
        expect(tools).to_contain_text("The price of an article")


def test_prompts_are_written_and_resources_added(page: Page) -> None:
    found = entry(page, "shop")
    found.locator("summary", has_text="Prompts and resources").click()
    offers = found.get_by_role("list", name="Prompts and resources of shop").get_by_role("listitem")
    hours = offers.filter(has_text="hours")
    hours.get_by_role("button", name="Add hours").click()
    expect(page.locator("#documents-count")).to_have_text("1")
    about = offers.filter(has=page.get_by_text("article", exact=True)).filter(has_not_text="offer")
    about.get_by_role("textbox", name="name").fill("red lamp")
    about.get_by_role("button", name="Add article").click()
    expect(page.locator("#documents-count")).to_have_text("2")
    shelf = offers.filter(has=page.get_by_text("shelf", exact=True))
    shelf.get_by_role("textbox", name="path").fill("cellar/wine & cheese")
    shelf.get_by_role("textbox", name="limit").fill("3")
    shelf.get_by_role("button", name="Add shelf").click()
    expect(page.locator("#documents-count")).to_have_text("3")
    offer = offers.filter(has_text="offer")
    offer.get_by_role("button", name="Write with offer").click()  # its field is required
    expect(page.locator("#mcp-dialog")).to_be_visible()
    page.locator("#prompt").evaluate("(field) => { field.value = 'Dear team,'; }")
    offer.get_by_role("textbox", name="article").fill("a lamp")
    offer.get_by_role("button", name="Write with offer").click()
    expect(page.locator("#prompt")).to_have_value("Dear team,\n\nWrite an offer for a lamp.")
    expect(page.locator("#mcp-dialog")).to_be_hidden()
    page.fill("#prompt", "")
    page.click("#documents-button")
    names = page.locator("#document-list > li")
    expect(names.filter(has_text="shop - hours.txt")).to_have_count(1)
    expect(names.filter(has_text="shop - article - red lamp.txt")).to_have_count(1)
    expect(names.filter(has_text="shop - shelves - cellar - wine & cheese.txt")).to_have_count(1)
    page.keyboard.press("Escape")
    page.click("#settings-button")
    page.click("#mcp-button")
    log = found.locator("details", has=page.locator("summary", has_text="4 calls went there"))
    log.locator("summary").click()
    expect(log).to_contain_text('offer {"article":"a lamp"}')
    expect(page.locator("#privacy")).to_contain_text("shop")


def test_addresses_with_variables_follow_rfc_6570(page: Page) -> None:
    """Its examples, with texts as values."""
    values = {"var": "value", "hello": "Hello World!", "path": "/foo/bar", "x": "1024", "y": "768", "empty": ""}
    cases = {
        "{var}{hello}": "valueHello%20World%21",
        "{+path}/here": "/foo/bar/here",
        "{+hello,x}": "Hello%20World!,1024",
        "X{#hello}": "X#Hello%20World!",
        "map?{x,y}": "map?1024,768",
        "{x,hello,y}": "1024,Hello%20World%21,768",
        "X{.var,x}": "X.value.1024",
        "{/var,x}/here": "/value/1024/here",
        "{;x,y,empty}": ";x=1024;y=768;empty",
        "{?x,y,empty}": "?x=1024&y=768&empty=",
        "?fixed=yes{&x}": "?fixed=yes&x=1024",
        "{?undef,y}{&undef}{/undef}": "?y=768",
        "{var:3}{+path:6}here{?x*}": "val/foo/bhere?x=1024",
        "ok{+percent}{percent}": "ok50%2550%2525",
        "own{?toString}{constructor}": "own",
    }
    found, wrong, variables = page.evaluate(
        """async ([templates, values]) => {
            const { expanded, variablesOf } = await import("/repo/app/ui/mcp/uri_template.js");
            const wrong = ["{", "a}", "{}", "{=a}", "{a b}", "{{a}}", "{a,}", "{a%2}", "{%zz}"];
            return [templates.map((template) => expanded(template, values)), wrong.map(variablesOf),
                variablesOf("x{?a,b}{b}{/c}")];
        }""",
        [list(cases), values | {"percent": "50%25"}],
    )
    assert found == list(cases.values())
    assert wrong == [None] * 9
    assert variables == [{"name": name, "required": name == "b"} for name in "abc"]


def test_a_server_is_added_turned_off_and_removed(page: Page) -> None:
    with mcp_server("--cors", "--token") as url:
        page.click("#mcp-add")
        page.fill("#mcp-form [name=name]", "a b")
        page.fill("#mcp-form [name=url]", url)
        page.fill("#mcp-form [name=secret]", "wrong")
        page.click("#mcp-form [type=submit]")
        expect(page.locator("#mcp-error")).to_contain_text("letters")
        page.fill("#mcp-form [name=name]", "till")
        page.click("#mcp-form [type=submit]")
        expect(page.locator("#mcp-error")).to_contain_text("needs a valid token")
        page.fill("#mcp-form [name=secret]", "Authorization: Bearer secret")
        page.click("#mcp-form [type=submit]")
        expect(page.locator("#mcp-form")).to_be_hidden()
        expect(entry(page, "till").locator("summary").first).to_have_text("10 tools")
        entry(page, "till").get_by_label("Models may call its tools").uncheck()
    entry(page, "till").get_by_role("button", name="Remove till").click()
    expect(entry(page, "till")).to_have_count(0)


def test_single_tools_are_switched_off_and_stay_so(page: Page) -> None:
    tools = connect(page, "shop")
    summary = entry(page, "shop").locator("details", has=page.get_by_label("All tools")).locator("summary")
    weather, article = (tools.get_by_role("checkbox", name=name) for name in ("get_weather", "price"))
    article.focus()
    page.keyboard.press("Space")
    expect(summary).to_have_text("8 of 10 tools are on")  # no model can be held to one's pattern
    expect(article).to_be_focused()
    expect(tools.get_by_role("checkbox", name="look_behind")).to_be_disabled()
    wait_for(lambda: "price" in page.evaluate(SWITCHES))  # another change may have drawn the summary before
    page.reload()
    wait_ready(page)
    page.click("#settings-button")
    page.click("#mcp-button")
    tools = connect(page, "shop")
    expect(article).not_to_be_checked()
    expect(weather).to_be_checked()
    every = entry(page, "shop").get_by_label("All tools")
    expect(every).to_have_js_property("indeterminate", True)
    every.check()
    expect(article).to_be_checked()
    expect(summary).to_have_text("10 tools")
    every.uncheck()
    expect(weather).not_to_be_checked()
    every.check()


def test_a_user_signs_in_to_a_server_in_a_tab_of_its_own(page: Page) -> None:
    with mcp_server("--cors", "--oauth") as url:
        page.click("#mcp-add")
        page.fill("#mcp-form [name=name]", "bank")
        page.fill("#mcp-form [name=url]", url)
        with page.context.expect_page() as opened:
            page.click("#mcp-form [type=submit]")
        expect(page.locator("#mcp-form")).to_be_hidden()
        expect(entry(page, "bank").locator("summary").first).to_have_text("10 tools")
        if not opened.value.is_closed():
            opened.value.close()
        tabs = len(page.context.pages)
        connect(page, "bank")  # with the tokens that are stored
        assert len(page.context.pages) == tabs
        expect(entry(page, "bank").locator(".form-error")).to_have_count(0)
    entry(page, "bank").get_by_role("button", name="Remove bank").click()


def test_the_responses_api_calls_the_tools_of_servers(opened: tuple[Page, list[str]], api: ApiServer) -> None:
    client = openai.OpenAI(base_url=f"{api.url}v1", api_key=api.key, max_retries=0, timeout=HANG_S)
    shop: Any = {"type": "mcp", "server_label": "shop", "allowed_tools": ["get_weather"]}
    asked: dict[str, Any] = {"model": "wisp-mini-q4_0", "temperature": 0, "max_output_tokens": 60}
    question = "What is the weather in Paris?"
    free: Any = {**shop, "require_approval": "never", "allowed_tools": ["get_weather", "look_behind"]}
    whole = client.responses.create(**asked, input=question, tools=[free])
    listed, call, *_, message = whole.output
    assert isinstance(listed, McpListTools)
    assert [tool.name for tool in listed.tools] == ["get_weather"]
    assert isinstance(call, McpCall)
    assert (call.name, json.loads(call.arguments), call.output) == (
        "get_weather",
        {"city": "Paris"},
        "It is sunny in Paris.",
    )
    assert message.type == "message"
    asking = client.responses.create(**asked, input=question, tools=[shop])
    request = asking.output[-1]
    assert isinstance(request, McpApprovalRequest)
    approval: Any = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": True}
    items: list[Any] = [{"role": "user", "content": question}, *asking.output, approval]
    kinds, text = [], ""
    with client.responses.create(**asked, input=items, tools=[shop], stream=True) as stream:
        for number, event in enumerate(stream):
            assert event.sequence_number == number
            kinds.append(event.type)
            text += event.delta if event.type == "response.output_text.delta" else ""
    assert kinds.index("response.mcp_call.completed") < kinds.index("response.output_text.delta")
    assert kinds[-1] == "response.completed"
    assert text
    absent: Any = {"type": "mcp", "server_label": "a", "server_url": "http://127.0.0.1:9/mcp"}
    with pytest.raises(openai.APIStatusError, match="not running") as caught:
        client.responses.create(**asked, input=question, tools=[absent])
    assert caught.value.status_code == 424


def test_servers_that_cannot_be_read_for_a_moment_are_not_lost(page: Page) -> None:
    modules = bundle("mcp-servers", ROOT / "tests" / "support" / "pages" / "mcp_servers.js")
    found = page.evaluate(
        """async (modules) => {
          const { McpServers, read, write } = await import(modules);
          const before = await read("mcp");
          const office = { name: "office", url: "https://office.example/mcp", tools: 5 };
          await write("mcp", JSON.stringify([null, { name: "damaged", url: "no address" }, office]));
          const parts = { wisp: () => new Promise(() => {}), ask: null, changed: () => {}, called: () => {} };
          const servers = new McpServers(parts);
          const { open } = IDBFactory.prototype;
          IDBFactory.prototype.open = () => { throw new Error("blocked"); };
          const added = { name: "home", url: "https://home.example/mcp" };
          const failed = await servers.set(added).then(() => "", (error) => error.code);
          IDBFactory.prototype.open = open;
          void servers.set({ ...added, name: "other" });
          while (!(await read("mcp")).includes("other")) await new Promise((resolve) => setTimeout(resolve, 20));
          const stored = JSON.parse(await read("mcp"));
          await write("mcp", before ?? "[]");
          return [failed, stored.map(({ name }) => name)];
        }""",
        modules,
    )
    assert found == ["storage_unreadable", ["office", "home", "other"]]


def test_a_client_that_cannot_be_fetched_is_said_and_fetched_again(context: BrowserContext, api: ApiServer) -> None:
    """It comes after the rest of the page, so it is lacking in a tab that soon went offline."""
    page = context.new_page()
    page.goto(f"{api.lending_url.split('#')[0]}notices.html")
    connect_to = """(url) => import("/wisp.js").then(({ Wisp }) => Wisp.create())
        .then((wisp) => wisp.mcp.connect(url)).then(() => "connected", ({ code, message }) => [code, message])"""
    with mcp_server("--cors") as url:
        page.route("**/assets/mcp-*.js", lambda route: route.abort("internetdisconnected"))
        code, message = page.evaluate(connect_to, url)
        assert code == "network_error"
        assert "Connect to the network, and try again." in message
        page.unroute_all()
        assert page.evaluate(connect_to, url) == "connected"
    page.close()


@pytest.mark.parametrize("broken", ["open", "put"])
def test_relayed_switches_stay_while_storage_fails(page: Page, opened: tuple[Page, list[str]], broken: str) -> None:
    """The terminal lends the page again: a server that the user turned off must not come back on."""
    modules = bundle("mcp-servers", ROOT / "tests" / "support" / "pages" / "mcp_servers.js")
    found = page.evaluate(
        """async ([modules, broken]) => {
          const { McpServers, read, write } = await import(modules);
          const before = await Promise.all(["mcp", "mcp-relayed"].map(read));
          const servers = new McpServers({ wisp: async () => null, ask: async () => null, changed() {}, called() {} });
          const lent = ["shop", "bank"].map((name) => ({ name, url: `https://${name}.example/mcp`, headers: {} }));
          const { open } = IDBFactory.prototype, { put } = IDBObjectStore.prototype;
          if (broken === "open") IDBFactory.prototype.open = () => { throw new Error("blocked"); };
          else IDBObjectStore.prototype.put = () => { throw new DOMException("", "QuotaExceededError"); };
          const errors = [];
          try {
            await servers.relay(lent);
            const [shop, bank] = await servers.list();
            for (const change of [servers.turn(shop, false), servers.turnTools(bank, ["pay"], false)])
              await change.catch((error) => errors.push(error.code));
            bank.calls = [{ time: 1, tool: "pay", given: {}, failed: null }];
            await servers.relay(lent);
            const list = (await servers.list()).filter(({ relayed }) => relayed);
            return [errors, list.map(({ name, on, off, calls }) => [name, on, off, calls.length])];
          } finally {
            Object.assign(IDBFactory.prototype, { open });
            Object.assign(IDBObjectStore.prototype, { put });
            await write("mcp", before[0] ?? "[]");
            await write("mcp-relayed", before[1] ?? "{}");
          }
        }""",
        [modules, broken],
    )
    errors, switches = found
    assert errors == [{"open": "storage_unreadable", "put": "quota_exceeded"}[broken]] * 2
    assert switches == [["shop", False, [], 0], ["bank", True, ["pay"], 1]]
    opened[1].clear()  # the page reports what it cannot store itself meanwhile


def test_models_get_the_tools_of_the_servers_that_are_on(page: Page) -> None:
    modules = ROOT / "tests" / "support" / "pages" / "mcp_servers.js"
    page.evaluate(SERVERS, bundle("mcp-servers", modules))
    with mcp_server("--cors") as url:
        page.evaluate("(url) => servers.set({ name: 'till', url })", url)
        sources = page.evaluate("servers.sources.map(({ id, name, tools }) => ({ id, name, tools }))")
        assert [source["name"] for source in sources] == ["till"]
        names = [tool["name"] for tool in sources[0]["tools"]]
        assert "price" in names
        assert "look_behind" not in names, "no model can be held to its pattern"
        result = page.evaluate("call('price', { article: 'pears', count: 3 })")
        assert result == {"text": "3 pears: 9 euros", "files": [], "failed": False}
        assert page.evaluate("called") == ["till"]
        (call,) = page.evaluate("servers.list().then(([{ calls }]) => calls)")
        assert (call["tool"], call["given"], call["failed"]) == ("price", {"article": "pears", "count": 3}, None)
        failed = page.evaluate("call('fail', {})")
        assert failed["failed"]
        assert failed["text"].endswith("the till is closed")
        picture = "call('picture', {}).then(({ files: [{ name, blob }] }) => [name, blob.type, blob.size])"
        assert page.evaluate(picture) == ["1.png", "image/png", 70]
        steps = """(async () => {
            const told = [];
            await call("count", { until: 2 }, { onProgress: (text) => told.push(text) });
            return told;
        })()"""
        assert "at 2" in page.evaluate(steps)
        page.evaluate("servers.list().then(([entry]) => servers.turnTools(entry, ['price', 'fail'], false))")
        left = page.evaluate("servers.sources[0].tools.map(({ name }) => name)")
        assert left == [name for name in names if name not in ("price", "fail")]
        page.evaluate("servers.list().then(([entry]) => servers.turn(entry, false))")
        assert page.evaluate("servers.sources") == []
        page.evaluate("servers.list().then(([entry]) => servers.turn(entry, true))")
        page.evaluate("void (globalThis.measured = call('measure', {}))")
        question: Any = page.locator("#mcp-question")
        expect(question).to_contain_text("How large is it?")
        question.locator("[name=centimetres]").fill("7")
        question.get_by_role("button", name="Answer").click()
        assert page.evaluate("measured.then(({ text }) => text)") == "It is 7 cm large."
        page.evaluate("void (globalThis.measured = call('measure', {}))")
        question.get_by_role("button", name="Decline").click()
        assert "decline" in page.evaluate("measured.then(({ text }) => text)")
    page.evaluate("servers.list().then(([entry]) => servers.remove(entry))")
