"""Random conversations for template_campaign.py, as requests to llama.cpp's /apply-template.

Left out, because llama.cpp writes them otherwise than Hugging Face: numbers such as 2.0 in arguments (as 2), and tools
without a description or parameters (it adds empty ones). Spaces beyond ASCII, which it does not trim, end no text.
"""

import json
from typing import Any

import numpy as np

from tests.golden.make.chat_templates import ADD, CALL_ID, WEATHER, function

Message = dict[str, Any]
Body = dict[str, Any]

TEXTS = (
    "", " ", "Hello!", "  padded\n", "\n\nlines\n\n", "日本 & <tags> {{ braces }} 😀", "{% if x %}\\n'\"",
    "<think>\neasy\n</think>\n\n2", "<think>open", "a</think>b", "e\u0301\u00a0\u2028!", "0", "/no_think", "/think now",
)  # fmt: skip
RESULTS = ('{"temp": 21}', "3.5", "", "[1, 2]", "null", "<tool_response>\nno\n</tool_response>", "é\n")
LISTED = {"type": "array", "items": {"type": "integer"}}
NESTED = {"o": {"type": "object", "properties": {"list": LISTED, "none": {"type": "null"}, "t": {"const": True}}}}
TOOLS = (
    WEATHER,
    ADD,
    function("nothing", "", {}, []),
    function("nested-name.x", "Ünïcode 'single' \"double\" \\ / \u2028", NESTED, ["o"]),
)  # fmt: skip
ARGUMENTS: tuple[dict[str, Any], ...] = (
    {}, {"a": 1, "b": 2.5}, {"city": "Paris", "unit": "celsius"}, {"é": "ü\n\"'", "n": None, "t": True},
    {"o": {"list": [1, 2.5, 1e20, -3, 1e-7]}}, {"b": 1, "a": {"z": 1, "y": []}},
)  # fmt: skip
NAMES = ("Ann", "get_weather", "x y")
KWARGS: tuple[dict[str, Any], ...] = (
    {"enable_thinking": False}, {"enable_thinking": True}, {"date_string": "1 May"}, {"custom_instructions": "Be odd."},
    {"xml_tools": ["t"]}, {"tools_in_user_message": False},
)  # fmt: skip


def one_of(random: np.random.Generator, values: Any) -> Any:
    """One of some values, which numpy would convert."""
    return values[int(random.integers(len(values)))]


def content(random: np.random.Generator) -> Any:
    """A text, or a list of parts."""
    if random.random() < 0.8:
        return one_of(random, TEXTS)
    return [{"type": "text", "text": one_of(random, TEXTS)} for _ in range(random.integers(1, 4))]


def call(random: np.random.Generator) -> dict[str, Any]:
    arguments = one_of(random, ARGUMENTS)
    given = json.dumps(arguments, ensure_ascii=bool(random.random() < 0.5))
    name = one_of(random, TOOLS)["function"]["name"]
    return {"id": CALL_ID, "type": "function", "function": {"name": name, "arguments": given}}


def answer(random: np.random.Generator) -> list[Message]:
    """An assistant's turn: an answer, or calls and their results."""
    said: Message = {"role": "assistant", "content": content(random)}
    if random.random() < 0.15:
        said["reasoning_content"] = one_of(random, TEXTS)
    if random.random() < 0.65:
        return [said]
    said["tool_calls"] = [call(random) for _ in range(1 if random.random() < 0.7 else 2)]
    if random.random() < 0.5:
        said["content"] = one_of(random, ("", None))
    results = []
    for called in said["tool_calls"] if random.random() < 0.9 else []:
        result: Message = {"role": "tool", "content": one_of(random, RESULTS), "tool_call_id": called["id"]}
        if random.random() < 0.3:
            result["name"] = called["function"]["name"]
        if random.random() < 0.1:
            result["content"] = [{"type": "text", "text": one_of(random, RESULTS)}]
        results.append(result)
    return [said, *results, *(answer(random) if random.random() < 0.6 else [])]


def conversation(random: np.random.Generator) -> Body:
    """A request."""
    messages: list[Message] = []
    if random.random() < 0.5:
        role = "system" if random.random() < 0.9 else "developer"
        messages.append({"role": role, "content": content(random)})
    for _ in range(random.integers(1, 4)):
        asked: Message = {"role": "user", "content": content(random)}
        if random.random() < 0.1:
            asked["name"] = one_of(random, NAMES)
        messages += [asked, *answer(random)]
    if random.random() < 0.7:
        messages.append({"role": "user", "content": content(random)})
    if random.random() < 0.1:
        messages.insert(int(random.integers(len(messages) + 1)), {"role": "system", "content": content(random)})
    if random.random() < 0.1:
        del messages[int(random.integers(len(messages)))]
    body: Body = {"messages": messages}
    if random.random() < 0.4:
        body["tools"] = [TOOLS[i] for i in random.choice(len(TOOLS), random.integers(1, 4), replace=False)]
    if random.random() < 0.2:
        body["add_generation_prompt"] = bool(random.random() < 0.3)
    if random.random() < 0.3:
        body["chat_template_kwargs"] = one_of(random, KWARGS)
    return body
