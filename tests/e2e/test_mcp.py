"""Servers of the Model Context Protocol, which a page with a real engine uses."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page

from tests.support.chat_page import open_page
from tests.support.mcp_servers import mcp_server
from tools.serve import Server


@pytest.fixture(scope="module")
def shop() -> Iterator[str]:
    with mcp_server("--cors") as url:
        yield url


@pytest.fixture(scope="module")
def page(context: BrowserContext, server: Server) -> Page:
    return open_page(context, server.url)


def run(page: Page, code: str, **given: Any) -> Any:
    """The value of an async function body in which `engine` is the page's, and `given` are variables."""
    start = "const engine = await (await import('/wisp.js')).Wisp.create();"
    return page.evaluate(f"async ({{{', '.join(given)}}}) => {{ {start} {code} }}", given)


def test_the_model_calls_the_tools_of_a_server(page: Page, shop: str) -> None:
    code = """const server = await engine.mcp.connect(url);
        const events = [], messages = [{ role: "user", content: "What do two pears cost?" }];
        const tools = server.tools.filter((tool) => tool.function.name === "price");
        const choice = { type: "function", function: { name: "price" } };
        const onEvent = (event) => events.push(event);
        await engine.agents.run({ messages, tools, tool_choice: choice, temperature: 0, maxTurns: 2, onEvent });
        await server.close();
        return events;"""
    turn, call, result, _ = run(page, code, url=shop)
    assert (turn["type"], call["type"], result["type"]) == ("turn", "call", "result")
    assert call["arguments"]["article"] in ("apples", "pears")
    count = call["arguments"].get("count", 1)
    assert result["content"] == f"{count} {call['arguments']['article']}: {3 * count} euros"


def test_a_server_without_cors_is_an_error_that_says_so(page: Page) -> None:
    with mcp_server() as url:
        code = """const { WispError } = await import("/wisp.js");
            return engine.mcp.connect(url).catch((error) => [error instanceof WispError, error.code, error.message]);"""
        own, kind, message = run(page, code, url=url)
    assert (own, kind) == (True, "mcp_unreachable")
    assert "CORS" in message
    code = "return engine.mcp.connect('http://example.org/mcp').catch(({ code, param }) => [code, param]);"
    assert run(page, code) == ["invalid_value", "url"]
