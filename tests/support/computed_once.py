"""What every test process needs while it collects, computed by one of them and stored for the others."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tools.paths import ROOT, cache_dir


def computed_once(what: str, inputs: Iterable[Path], compute: Callable[[], Any]) -> Any:
    """Return what compute() returns, JSON, which depends on files and on the engine's code; other processes wait.

    `what` names all else that it depends on.
    """
    digest = hashlib.blake2b(f"{what}\0{_code()}".encode())
    for path in inputs:
        digest.update(path.name.encode() + b"\0" + _of_file(path))
    stored = cache_dir("computed") / f"{digest.hexdigest()[:40]}.json"
    with stored.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stored.exists():
            stored.write_text(json.dumps(compute()), encoding="utf-8")
    return json.loads(stored.read_text(encoding="utf-8"))


@cache
def _of_file(path: Path) -> bytes:
    return hashlib.blake2b(path.read_bytes()).digest()


@cache
def _code() -> str:
    """The digest of the engine, its kernels and what tests share."""
    found = sorted(p for top in ("py_engine", "wgsl", "tests/support") for p in (ROOT / top).rglob("*.[pw][yg]*"))
    parts = [str(p.relative_to(ROOT)).encode() + b"\0" + _of_file(p) for p in found if p.suffix in (".py", ".wgsl")]
    return hashlib.blake2b(b"".join(parts)).hexdigest()
