"""Bundle JavaScript and CSS (bundle.mjs)."""

import json
from collections.abc import Sequence
from pathlib import Path

from tools.failure import run
from tools.npm import node
from tools.paths import ROOT


def bundled(entries: Sequence[dict[str, str]]) -> tuple[dict[str, str], list[str]]:
    """Return bundle name -> text of the entries {name, file, format}, and the npm packages in them."""
    request = json.dumps({"root": str(ROOT), "entries": entries})
    command: list[str | Path] = [node(), ROOT / "tools" / "bundle.mjs"]
    made = json.loads(run(command, "Cannot bundle the page's JavaScript", cwd=ROOT, stdin=request))
    return made["outputs"], made["packages"]
