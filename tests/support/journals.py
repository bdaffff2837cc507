"""The client's end of a journal (app/sdk/journal.js), for tests without a browser."""

from typing import Any


def record(entries: list[dict[str, Any]], journal: dict[str, Any] | None = None) -> dict[str, Any]:
    """A journal with these entries added."""
    found: dict[str, Any] = journal or {"answer": None, "choices": []}
    for entry in entries:
        found |= {name: entry[name] for name in ("answer", "over") if name in entry}
        if "choice" not in entry:
            continue
        choices = found["choices"]
        choices += [None] * (entry["choice"] + 1 - len(choices))
        choice = choices[entry["choice"]] = choices[entry["choice"]] or {"batches": []}
        choice["batches"] += entry.get("batches", [])
        choice |= {name: entry[name] for name in ("seed", "closed") if name in entry}
    return found
