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
TAIL = """
const [code, args] = JSON.parse(require("fs").readFileSync(0, "utf8"));
const run = new Function("m", "a", `return (async () => (${code}))()`);
// exit: an open port of a module would keep Node waiting
run(globalThis.modules, args).then((out) => process.stdout.write(JSON.stringify(out ?? null), () => process.exit(0)));
"""


def evaluator(folder: Path, paths: Sequence[str]) -> Evaluate:
    """evaluate(expression, *arguments) -> its value. In it `m` has what the modules export, `a` the arguments."""
    entry = folder / "entry.mjs"
    names = [f"m{i}" for i in range(len(paths))]
    lines = [f'import * as {name} from "{ROOT.as_posix()}/{path}";' for name, path in zip(names, paths, strict=True)]
    lines.append(f"globalThis.modules = Object.assign({{}}, {', '.join(names)});")
    entry.write_text("\n".join(lines), encoding="utf-8")
    request = json.dumps({"root": str(ROOT), "entries": [{"name": "x", "file": str(entry), "format": "iife"}]})
    out = run([node(), ROOT / "tools" / "bundle.mjs"], "Cannot bundle", cwd=ROOT, stdin=request)
    bundle = folder / "bundle.cjs"
    bundle.write_text(json.loads(out)["outputs"]["x"] + TAIL, encoding="utf-8")

    def evaluate(code: str, *args: Any) -> Any:
        stdin = json.dumps([code, args])
        done = subprocess.run([node(), bundle], input=stdin, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return evaluate
