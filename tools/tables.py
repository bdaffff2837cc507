"""Tables that follow from the code: the sampler parameters in requests.d.ts and in the documentation.

`python -m tools.tables` rewrites them between their marks; tests/unit/test_tables.py fails while they differ.
"""

import re
from pathlib import Path

from py_engine.plan.sampling import Parameter, parameters
from tools.paths import ROOT

TYPES = ROOT / "app" / "sdk" / "requests.d.ts"
PARAMETERS = ROOT / "docs" / "parameters.md"


def tables() -> dict[Path, dict[str, str]]:
    """File -> the name of each table in it -> its text."""
    found = parameters()
    return {
        TYPES: {
            "sampling": "".join(f"  {name}?: number | null;\n" for name in found),
            "responses": "".join(f"  {name}?: number | null;\n" for name, p in found.items() if p.range.responses),
        },
        PARAMETERS: {"sampling": _markdown(found)},
    }


def _markdown(found: dict[str, Parameter]) -> str:
    rows = [
        f"| `{name}` | {'integer' if p.integer else 'number'} | {_number(p.range.low)} to {_number(p.range.high)} "
        f"| {'random' if p.default is None else _number(p.default)} | {'yes' if p.range.responses else ''} |\n"
        for name, p in found.items()
    ]
    head = "| parameter | type | range | default | `/v1/responses` |\n|---|---|---|---|---|\n"
    return head + "".join(rows)


def _number(value: float) -> str:
    powers = {1 << 31: "2^31", (1 << 64) - 1: "2^64 - 1", -(1 << 63): "-2^63"}
    return powers.get(int(value), f"{value:g}") if value == int(value) else f"{value:g}"


def rendered(path: Path) -> str:
    """The file with its tables up to date."""
    text = path.read_text(encoding="utf-8")
    for name, table in tables()[path].items():
        opening, closing = (
            (f"// <{name}>", f"// </{name}>") if path.suffix == ".ts" else (f"<!-- {name} -->", "<!-- end -->")
        )
        head, found_opening, rest = text.partition(f"{opening}\n")
        indent = re.match(r"\s*", head.rpartition("\n")[2])
        _, found_closing, tail = rest.partition(closing)
        if not (found_opening and found_closing and indent):
            raise ValueError(f"{path} has no marks {opening} ... {closing}")
        text = head + found_opening + table + indent[0] + closing + tail
    return text


if __name__ == "__main__":
    for path in tables():
        path.write_text(rendered(path), encoding="utf-8")
