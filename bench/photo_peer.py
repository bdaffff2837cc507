"""Compare Wisp with wllama on a question about a photo: the same files, by turns in one page.

.venv/bin/python -m bench.photo_peer [--shape smolvlm-500m] [--layers 4] [--size 512x512] [--runs 3] [--cpu]

The model is Wisp Mini Sees, or one with random weights of another's shape (bench.photo). What a photo costs is the
median time from the question to its first token, less that of the same question without a photo.
"""

import argparse
import os
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import sync_playwright

from bench.headless import PEER, PEER_CSP, launched, write_figures
from bench.photo import SEES, add_photo_options, files
from tools import dist
from tools.catalog import MODELS, entries
from tools.paths import ROOT
from tools.serve import Server

MEASURE = """async (asked) => (await import("/bench/photo_peer.js")).measure(asked)"""
READY_MS = 3_600_000  # wllama takes a minute for some pictures


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The times of both (bench/photo_peer.js)."""
    if options.shape:
        made = files(options.shape, folder, options.layers)
    else:
        entry = next(entry for entry in entries() if entry["id"] == SEES)
        folder = MODELS
        made = {"model": MODELS / entry["file"], "projector": MODELS / entry["projector"]}
    mounts = {"bench/": ROOT / "bench", "now/": dist.made(), "wllama/": PEER, "model/": folder}
    server = Server(ROOT / "bench", 0, headers={"Content-Security-Policy": PEER_CSP}, mounts=mounts).start()
    try:
        with sync_playwright() as playwright, launched(playwright, options.adapter) as browser:
            page = browser.new_page()
            page.set_default_timeout(READY_MS)
            page.goto(f"{server.url}bench/bare/index.html")
            asked = {
                "dist": f"{server.url}now",
                "wllama": f"{server.url}wllama",
                "files": {name: f"{server.url}model/{file.name}" for name, file in made.items()},
                "backend": "cpu" if options.cpu else "webgpu",
                "threads": options.threads,
                "size": [int(side) for side in options.size.split("x")],
                "runs": options.runs,
            }
            found: dict[str, Any] = page.evaluate(MEASURE, asked)
            return found
    finally:
        server.shutdown()
        server.server_close()


def table(found: dict[str, Any]) -> str:
    """Milliseconds: a question with a photo and without, and what the photo costs."""
    lines, costs = [f"{'':8}{'tokens':>8}{'photo':>10}{'text':>10}{'cost':>10}"], []
    for name, times in found.items():
        photo, text = median(times["photo"]), median(times["text"])
        costs.append(photo - text)
        lines.append(f"{name:8}{times['tokens']:8}{photo:10.0f}{text:10.0f}{photo - text:10.0f}")
    return "\n".join([*lines, f"wllama's cost / Wisp's: {costs[1] / costs[0]:.1f}"])


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.photo_peer", description="Compare with wllama on a photo.")
    parser.add_argument("--cpu", action="store_true", help="both without a GPU")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of both on the CPU (default: all)")
    add_photo_options(parser, size="512x512", runs=3)
    options = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        found = measure(options, (options.folder or Path(folder)).resolve())
    print(f"{options.shape or SEES}, {options.size}, {'CPU' if options.cpu else 'GPU'}, medians of {options.runs}, ms")
    print(table(found))
    write_figures(found, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
