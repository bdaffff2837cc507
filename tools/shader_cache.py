"""What the last run of tools/shaders.py over all models has read, and which shaders were valid."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from py_engine.plan.kernels import Shader
from tools.goldens import GOLDEN
from tools.paths import NODE_MODULES, ROOT, cache_dir

VALIDATOR = ROOT / "tools" / "validate_wgsl.mjs"


class LastRun:
    """The last run without an error over all models of this checkout, with this Dawn; if it had none, of another one.

    Runs that validate every shader (`everything`) are stored apart from runs that validate a selection.
    `is_current`: another run would read what this one has read, so none is needed. After a change, its shaders are
    still valid, and Dawn is given the others.
    """

    def __init__(self, everything: bool = False) -> None:
        dawn = (NODE_MODULES / "webgpu" / "package.json").read_bytes()
        which = f"{'all-' if everything else ''}{_digest(dawn, VALIDATOR.read_bytes())}"
        self._file = cache_dir("shaders") / f"{which}-{_digest(str(ROOT).encode())[:16]}.json"
        others = sorted(self._file.parent.glob(f"{which}-*.json"), key=lambda file: file.stat().st_mtime)
        files = [file for file in (*others, self._file) if file.exists()]
        empty = {"modules": {}, "inputs": "", "valid": []}
        self._run = run = json.loads(files[-1].read_text()) if files else empty
        self._valid: set[str] = set(run["valid"])
        self.count = len(self._valid)
        self.is_current = run["inputs"] == _inputs() and run["modules"] == _digests(run["modules"])
        self._begun = time.time()

    def __contains__(self, shader: Shader) -> bool:
        return _digest(shader.code.encode()) in self._valid

    def add(self, shaders: Iterable[Shader]) -> None:
        """Store that these shaders are valid, too. They need not be all that there are now."""
        valid = self._valid | {_digest(shader.code.encode()) for shader in shaders}
        self._file.write_text(json.dumps({**self._run, "valid": sorted(valid)}))

    def replace(self, shaders: Iterable[Shader]) -> None:
        """Store this run in its place: its shaders were valid, and what it has imported decides which there are."""
        files = [Path(file) for module in [*sys.modules.values()] if (file := getattr(module, "__file__", None))]
        ours = [path for path in files if path.is_relative_to(ROOT)]
        names = [f"{path.relative_to(ROOT)}" for path in ours]
        modules = _digests(name for name in names if not name.startswith((".venv", "node_modules")))
        if any((ROOT / name).stat().st_mtime > self._begun for name in modules):
            return  # changed while it ran
        valid = [_digest(shader.code.encode()) for shader in shaders]
        self._file.write_text(json.dumps({"modules": modules, "inputs": _inputs(), "valid": valid}))


def _digests(modules: Iterable[str]) -> dict[str, str]:
    return {name: _digest((ROOT / name).read_bytes()) for name in modules if (ROOT / name).exists()}


def _inputs() -> str:
    """The digest of the kernels' texts, and of the golden models' names and sizes."""
    kernels = [part for path in sorted(ROOT.glob("wgsl/**/*.wgsl")) for part in (path.name.encode(), path.read_bytes())]
    models = [f"{path.name} {path.stat().st_size}".encode() for path in sorted(GOLDEN.glob("*/*.gguf"))]
    return _digest(*kernels, *models)


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()
