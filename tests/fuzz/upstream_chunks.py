"""Random chunks and answers of other servers: each has texts, or is an error of the upstream."""

import math
from copy import deepcopy
from random import Random
from typing import Any

from app.upstreams import chunks
from app.upstreams.server import Upstream
from py_engine.errors import WispError

UPSTREAM = Upstream("office", "https://office.example/v1")
CHUNK: dict[str, Any] = {
    "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "usage": {"total_tokens": 3},
    "choices": [
        {
            "index": 0, "finish_reason": None, "text": "a",
            "delta": {"role": "assistant", "content": "a", "reasoning_content": "b", "tool_calls": []},
            "logprobs": {"content": [{"token": "a", "logprob": -0.5, "top_logprobs": [{"token": "a", "logprob": -1}]}]},
        }
    ],
}  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 7, 1 << 70, 0.5, math.nan, math.inf, "", "x", [], {}, ["a", "b"],
    [{"type": "text", "text": "a"}],
    [{"type": "text", "text": 5}], [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}], [None], [[]],
    {"text": "a"}, [{"type": "image_url"}], "user", "stop",
)  # fmt: skip


def case(rng: Random) -> tuple[str, Any, bool]:
    """(kind, answer, whether it is a chunk)."""
    answer, streamed = deepcopy(CHUNK), rng.random() < 0.7
    if not streamed:
        answer["choices"][0]["message"] = answer["choices"][0].pop("delta")
    for _ in range(rng.randrange(1, 4)):
        place: Any = answer
        while True:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            key = rng.choice(list(keys))
            if isinstance(place[key], dict | list) and place[key] and rng.random() < 0.8:
                place = place[key]
                continue
            if isinstance(place, dict) and rng.random() < 0.2:
                del place[key]
            else:
                place[key] = deepcopy(rng.choice(VALUES))
            break
        if not answer:
            break
    return rng.choice(chunks.KINDS), answer, streamed


def run(given: tuple[str, Any, bool]) -> None:
    """Read it, as the registry does, and use it, as the page does."""
    kind, answer, streamed = given
    try:
        read = chunks.read(UPSTREAM, kind, answer, streamed=streamed)
    except WispError as error:
        if error.code != "upstream_error":
            raise
        return
    assert isinstance(read.get("usage"), dict | None)
    for choice in read["choices"]:
        assert type(choice["index"]) is int
        assert isinstance(choice.get("finish_reason"), str | None)
        assert isinstance(choice.get("text"), str | None)
        message = choice.get("delta", {}) if streamed else choice.get("message", {})
        for name in ("content", "reasoning_content", "reasoning", "refusal"):
            assert isinstance(message.get(name), str | None)
        assert isinstance(message.get("role", ""), str)
        for entry in (choice.get("logprobs") or {}).get("content") or ():
            assert isinstance(entry["token"], str)
            assert math.exp(min(0, entry["logprob"])) >= 0
