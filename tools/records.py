"""Write FILE.gguf.records.json, the SHA-256 of each record of a model: `python -m tools.records FILE.gguf ...`.

A host that serves it beside the model lets browsers update the model by the records that changed
(py_engine/files/updates.py).
"""

import hashlib
import json
import sys
from pathlib import Path

from py_engine.files.gguf_header import parse
from py_engine.files.records import plan_records


def write(path: Path) -> Path:
    """Write the file beside the model; returns its path."""
    data = path.read_bytes()
    plan = plan_records(parse(data, len(data)), len(data))
    hashes = {record.offset: hashlib.sha256(data[record.offset : record.end]).hexdigest() for record in plan}
    out = path.with_name(f"{path.name}.records.json")
    out.write_text(json.dumps(hashes), encoding="utf-8")
    return out


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(write(Path(name)))
