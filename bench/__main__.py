"""Measures a model in a headless browser, with the page dist/bench.html.

python3 build.py bench [--model ID|URL|FILE] [--backend auto|webgpu|cpu] [--runs N] [--prompts 32,512] [--peer]
"""

import argparse
import json
import os
import sys
from pathlib import Path

from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import sync_playwright

from bench import headless, report
from tools.failure import Failure


def main(arguments: list[str]) -> int:
    """Measure and print; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        with sync_playwright() as playwright, headless.launched(playwright, options.adapter) as browser:
            load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
            result = headless.measure(browser, options) | {"load_average": load}
            if options.peer:
                result["peers"] = headless.measure_peers(browser, options, result["context_length"])
    except Failure as failure:
        print(f"build.py: {failure}", file=sys.stderr)
        return 1
    except PlaywrightError as error:
        print(f"build.py: {error.message.splitlines()[0].removeprefix('Page.evaluate: ')}", file=sys.stderr)
        return 1
    print(report.text(result))
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="build.py bench", description="Measure in a headless browser.")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to FILE")
    parser.add_argument("--model", help="a catalog id, an address or a .gguf file (default: the embedded one)")
    parser.add_argument("--backend", choices=["auto", "webgpu", "cpu"], default="auto")
    parser.add_argument(
        "--adapter", choices=["swiftshader", "lavapipe"], help="a software GPU (default: the machine's GPU)"
    )
    parser.add_argument("--runs", type=int, default=5, help="runs of each measurement; the median counts (default: 5)")
    parser.add_argument("--prompts", type=_lengths, default=[32, 512], metavar="N,N", help="default: 32,512")
    parser.add_argument("--contexts", type=_lengths, default=[16, 1024], metavar="N,N", help="default: 16,1024")
    parser.add_argument("--tokens", type=int, default=64, help="tokens to decode in each run (default: 64)")
    parser.add_argument("--threads", type=int, help="on the CPU (default: all)")
    parser.add_argument("--context-length", type=int, help="default: the model's own")
    parser.add_argument("--peer", action="store_true", help="also measure wllama on the same file, and compare")
    return parser


def _lengths(text: str) -> list[int]:
    numbers = [int(word) for word in text.replace(",", " ").split()]
    if any(number < 1 for number in numbers):
        raise argparse.ArgumentTypeError("lengths must be positive numbers of tokens")
    return numbers


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
