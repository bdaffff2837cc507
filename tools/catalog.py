"""The models that come with the page: static/models/catalog.json with sizes and hashes filled in at build."""

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from tools.failure import Failure, run
from tools.paths import STATIC, venv_python

MODELS = STATIC / "models"

# Run with the page's own archive on the path, so that the records are the ones that the page will ask for.
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
    """The catalog as written: each entry names its `file` in static/models."""
    found: list[dict[str, Any]] = json.loads((MODELS / "catalog.json").read_text(encoding="utf-8"))
    return found


def finished(names: dict[str, str], archive: bytes) -> bytes:
    """catalog.json as the page gets it. `names`: file in static/models -> its published name beside the catalog.

    `url` is relative to the catalog's own address; `records` has the SHA-256 of each record by its offset.
    `archive`: the zip with the page's Python.
    """
    out = []
    paths = [MODELS / entry["file"] for entry in entries()]
    for path in paths:
        if not path.exists():
            raise Failure(f"static/models/catalog.json names {path.name}, which static/models does not hold")
    records = _records(paths, archive)
    for entry, path in zip(entries(), paths, strict=True):
        data = path.read_bytes()
        rest = {key: value for key, value in entry.items() if key != "file"}
        digest = hashlib.sha256(data).hexdigest()
        facts = {"url": names[entry["file"]], "size": len(data), "sha256": digest, "records": records[str(path)]}
        out.append({**rest, **facts})
    return json.dumps(out, indent=1).encode()


def _records(paths: list[Path], archive: bytes) -> dict[str, dict[str, str]]:
    """Path -> offset -> SHA-256 of each record."""
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / "py.zip"
        packed.write_bytes(archive)
        env = {**os.environ, "PYTHONPATH": str(packed)}
        answer = run([venv_python(), "-c", RECORDS, *paths], "Cannot read the models in static/models", env=env)
    found: dict[str, dict[str, str]] = json.loads(answer)
    return found
