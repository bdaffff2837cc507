"""Compress the files of dist/, so that hosts can send them with a Content-Encoding: FILE.br and FILE.gz beside FILE.

The user's cache holds what was compressed once, under the hash of its content.
"""

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tools.failure import run, say
from tools.npm import node
from tools.paths import ROOT, cache_dir

SUFFIXES = {".bin", ".css", ".html", ".js", ".json", ".mjs", ".svg", ".wasm", ".webmanifest", ".whl", ".zip"}
ENCODINGS = ("br", "gz")
BEST = 11  # Brotli's quality for a release; takes minutes the first time
QUICK = 5  # a quarter of the time of 9, for files that are 3 % larger
WORTH = 0.97  # of a file's size: files that are compressed already stay as they are


def compressed(files: Mapping[str, bytes], quality: int) -> dict[str, bytes]:
    """Return FILE.br and FILE.gz for each file that they make smaller."""
    cache = cache_dir("compressed")
    names = {
        path: f"{hashlib.sha256(data).hexdigest()}-{quality}"
        for path, data in files.items()
        if Path(path).suffix in SUFFIXES
    }
    missing = {name: path for path, name in names.items() if not (cache / f"{name}.gz").exists()}
    if missing:
        _compress({name: files[path] for name, path in missing.items()}, quality, cache)
    found = {}
    for path, name in names.items():
        for encoding in ENCODINGS:
            data = (cache / f"{name}.{encoding}").read_bytes()
            if len(data) < WORTH * len(files[path]):
                found[f"{path}.{encoding}"] = data
    return found


def _compress(contents: Mapping[str, bytes], quality: int, cache: Path) -> None:
    if quality == BEST and sum(map(len, contents.values())) > 1 << 20:
        say(f"Compressing {len(contents)} files for a release; the first time, this takes two minutes ...")
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        paths = [Path(folder) / name for name in contents]
        for path in paths:
            path.write_bytes(contents[path.name])
        request = {"files": [str(path) for path in paths], "quality": quality}
        run([node(), ROOT / "tools" / "compress.mjs"], "Cannot compress dist/", stdin=json.dumps(request))
        for path in paths:
            for encoding in ENCODINGS:  # the last one tells that both are there
                made = path.with_name(f"{path.name}.{encoding}")
                made.replace(cache / made.name)  # another process may have made it, too
