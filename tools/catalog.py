"""Fill sizes and hashes into static/models/catalog.json, which lists the models that come with the page."""

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from tools.failure import Failure
from tools.paths import STATIC
from tools.python_zip import run_with

MODELS = STATIC / "models"

# Runs with the page's own archive on the path, so that the records are those that the page will request.
RECORDS = """
import hashlib, json, sys
from py_engine.files.gguf_header import parse
from py_engine.files.records import plan_records
out = {}
for path in sys.argv[1:]:
    data = open(path, "rb").read()
    plan = plan_records(parse(data, len(data)), len(data))
    out[path] = {record.offset: hashlib.sha256(data[record.offset : record.end]).hexdigest() for record in plan}
print(json.dumps(out))
"""


def entries() -> list[dict[str, Any]]:
    """Return the catalog's entries; each names its `file` in static/models, and perhaps its `projector`."""
    found: list[dict[str, Any]] = json.loads((MODELS / "catalog.json").read_text(encoding="utf-8"))
    return found


def files_of(entry: dict[str, Any]) -> list[str]:
    """The files of an entry in static/models."""
    return [entry[key] for key in ("file", "projector") if key in entry]


def finished(names: dict[str, str], archive: bytes) -> bytes:
    """Return the published catalog.json.

    `names`: file in static/models -> published name beside the catalog; `archive`: the zip with the page's Python.
    In the result `url` and `projector` are relative to the catalog's address, `size` is that of both, and `records` and
    `projector_records` map each record's offset to its SHA-256.
    """
    out = []
    paths = [MODELS / file for entry in entries() for file in files_of(entry)]
    for path in paths:
        if not path.exists():
            raise Failure(f"static/models/catalog.json names {path.name}, which static/models does not hold")
    records = _records(tuple(paths), archive)
    for entry in entries():
        data = (MODELS / entry["file"]).read_bytes()
        rest = {key: value for key, value in entry.items() if key != "file"}
        size = sum((MODELS / file).stat().st_size for file in files_of(entry))
        facts = {"url": names[entry["file"]], "size": size, "sha256": hashlib.sha256(data).hexdigest()}
        facts["records"] = records[str(MODELS / entry["file"])]
        if projector := entry.get("projector"):
            facts |= {"projector": names[projector], "projector_records": records[str(MODELS / projector)]}
        out.append({**rest, **facts})
    return json.dumps(out, indent=1).encode()


@lru_cache(1)  # `dev` builds again and again, mostly with the same archive
def _records(paths: tuple[Path, ...], archive: bytes) -> dict[str, dict[str, str]]:
    """Return path -> offset -> SHA-256 of each record."""
    answer = run_with(archive, RECORDS, paths, "Cannot read the models in static/models")
    found: dict[str, dict[str, str]] = json.loads(answer)
    return found
