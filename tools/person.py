"""Questions to the person at the terminal: whether a tool may run, and what an MCP server asks.

Without a terminal nobody answers: no call is allowed, and questions are declined.
"""

import json
import sys
from typing import Any

from tools.failure import plain

MOST_SHOWN = 2000  # characters of a result
NUMBERS = {"integer": int, "number": float}
YES = ("y", "yes")
ALWAYS = ("a", "always")


class Person:
    """Who sits at the terminal. Questions go to stderr, so that stdout has the answer alone."""

    def __init__(self, *, allow_all: bool = False) -> None:
        self._all = allow_all
        self._always: set[str] = set()  # tools

    def allow(self, tool: str, given: dict[str, Any]) -> bool:
        """Show a call; return whether it may run: this time, or from now on."""
        tell(f"{tool} {json.dumps(given, ensure_ascii=False)}")
        if self._all or tool in self._always:
            return True
        answer = ask("Run it? [y]es, [a]lways, [N]o ").lower()
        if answer in ALWAYS:
            self._always.add(tool)
        return answer in YES + ALWAYS

    def answer(self, question: dict[str, Any]) -> dict[str, Any] | bool | None:
        """Answer the question of a server, as `onInput` of the SDK does; None declines."""
        tell(f"{question['server']} asks: {question['message']}")
        if url := question.get("url"):
            tell(url)
            return True if ask("Have you answered there? [y/N] ").lower() in YES else None
        values: dict[str, Any] = {}
        for name, field in question["schema"].get("properties", {}).items():
            text = ask(f"{field.get('title', name)} {_hint(field)}(empty: none): ")
            if text:
                values[name] = _value(text, field)
        required = question["schema"].get("required", [])
        return values if all(name in values for name in required) else None

    def show(self, result: str) -> None:
        """Show the result of a tool."""
        tell(f"-> {result[:MOST_SHOWN]}{' ...' if len(result) > MOST_SHOWN else ''}")


def tell(text: str) -> None:
    """Print to the person."""
    print(plain(text), file=sys.stderr, flush=True)


def ask(text: str) -> str:
    """Return what the person types, or nothing where there is no terminal."""
    if not sys.stdin.isatty():
        return ""
    print(plain(text), end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()


def _hint(field: dict[str, Any]) -> str:
    choices = field.get("enum") or [one.get("const") for one in field.get("oneOf", [])]
    return f"[{'/'.join(map(str, choices))}] " if choices else ""


def _value(text: str, field: dict[str, Any]) -> Any:
    """A text as a field's type; the server checks it."""
    kind = field.get("type")
    if kind == "boolean":
        return text.lower() in (*YES, "true", "1")
    if kind == "array":
        return [part.strip() for part in text.split(",")]
    try:
        return NUMBERS[str(kind)](text) if kind in NUMBERS else text
    except ValueError:
        return text
