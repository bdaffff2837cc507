"""WebMCP in a Chromium that has it: a page's tools serve its Wisp, and Wisp's page offers its model as a tool."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Playwright, expect

from tests.support.browser import launch, new_profile, wait_until
from tests.support.chat_page import open_page
from tests.support.weather_tool import WEATHER_TOOL
from tools.serve import Server

FLAGS = ("--enable-features=WebMCPTesting",)
OFFER = """async ({ name, description, parameters: inputSchema }) => {
  globalThis.asked = [];
  const execute = async (input) => {
    asked.push(input);
    return { sky: "sunny" };
  };
  await document.modelContext.registerTool({ name, description, inputSchema, execute });
}"""
CHAT = """async (refuse) => {
  await import("/wisp-chat.js");
  const chat = Object.assign(document.createElement("wisp-chat"));
  const set = { "page-tools": "", "context-length": "512", temperature: "0" };
  for (const [name, value] of Object.entries(set)) chat.setAttribute(name, value);
  globalThis.calls = [];
  chat.addEventListener("call", (event) => {
    calls.push(event.detail);
    if (refuse) event.preventDefault();
  });
  document.body.replaceChildren(chat);
  return chat.send("What is the weather in Paris?");
}"""


@pytest.fixture(scope="module")
def browser(playwright_run: Playwright) -> Iterator[Browser]:
    running = launch(playwright_run, None, FLAGS)
    yield running
    running.close()


@pytest.fixture(scope="module")
def page(browser: Browser, server: Server) -> Page:
    """A page that offers a tool."""
    page = new_profile(browser).new_page()
    page.goto(f"{server.url}tests/blank.html")
    page.evaluate(OFFER, WEATHER_TOOL["function"])
    return page


def test_the_model_calls_the_tools_of_the_page_around_it(page: Page) -> None:
    assert page.evaluate(CHAT, False)
    call = {"name": "get_weather", "arguments": {"city": "Paris"}}
    assert page.evaluate("[asked[0], calls[0]]") == [call["arguments"], call]


def test_the_page_may_refuse_a_call(page: Page) -> None:
    page.evaluate("() => { asked.length = 0; }")
    assert page.evaluate(CHAT, True)
    assert page.evaluate("calls[0].name") == "get_weather"
    assert page.evaluate("asked") == []


def test_wisp_s_page_offers_its_model(browser: Browser, server: Server) -> None:
    context = new_profile(browser, service_worker=False)
    wisp = open_page(context, server.url)
    found: dict[str, Any] = wisp.evaluate("""async () => {
      const [tool] = await document.modelContext.getTools();
      const answer = await document.modelContext.executeTool(tool, { prompt: "What is the capital of Italy?" });
      return { name: tool.name, answer };
    }""")
    assert found["name"] == "ask_model"
    assert "Rome" in found["answer"]
    expect(wisp.locator("#thread > .message")).to_have_count(0)  # it is no part of a chat
    context.close()


def test_without_webmcp_there_are_no_tools(chromium: Callable[[str | None], Browser], server: Server) -> None:
    context = new_profile(chromium(None))
    plain = context.new_page()
    plain.goto(f"{server.url}tests/blank.html")
    assert plain.evaluate("document.modelContext === undefined")
    plain.evaluate("""async () => {
      const { Wisp } = await import("/wisp.js");
      globalThis.tools = await (await Wisp.create()).agents.pageTools();
    }""")
    wait_until(plain, "globalThis.tools")
    assert plain.evaluate("tools") == []
    context.close()
