"""Answers of hostile servers of the Model Context Protocol have an end."""

from typing import Any

import pytest

from tests.support.js_modules import Evaluate, evaluator

# Reads an answer of pieces, repeated; returns its text's length, or the error.
READ = """(async () => {
    const [most, type, pieces, times] = a;
    let left = times;
    const body = new ReadableStream({
        pull(controller) {
            if (left-- <= 0) return controller.close();
            for (const piece of pieces) controller.enqueue(new TextEncoder().encode(piece));
        },
    });
    const answered = async () => new Response(body, { status: 201, headers: { "content-type": type } });
    const said = ({ message }) => new Response(message, { status: 201, headers: { "content-type": type } });
    const response = await m.limitedFetch(most, answered)("http://x/").catch(said);
    const text = await response.text().catch((error) => error.message);
    return [response.status, response.headers.get("content-type"), text.length > 100 ? text.length : text];
})()"""
EVENTS = "text/event-stream; charset=utf-8"


@pytest.fixture(scope="module")
def js(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return evaluator(tmp_path_factory.mktemp("js"), ["app/mcp/limited_fetch.js"])


@pytest.mark.parametrize(
    ("kind", "pieces", "times", "read"),
    [
        ("application/json", ["{}"], 1, "{}"),
        ("application/json", ["x" * 1000], 1000, 1_000_000),
        ("application/json", ["x" * 1000], 2000, "The server's answer has more than 1 MiB."),
        ("application/json", ["x" * 1000 + "\n\n"], 2000, "The server's answer has more than 1 MiB."),
        (EVENTS, ["data: " + "x" * 1000 + "\n", "\n"], 2000, 2_016_000),
        (EVENTS, ["data: " + "x" * 1000 + "\r\n", "\r\n"], 2000, 2_020_000),
        (EVENTS, ["x" * 1000], 2000, "The server's answer has more than 1 MiB."),
        (EVENTS, ["data: " + "x" * 1000 + "\n"], 2000, "The server's answer has more than 1 MiB."),
    ],
)
def test_an_answer_or_an_event_without_an_end_is_an_error(
    js: Evaluate, kind: str, pieces: list[str], times: int, read: Any
) -> None:
    assert js(READ, 2**20, kind, pieces, times) == [201, kind, read]


def test_an_answer_without_a_body_passes(js: Evaluate) -> None:
    assert js("(await m.limitedFetch(9, async () => new Response(null, { status: 204 }))('x')).status") == 204
