"""Runs grammars in XGrammar, in Node."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tools.npm import node
from tools.paths import NODE_MODULES

MODULE = NODE_MODULES / "@mlc-ai" / "web-xgrammar" / "lib" / "index.js"
WORDS = [
    '{"',
    '":',
    '": ',
    '"',
    '","',
    '"}',
    "},",
    "}]",
    "true",
    "false",
    "null",
    " 1",
    "12",
    "abc",
    ", ",
    "é",
    "本",
    "\n  ",
]


def run(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run {grammar, texts, samples} jobs; return for each {texts: [accepted?], samples: [random texts], error?}."""
    request = json.dumps({"module": str(MODULE), "words": WORDS, "jobs": jobs})
    script = Path(__file__).with_suffix(".mjs")
    done = subprocess.run([node(), script], input=request, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found
