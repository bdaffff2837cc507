"""chat/*.json: chat templates rendered by jinja2 as `transformers` sets it up.

{"name", "template", "bos_token", "eos_token", "now", "cases": [{"name", "messages", "tools", "add_generation_prompt",
"kwargs", "expected" or "error"}]}. "error": the template called raise_exception with this message, and an engine must
report an error too. strftime_now(format) answers with the date "now". A golden holds its own template, so remaking one
reads the template from it; templates are data and are rendered in a sandbox.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

Conversation = dict[str, Any]

NOW = datetime(2026, 1, 15, 9, 30)


def environment(now: datetime) -> ImmutableSandboxedEnvironment:
    """The environment of transformers.utils.chat_template_utils, with a fixed clock."""

    def raise_exception(message: str) -> None:
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)

    out = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    out.filters["tojson"] = tojson
    out.globals["raise_exception"] = raise_exception
    out.globals["strftime_now"] = now.strftime
    return out


def function(name: str, description: str, properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


WEATHER = function(
    "get_weather",
    'Current weather in a city. Ünïcode & <b>html</b> "quotes".',
    {
        "city": {"type": "string", "description": "City name"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "description": "Unit"},
    },
    ["city"],
)
ADD = function(
    "add",
    "Adds numbers.",
    {"a": {"type": "number", "description": "first"}, "b": {"type": "number", "description": "second"}},
    ["a", "b"],
)
CALL_ID = "abc123def"


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """An assistant's message that calls a function."""
    calls = [{"id": CALL_ID, "type": "function", "function": {"name": name, "arguments": arguments}}]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def message(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def result(name: str, content: str) -> dict[str, Any]:
    return message("tool", content, name=name, tool_call_id=CALL_ID)


HELLO = [message("user", "Hello!")]
PARIS = message("user", "Weather in Paris?")
CONVERSATIONS: list[Conversation] = [
    {"name": "user", "messages": HELLO},
    {"name": "user, no generation prompt", "messages": HELLO, "add_generation_prompt": False},
    {
        "name": "system",
        "messages": [message("system", "You are a pirate. Be brief."), message("user", "  What's 2+2?\n")],
    },
    {
        "name": "multi-turn",
        "messages": [
            message("system", "Be kind."),
            message("user", "Hi"),
            message("assistant", "Hello, how can I help?"),
            message("user", "Tell me about 日本 & <tags> {{ braces }} 😀"),
            message("assistant", " It is a country.\n\n"),
            message("user", "Thanks"),
        ],
    },
    {
        "name": "ends with assistant",
        "messages": [message("user", "Hi"), message("assistant", "Hello")],
        "add_generation_prompt": False,
    },
    {
        "name": "thinking kept in history",
        "messages": [
            message("user", "1+1?"),
            message("assistant", "<think>\neasy\n</think>\n\n2"),
            message("user", "And 2+2?"),
        ],
    },
    {"name": "no thinking", "messages": [message("user", "1+1?")], "kwargs": {"enable_thinking": False}},
    {"name": "tools", "messages": [PARIS], "tools": [WEATHER, ADD]},
    {"name": "tools and system", "messages": [message("system", "Use tools."), PARIS], "tools": [WEATHER]},
    {
        "name": "tool result",
        "messages": [
            PARIS,
            call("get_weather", {"city": "Paris", "unit": "celsius"}),
            result("get_weather", '{"temp": 21}'),
            message("assistant", "It is 21 degrees."),
            message("user", "And 1+2?"),
        ],
        "tools": [WEATHER, ADD],
    },
    {
        "name": "tool result pending",
        "messages": [
            message("system", "Use tools."),
            message("user", "Add 1 and 2"),
            call("add", {"a": 1, "b": 2.5}),
            result("add", "3.5"),
        ],
        "tools": [ADD],
    },
    {"name": "two users in a row", "messages": [message("user", "one"), message("user", "two")]},
]


def render(template: jinja2.Template, conversation: Conversation, bos: str, eos: str) -> Conversation | None:
    """A conversation with what the template makes of it; None where the template does not foresee such input."""
    case: Conversation = {
        "name": conversation["name"],
        "messages": conversation["messages"],
        "tools": conversation.get("tools"),
        "add_generation_prompt": conversation.get("add_generation_prompt", True),
        "kwargs": conversation.get("kwargs", {}),
    }
    variables = {key: case[key] for key in ("messages", "tools", "add_generation_prompt")} | case["kwargs"]
    try:
        case["expected"] = template.render(documents=None, bos_token=bos, eos_token=eos, **variables)
    except (jinja2.exceptions.UndefinedError, TypeError):
        return None
    except jinja2.exceptions.TemplateError as failure:
        case["error"] = str(failure)
    return case


def make(golden: Path, out: Path) -> None:
    """Render a golden's own template again."""
    old = json.loads(golden.read_text(encoding="utf-8"))
    write(out, old["name"], old["template"], old["bos_token"], old["eos_token"])


def write(out: Path, name: str, source: str, bos: str, eos: str) -> None:
    """Write the golden of a template."""
    template = environment(NOW).from_string(source)
    rendered = [render(template, conversation, bos, eos) for conversation in CONVERSATIONS]
    head = {"name": name, "template": source, "bos_token": bos, "eos_token": eos, "now": NOW.isoformat()}
    parts = [f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items()]
    cases = ",\n".join(json.dumps(case, ensure_ascii=False) for case in rendered if case)
    out.write_text("{\n" + ",\n".join(parts) + ',\n"cases": [\n' + cases + "\n]}\n", encoding="utf-8")
