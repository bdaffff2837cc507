"""Fifty fixed tasks for agents: a question, the tools for it, and calls that a scripted model makes."""

from dataclasses import dataclass
from typing import Any

CITY = {"type": "string", "maxLength": 20}


def schema(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


UNITS = ["m", "km", "ft", "mi"]
SCHEMAS: dict[str, dict[str, Any]] = {
    "get_weather": schema(["city"], city=CITY, unit={"enum": ["celsius", "fahrenheit"]}),
    "add": schema(["x", "y"], x={"type": "integer", "minimum": -999, "maximum": 999},
                  y={"type": "integer", "minimum": -999, "maximum": 999}),
    "total": schema(["numbers"], numbers={"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99},
                                          "minItems": 1, "maxItems": 4}),
    "set_timer": schema(["minutes"], minutes={"type": "integer", "minimum": 1, "maximum": 120},
                        label={"type": "string", "maxLength": 12}),
    "list_files": schema(["folder"], folder={"type": "string", "pattern": "^/[a-z]{1,10}$"}),
    "send_mail": schema(["to", "urgent"], urgent={"type": "boolean"},
                        to=schema(["name"], name={"type": "string", "minLength": 1, "maxLength": 12})),
    "translate": schema(["text", "language"], text={"type": "string", "maxLength": 20},
                        language={"enum": ["de", "fr", "ja"]}),
    "book_table": schema(["date", "people"], date={"type": "string", "pattern": "^2027-[01][0-9]-[0-3][0-9]$"},
                         people={"type": "integer", "minimum": 1, "maximum": 12}),
    "search": schema(["query"], query={"type": "string", "minLength": 1, "maxLength": 24}),
    "convert": schema(["value", "unit", "to"], value={"type": "integer", "minimum": 0, "maximum": 9999},
                      unit={"enum": UNITS}, to={"enum": UNITS}),
    "roll_dice": schema(["sides"], sides={"enum": [4, 6, 8, 12, 20]}),
    "set_light": schema(["rooms", "on"], rooms={"type": "array", "items": {"enum": ["kitchen", "hall", "attic"]},
                                                "minItems": 1, "maxItems": 3}, on={"type": "boolean"}),
    "now": schema([]),
}  # fmt: skip


@dataclass(frozen=True)
class Task:
    """A question with its tools, and turns of calls: (tool, arguments)."""

    question: str
    tools: tuple[str, ...]
    turns: tuple[tuple[tuple[str, dict[str, Any]], ...], ...]

    @property
    def definitions(self) -> list[dict[str, Any]]:
        return [{"function": {"name": name, "parameters": SCHEMAS[name]}} for name in self.tools]


def _task(question: str, *turns: list[tuple[str, dict[str, Any]]], others: tuple[str, ...] = ()) -> Task:
    named = dict.fromkeys(name for turn in turns for name, _ in turn)
    return Task(question, (*named, *others), tuple(map(tuple, turns)))


def _weather(city: str) -> tuple[str, dict[str, Any]]:
    return "get_weather", {"city": city}


TASKS = [
    *(_task(f"What is the weather in {city}?", [_weather(city)]) for city in
      ("Paris", "Rome", "Oslo", "Cairo", "Lima", "Nairobi")),
    *(_task(f"Is it warmer in {a} or in {b}?", [_weather(a), _weather(b)]) for a, b in
      (("Paris", "Rome"), ("Oslo", "Cairo"), ("Lima", "Bonn"))),
    *(_task(f"What is {x} plus {y}?", [("add", {"x": x, "y": y})]) for x, y in
      ((2, 3), (17, 25), (-4, 9), (100, 250), (0, 0))),
    *(_task(f"Add {x} and {y}, then add {z}.", [("add", {"x": x, "y": y})], [("add", {"x": x + y, "y": z})])
      for x, y, z in ((1, 2, 3), (10, 20, 30), (5, -5, 8))),
    *(_task(f"Sum these: {', '.join(map(str, n))}.", [("total", {"numbers": n})], others=("add",)) for n in
      ([1, 2, 3], [40, 2], [9, 9, 9, 9])),
    *(_task(f"Set a timer for {m} minutes.", [("set_timer", {"minutes": m})]) for m in (1, 5, 30, 120)),
    _task("Set timers for tea and eggs.", [("set_timer", {"minutes": 4, "label": "tea"}),
                                           ("set_timer", {"minutes": 7, "label": "eggs"})]),
    *(_task(f"Which files are in {f}?", [("list_files", {"folder": f})]) for f in ("/home", "/music", "/tmp")),
    *(_task(f"Write a mail to {n}.", [("send_mail", {"to": {"name": n}, "urgent": False})]) for n in ("Ann", "Bo")),
    _task("Write an urgent mail to Maria.", [("send_mail", {"to": {"name": "Maria"}, "urgent": True})]),
    *(_task(f"Say good morning in {n}.", [("translate", {"text": "good morning", "language": c})]) for n, c in
      (("German", "de"), ("French", "fr"), ("Japanese", "ja"))),
    _task("Book a table for two on the first of May 2027.", [("book_table", {"date": "2027-05-01", "people": 2})]),
    _task("Book a table for twelve at Christmas 2027.", [("book_table", {"date": "2027-12-25", "people": 12})]),
    *(_task(f"Search for {q}.", [("search", {"query": q})]) for q in ("red pandas", "the tallest tree")),
    _task("Search for a good place and book it.", [("search", {"query": "good place"})],
          [("book_table", {"date": "2027-06-01", "people": 4})]),
    *(_task(f"How much are {v} {u} in {to}?", [("convert", {"value": v, "unit": u, "to": to})]) for v, u, to in
      ((5, "km", "mi"), (300, "ft", "m"))),
    *(_task(f"Roll a die with {s} sides.", [("roll_dice", {"sides": s})]) for s in (4, 6, 20)),
    _task("Roll two dice and add them.", [("roll_dice", {"sides": 6}), ("roll_dice", {"sides": 6})],
          [("add", {"x": 3, "y": 4})]),
    _task("Switch on the light in the kitchen.", [("set_light", {"rooms": ["kitchen"], "on": True})]),
    _task("Switch all lights off.", [("set_light", {"rooms": ["kitchen", "hall", "attic"], "on": False})]),
    _task("What time is it?", [("now", {})]),
    _task("What time is it, and how is the weather in Rome?", [("now", {}), _weather("Rome")]),
    _task("Do what is best.", [("search", {"query": "best"})], others=("add", "now", "set_light", "roll_dice")),
]  # fmt: skip
