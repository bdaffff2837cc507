"""How fast a model comes from a server on this machine into the browser's storage, with two builds by turns.

.venv/bin/python -m bench.into_cache [BEFORE [NOW]] --model FILE [--download] [--rounds 3]

BEFORE and NOW are copies of dist/ (default: a new dist/ of this tree alone). Without --download
the model is also loaded.
The browser has a profile on the disk: IndexedDB of a private window would be in memory.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import sync_playwright

from bench.headless import DEFAULT, READY_MS, write_figures
from tools import dist
from tools.browser import launch_options
from tools.paths import ROOT
from tools.serve import Server

MEASURE = """async (asked) => (await import("/bench/into_cache.js")).measureCache(asked)"""


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.into_cache", description="Measure downloads into storage.")
    parser.add_argument("before", type=Path, nargs="?", help="a copy of dist/ of one build")
    parser.add_argument("now", type=Path, nargs="?", help="of the other (default: a new dist/ of this tree)")
    parser.add_argument("--model", type=Path, default=DEFAULT, help="a .gguf file (default: Wisp Mini)")
    parser.add_argument("--download", action="store_true", help="do not load the model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--options", type=json.loads, default={}, help="JSON of further options of load()")
    parser.add_argument("--profile", type=Path, help="where the browser's profile is made (default: the system's)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args(arguments)
    found = measure(options)
    for name, rows in found.items():
        for row in [*rows, {key: median(row[key] or 0 for row in rows) for key in rows[0]}]:
            ready = f"ready {row['ready']:6.2f} s, " if row["ready"] else ""
            print(f"{name:8}{ready}stored {row['stored']:6.2f} s, {row['rate'] / 1e9:.3f} GB/s")
    write_figures(found, options.json)
    return 0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """The rows of each build (bench/into_cache.js)."""
    builds = {"before": options.before} if options.before else {}
    builds["now"] = options.now or dist.made()
    mounts = {f"{name}/": folder for name, folder in builds.items()}
    mounts |= {"bench/": ROOT / "bench", "model/": options.model.resolve().parent}
    server = Server(builds["now"], 0, mounts=mounts).start()
    try:
        with (
            sync_playwright() as playwright,
            TemporaryDirectory(prefix="wisp-profile-", dir=options.profile) as profile,
        ):
            context = playwright.chromium.launch_persistent_context(profile, **launch_options())
            page = context.new_page()
            page.set_default_timeout(READY_MS)
            page.goto(f"{server.url}notices.html")
            asked = {
                "builds": {name: f"{server.url}{name}" for name in builds},
                "model": f"{server.url}model/{options.model.name}",
                "load": not options.download,
                "rounds": options.rounds,
                "options": {"contextLength": 2048, **options.options},
            }
            found: dict[str, Any] = page.evaluate(MEASURE, asked)
            context.close()
    finally:
        server.shutdown()
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
