"""Two builds of Wisp on the same models by turns, in one page: what a change brings, or costs.

.venv/bin/python -m bench.builds BEFORE [NOW] --model FILE ... [--rounds 4]
    [--what greedy,requests,many,fresh,steps,held,first,long,beside,texts] [--instant]

BEFORE and NOW are copies of dist/ (NOW: dist/ as it is built from this tree). The same folder twice compares options of
load(): --options-before '{"mtp": false}' --options-now '{"speculation": true}'. `--instant` measures the host where
there is no GPU: dispatches have no workgroups. Medians of the rounds:
    greedy     one request of 128 tokens, tokens a second
    requests   1, 2, 4 and 8 at once, temperature 0.8, top_p 0.95, a seed each; tokens a second in sum. The prompts are
               the same in each round: the caches have them
    many       16 and 32 at once
    fresh      8 at once with new prompts: also milliseconds until the first token of the first one, and of the last
    steps      milliseconds of a step of 8 requests, after all their prompts
    held       one request at temperature 0.8, without a schema, held to an array of strings, and to one of objects;
               tokens a second after the first text
    first      milliseconds until the first token of prompts of 16, 64 and 512 tokens
    long       a prompt of 8,192 tokens, and decoding after it
    beside     a prompt of 8,192 tokens beside four streams: its first token, and the gaps of the streams
    texts      whether the answers to eight seeds, alone and side by side, are the same
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import sync_playwright

from bench.headless import AS_ON_GPU, DEFAULT, READY_MS, instant, launched, run_before_worker, write_figures
from tools import dist
from tools.paths import ROOT
from tools.serve import Server

MEASURES = ("greedy", "requests", "many", "fresh", "steps", "held", "first", "long", "beside", "texts")
MEASURE = """async (asked) => (await import("/bench/builds.js")).measureBuilds(asked, () => {})"""


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.builds", description="Compare two builds.")
    parser.add_argument("before", type=Path, help="a copy of dist/ of one build")
    parser.add_argument("now", type=Path, nargs="?", help="of the other (default: a new dist/ of this tree)")
    parser.add_argument("--model", type=Path, action="append", help="a .gguf file (default: Wisp Mini)")
    parser.add_argument("--what", default="greedy,requests,texts")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=256, help="of each answer (default: 256)")
    parser.add_argument("--context-length", type=int, default=9216)
    parser.add_argument("--backend", choices=["auto", "webgpu", "cpu"], default="auto")
    parser.add_argument("--adapter", choices=["swiftshader", "lavapipe"], help="a software GPU")
    parser.add_argument("--instant", action="store_true", help="let the GPU do nothing, to measure the host")
    for name in ("before", "now"):
        parser.add_argument(f"--options-{name}", type=json.loads, default={}, help="JSON of further options of load()")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args(arguments)
    if unknown := set(options.what.split(",")) - set(MEASURES):
        parser.error(f"--what knows {', '.join(MEASURES)}, not {', '.join(sorted(unknown))}.")
    found = measure(options)
    print("\n".join(table(found)))
    write_figures(found, options.json)
    return 0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Rows and texts of each model, by file name (bench/builds.js)."""
    now = options.now or dist.made()
    models: list[Path] = [file.resolve() for file in options.model or [DEFAULT]]
    mounts = {"before/": options.before, "now/": now, "bench/": ROOT / "bench"}
    mounts |= {f"model{i}/": file.parent for i, file in enumerate(models)}
    server = Server(now, 0, mounts=mounts).start()
    try:
        with sync_playwright() as playwright, launched(playwright, options.adapter) as browser:
            page = browser.new_page()
            page.set_default_timeout(READY_MS)
            page.goto(f"{server.url}notices.html")
            common: dict[str, Any] = {"backend": options.backend, "contextLength": options.context_length}
            if options.instant:
                common |= {"backend": "webgpu"} | AS_ON_GPU
                for name in ("before", "now"):
                    run_before_worker(page, mounts[f"{name}/"], instant(True), f"{name}/")
            asked = {
                "builds": {name: f"{server.url}{name}" for name in ("before", "now")},
                "models": [f"{server.url}model{i}/{file.name}" for i, file in enumerate(models)],
                "what": options.what.split(","),
                "rounds": options.rounds,
                "tokens": options.tokens,
                "options": {"before": common | options.options_before, "now": common | options.options_now},
            }
            found: dict[str, Any] = page.evaluate(MEASURE, asked)
    finally:
        server.shutdown()
    return {address.rsplit("/", 1)[1]: figures for address, figures in found.items()}


def table(found: dict[str, Any]) -> list[str]:
    """The figures as lines: medians of both builds, and their ratio."""
    lines = []
    for model, figures in found.items():
        lines.append(f"{model:32}{'before':>10}{'now':>10}{'ratio':>8}")
        for row, cells in figures["rows"].items():
            before, now = (median(cells["values"][name]) for name in ("before", "now"))
            lines.append(f"  {row + ', ' + cells['unit']:30}{before:>10.1f}{now:>10.1f}{now / before:>8.3f}")
        for name, texts in figures["texts"].items():
            same = "the same alone and side by side" if texts["alone"] == texts["beside"] else "differ"
            lines.append(f"  texts of {name}: {same} ({texts['alone']})")
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
