"""Modules of the page that need no page, run in Node."""

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tools.failure import run
from tools.npm import node
from tools.paths import ROOT

Evaluate = Callable[..., Any]
SERVER = Path(__file__).with_suffix(".mjs")


def evaluator(folder: Path, paths: Sequence[str]) -> Evaluate:
    """evaluate(expression, *arguments) -> its value. In it `m` has what the modules export, `a` the arguments.

    One Node evaluates all expressions, since most take less time than its start. Each has modules that have just been
    loaded, and the globals of a new Node.
    """
    entry = folder / "entry.mjs"
    names = [f"m{i}" for i in range(len(paths))]
    lines = [f'import * as {name} from "{ROOT.as_posix()}/{path}";' for name, path in zip(names, paths, strict=True)]
    lines.append(f"globalThis.modules = Object.assign({{}}, {', '.join(names)});")
    entry.write_text("\n".join(lines), encoding="utf-8")
    request = json.dumps({"root": str(ROOT), "entries": [{"name": "x", "file": str(entry), "format": "iife"}]})
    out = run([node(), ROOT / "tools" / "bundle.mjs"], "Cannot bundle", cwd=ROOT, stdin=request)
    bundle = folder / "bundle.cjs"
    bundle.write_text(json.loads(out)["outputs"]["x"], encoding="utf-8")
    running: list[subprocess.Popen[str]] = []

    def evaluate(code: str, *args: Any) -> Any:
        if not running or running[0].poll() is not None:
            pipe = subprocess.PIPE
            command = [node(), str(SERVER), str(bundle)]
            running[:] = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, encoding="utf-8")]
        process = running[0]
        assert process.stdin
        assert process.stdout
        assert process.stderr
        print(json.dumps([code, args]), file=process.stdin, flush=True)
        answer = process.stdout.readline()
        assert answer, process.stderr.read()
        found = json.loads(answer)
        assert "error" not in found, found["error"]
        return found["value"]

    return evaluate
