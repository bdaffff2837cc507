"""What a GPU's subgroup matrices give: in registers, and in a product with parts of it left out (bench/matrices.js).

.venv/bin/python -m bench.matrices

TFLOP/s, medians of 5. Chromium is started with the flag for subgroup matrices.
"""

import sys

from playwright.sync_api import sync_playwright

from bench.headless import launched
from tools import dist
from tools.paths import ROOT
from tools.serve import Server

MEASURE = (
    "async (source) => (await import(URL.createObjectURL(new Blob([source], { type: 'text/javascript' })))).measure()"
)


def main() -> int:
    """Measure and print."""
    server = Server(dist.made(), 0).start()
    try:
        with sync_playwright() as playwright, launched(playwright, None) as browser:
            page = browser.new_page(bypass_csp=True)
            page.goto(f"{server.url}notices.html")
            found = page.evaluate(MEASURE, (ROOT / "bench" / "matrices.js").read_text())
    finally:
        server.shutdown()
        server.server_close()
    if "error" in found:
        print(found["error"])
        return 1
    for name, rate in found.items():
        print(f"{name:24} {rate:6.0f} TFLOP/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
