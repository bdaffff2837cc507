"""Random bodies of requests: valid ones in which values were replaced, removed and nested."""

import copy
from random import Random
from typing import Any

from app.answers.embeddings import embedding_request, rank_request
from app.openai.requests import chat_request, completion_request
from app.openai.responses import responses_request
from app.openai.tokenize import tokenize_request
from py_engine.errors import CODES, WispError

VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    3.0,
    1.5,
    1e308,
    -1e308,
    float("nan"),
    float("inf"),
    10**400,
    {"9" * 5000: 1},
    2**31,
    2**63,
    10**400,
    "",
    "x",
    "auto",
    "required",
    "\ud800",
    "x" * 1000,
    [],
    [[]],
    {},
    {"type": "x"},
    [None],
    [1, "a"],
    ["a"] * 500,
    {"a": {"b": []}},
    [{}],
    {"type": "function"},
    {"type": "text", "text": 5},
    [[1, 2]],
    {"1": 5, "x": 2},
)
TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object"}, "description": "d", "strict": True},
}
BODIES: tuple[tuple[Any, dict[str, Any]], ...] = (
    (
        chat_request,
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "a"},
                {"role": "user", "content": [{"type": "text", "text": "b", "untrusted": True}]},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}],
                },
                {"role": "tool", "content": "c", "tool_call_id": "1"},
            ],
            "tools": [TOOL],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "stream": True,
            "stream_options": {"include_usage": True},
            "stop": ["a"],
            "n": 2,
            "logit_bias": {"1": 2},
            "temperature": 1,
            "dry_sequence_breakers": ["a"],
            "dry_multiplier": 1,
            "logprobs": True,
            "top_logprobs": 2,
            "max_tokens": 5,
            "chat_template_kwargs": {"a": 1},
            "reasoning_effort": "low",
            "truncation": "auto",
            "seed": 1,
            "user": "u",
        },
    ),
    (
        chat_request,
        {
            "messages": [{"role": "user", "content": "a"}],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "strict": True, "schema": {"type": "object"}},
            },
        },
    ),
    (
        chat_request,
        {
            "messages": [{"role": "user", "content": "a"}],
            "tools": [TOOL],
            "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TOOL]}},
        },
    ),
    (
        completion_request,
        {"prompt": ["a", [1, 2]], "max_tokens": 5, "echo": True, "best_of": 1, "grammar": "root ::= 'a'"},
    ),
    (
        responses_request,
        {
            "model": "m",
            "instructions": "i",
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
                {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "1", "output": "x"},
            ],
            "tools": [{"type": "function", "name": "f", "parameters": {}}],
            "text": {"format": {"type": "text"}},
            "reasoning": {"effort": "low"},
            "include": ["x"],
            "max_output_tokens": 5,
        },
    ),
    (embedding_request, {"input": ["a", "b"], "dimensions": 5, "encoding_format": "base64", "embd_normalize": 0}),
    (rank_request, {"query": "q", "documents": ["a", {"text": "b"}], "top_n": 1}),
    (tokenize_request, {"content": "a", "add_special": True, "with_pieces": True}),
)


def case(rng: Random) -> tuple[Any, Any]:
    """(the function that checks it, a body)."""
    check, body = rng.choice(BODIES)
    root: Any = copy.deepcopy(body)
    for _ in range(rng.choice((1, 1, 2, 4))):
        at, key = root, None
        while isinstance(at, dict | list) and at and (key is None or rng.random() < 0.7):
            holder, key = at, rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
            at = holder[key]
        if key is None or rng.random() < 0.02:
            root = copy.deepcopy(rng.choice(VALUES))
        elif rng.random() < 0.1:
            del holder[key]
        elif rng.random() < 0.1 and isinstance(holder, dict):
            holder[rng.choice(("x", "", "__class__", "messages", "self"))] = rng.choice(VALUES)
        else:
            holder[key] = copy.deepcopy(rng.choice(VALUES))
    return check, root


def run(given: tuple[Any, Any]) -> None:
    """Check the body."""
    check, body = given
    try:
        check(body)
    except WispError as error:
        if error.code not in CODES or error.code == "internal_error":
            raise AssertionError(error.code) from error
