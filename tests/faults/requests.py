"""The load: requests of every kind, and how an answer is compared with that of an undisturbed run."""

from random import Random
from typing import Any

MODEL, OTHER = "mini", "other"  # names that the campaign loads its models by
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "old": {"type": "boolean"}}}
FORM = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}},
                       "required": ["city"], "additionalProperties": False},
    },
}  # fmt: skip
TOLERANCE = 1e-4  # of an embedding's values: a packed batch may be another one after a fault

Request = dict[str, Any]  # {kind, http, body, most}: see page.js
Outcome = dict[str, Any]  # {value} or {error: code, message}


def ask(text: str, **more: Any) -> dict[str, Any]:
    """The body of a chat request."""
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 24, **more}


def _request(kind: str, http: bool, body: dict[str, Any], most: int | None = None) -> Request:
    return {"kind": kind, "http": http, "body": body, **({"most": most} if most else {})}


GREEDY = ask("Write a short story about a dragon.", temperature=0)
REQUESTS: list[Request] = [
    _request("stream", False, GREEDY),
    _request("stream", False, ask("Write a short story about a key.", temperature=1, seed=7, n=2)),
    _request("stream", True, ask("Write about a frog.", temperature=0.7, seed=3, frequency_penalty=0.5)),
    _request("whole", False, ask("Name a city as JSON.", temperature=0, response_format=FORM)),
    _request("whole", True, ask("What is the weather in Paris?", temperature=0, tools=[TOOL])),
    _request("embed", False, {"model": MODEL, "input": ["A dragon.", "A silver key in the snow."]}),
    _request("embed", True, {"model": MODEL, "input": "A frog."}),
    _request("stream", True, ask("What is the capital of Italy?", temperature=0, max_tokens=8)),
]
BRIDGED = [GREEDY, ask("Write about a frog.", temperature=0.7, seed=3, frequency_penalty=0.5)]  # by the Python client


def load_of(tab: int, dice: Random) -> list[Request]:
    """The requests of a tab: all kinds in a random order, and some that are left after a few chunks."""
    left = [{**REQUESTS[i], "most": dice.randrange(1, 12)} for i in (0, 1, 2)]
    chosen = [*REQUESTS[tab::2], *REQUESTS[1 - tab :: 2][:2], *left[tab:]]
    dice.shuffle(chosen)
    return chosen


def differs(request: Request, value: Any, expected: Any) -> bool:
    """Whether an answer is not the undisturbed one; of one that was left, whether it does not begin it."""
    if request["kind"] == "embed":
        return len(value) != len(expected) or any(
            len(a) != len(b) or max(abs(x - y) for x, y in zip(a, b, strict=True)) > TOLERANCE
            for a, b in zip(value, expected, strict=True)
        )
    if "most" in request:
        return any(not whole[0].startswith(begun[0]) for begun, whole in zip(value, expected, strict=False) if begun)
    return bool(value != expected)
