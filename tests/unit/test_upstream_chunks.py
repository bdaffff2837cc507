"""Chunks of other servers whose fields have unusual types: understood, or an error that names the upstream."""

from typing import Any

import pytest

from tests.support.upstream_page import BASE, CHAT, KEY, Reply, UpstreamPage, answer, stream

NAN = float("nan")
LOGPROB = {"token": "a", "logprob": -1.0, "top_logprobs": []}
HUGE = {**LOGPROB, "logprob": 10**400}


@pytest.fixture
async def page() -> UpstreamPage:
    page = UpstreamPage()
    await page.call("upstreams.set", name="office", baseURL=BASE, apiKey=KEY)
    return page


async def streamed(page: UpstreamPage, *chunks: Any) -> list[dict[str, Any]]:
    answer(page, "chat/completions", lambda: stream(*chunks))
    number, task = page.send("chat.completions", request={**CHAT, "stream": True})
    await task
    return page.answers(number)


def choice(delta: Any, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, **more}]}


PARTS = [{"type": "text", "text": "Grü"}, "ße", {"type": "output_text", "text": "!"}]
THOUGHTS = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}, {"type": "text", "text": "Yes"}]


@pytest.mark.parametrize(
    ("chunk", "choices"),
    [
        (choice({"content": None}), [{"index": 0, "delta": {"content": None}}]),
        (choice(None), [{"index": 0, "delta": {}}]),
        (choice({"content": PARTS}), [{"index": 0, "delta": {"content": "Grüße!"}}]),
        (choice({"content": THOUGHTS}), [{"index": 0, "delta": {"content": "Yes", "reasoning_content": "Hm"}}]),
        (choice({"reasoning": ["a", "b"]}), [{"index": 0, "delta": {"reasoning": "ab"}}]),
        (choice({"role": "user", "content": "a"}), [{"index": 0, "delta": {"role": "user", "content": "a"}}]),
        (choice({"role": 7, "content": "a"}), [{"index": 0, "delta": {"role": "assistant", "content": "a"}}]),
        ({"usage": {"total_tokens": NAN}}, []),
        ({"choices": None, "id": "ping"}, []),
        (
            {"choices": [{"index": NAN, "delta": {}}, {"delta": {}}]},
            [{"index": 0, "delta": {}}, {"index": 1, "delta": {}}],
        ),
        (choice({}, logprobs={"content": [LOGPROB]}), [{"index": 0, "delta": {}, "logprobs": {"content": [LOGPROB]}}]),
        (choice({}, logprobs={"content": [HUGE]}), [{"index": 0, "delta": {}, "logprobs": {"content": [HUGE]}}]),
        (choice({}, logprobs={"content": [{"token": 5}]}), [{"index": 0, "delta": {}, "logprobs": None}]),
        (choice({}, logprobs=7), [{"index": 0, "delta": {}, "logprobs": None}]),
    ],
)
async def test_other_forms_are_understood(page: UpstreamPage, chunk: Any, choices: Any) -> None:
    *chunks, last = await streamed(page, chunk)
    assert last["kind"] == "done"
    assert [message["chunk"]["choices"] for message in chunks] == [choices]


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        (choice({"content": 7}), "content that is text"),
        (choice({"content": NAN}), "content that is text"),
        (choice({"content": True}), "content that is text"),
        (choice({"content": {"text": "a"}}), "content that is text"),
        (choice({"content": [{"type": "image_url"}]}), "content that is text"),
        (choice({"content": [7]}), "content that is text"),
        (choice([]), "a delta that is an object"),
        (choice({}, finish_reason=3), "a finish_reason that is text"),
        ({"choices": {}}, "a list of choices"),
        ({"choices": ["a"]}, "choices that are objects"),
        ({"choices": [{}] * 129}, "at most 128 choices"),
    ],
)
async def test_what_means_nothing_is_an_error(page: UpstreamPage, chunk: Any, expected: str) -> None:
    first = choice({"content": "a"})
    *chunks, last = await streamed(page, first, chunk, choice({"content": "b"}))
    assert [message["chunk"]["choices"] for message in chunks] == [first["choices"]]
    assert last["kind"] == "error"
    assert last["error"]["code"] == "upstream_error"
    assert f"office ({BASE}) did not answer with {expected}" in last["error"]["message"]


async def test_whole_answers_are_read_likewise(page: UpstreamPage) -> None:
    whole = {"choices": [{"index": 0, "message": {"content": PARTS}, "finish_reason": "stop"}], "usage": 5}
    answer(page, "chat/completions", lambda: Reply(whole))
    result = await page.call("chat.completions", request=CHAT)
    assert result["choices"][0]["message"]["content"] == "Grüße!"
    assert result["usage"] is None
    answer(page, "chat/completions", lambda: Reply({"object": "chat.completion"}))
    failed = await page.call("chat.completions", request=CHAT)
    assert "a list of choices" in failed["error"]["message"]
