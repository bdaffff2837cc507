"""The official openai client for a page, bundled once."""

import json

from tools.failure import run as tool_run
from tools.npm import node
from tools.paths import NODE_MODULES, ROOT

CLIENT = NODE_MODULES / ".cache" / "wisp" / "openai.js"


def client_path() -> str:
    """Where the tests' server has the client, as a module."""
    entry = {"name": "openai", "file": str(NODE_MODULES / "openai" / "index.mjs"), "format": "esm"}
    request = json.dumps({"root": str(ROOT), "entries": [entry]})
    CLIENT.parent.mkdir(parents=True, exist_ok=True)
    bundled = tool_run([node(), ROOT / "tools" / "bundle.mjs"], "Cannot bundle the client", cwd=ROOT, stdin=request)
    CLIENT.write_text(json.loads(bundled)["outputs"]["openai"], encoding="utf-8")
    return f"/repo/{CLIENT.relative_to(NODE_MODULES.parent).as_posix()}"
