"""The models that come with the page: static/models/catalog.json with sizes and hashes filled in at build."""

import hashlib
import json
from pathlib import Path
from typing import Any

from tools.failure import Failure
from tools.paths import STATIC

MODELS = STATIC / "models"


def entries() -> list[dict[str, Any]]:
    """The catalog as written: each entry names its `file` in static/models."""
    found: list[dict[str, Any]] = json.loads((MODELS / "catalog.json").read_text(encoding="utf-8"))
    return found


def finished(names: dict[str, str]) -> bytes:
    """catalog.json as the page gets it. `names`: file in static/models -> its published name beside the catalog.

    `url` is relative to the catalog's own address.
    """
    out = []
    for entry in entries():
        path: Path = MODELS / entry["file"]
        if not path.exists():
            raise Failure(f"static/models/catalog.json names {entry['file']}, which static/models does not hold")
        data = path.read_bytes()
        rest = {key: value for key, value in entry.items() if key != "file"}
        out.append({**rest, "url": names[entry["file"]], "size": len(data), "sha256": hashlib.sha256(data).hexdigest()})
    return json.dumps(out, indent=1).encode()
