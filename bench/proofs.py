"""What the proof of kernels costs Python before they run (docs/contributing/proof-of-kernels.md).

.venv/bin/python -m bench.proofs [CHECKOUT ...] [--runs 5]

Milliseconds of a processor in new pages of Pyodide, medians: the cases with numpy's results, and their upload. The
plans are those of a large GPU; a software GPU takes the buffers. Checkouts are measured in turn (default: this one).
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from playwright.sync_api import Browser, CDPSession, sync_playwright

from tests.support.bare_pyodide import Site
from tools import python_zip
from tools.browser import launch_options
from tools.paths import ROOT

SHAPES = ("qwen3-0.6b", "llama-3.2-1b", "gemma-3-1b")
STAGES = ("make_cases", "upload")
BENCH = ROOT / "bench"
OURS = {f"bench/{name}.py": BENCH / f"{name}.py" for name in ("__init__", "shapes", "proofs_page")}
PACK = "import sys; from tools import python_zip as z; sys.stdout.buffer.write(z.pack(z.sources()))"
START = """async ([url, archive, shape]) => {
  const { loadPyodide } = await import(`${url}pyodide/pyodide.mjs`);
  globalThis.pyodide = await loadPyodide({ indexURL: `${url}pyodide/` });
  await pyodide.loadPackage("numpy", { messageCallback() {} });
  pyodide.unpackArchive(await (await fetch(url + archive)).arrayBuffer(), "zip", { extractDir: "/wisp" });
  pyodide.unpackArchive(await (await fetch(`${url}bench.zip`)).arrayBuffer(), "zip", { extractDir: "/wisp" });
  pyodide.runPython(`import sys; sys.path.insert(0, "/wisp")`);
  globalThis.wispProof = await import(`${url}dispatches.js`);
  globalThis.proof = await pyodide.pyimport("bench.proofs_page").begin(shape);
}"""
RUN = "(stage) => proof[stage]()"


def cpu_ms(process: int) -> float:
    """Milliseconds that a process's main thread has computed."""
    return int(Path(f"/proc/{process}/task/{process}/schedstat").read_text(encoding="utf-8").split()[0]) / 1e6


def measured(browser: Browser, session: CDPSession, given: list[str]) -> list[float]:
    """The milliseconds of each stage in a new page."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(given[0])
    page.evaluate(START, given)
    processes: list[dict[str, Any]] = session.send("SystemInfo.getProcessInfo")["processInfo"]
    renderer = max((process["id"] for process in processes if process["type"] == "renderer"), key=cpu_ms)
    found = []
    for stage in STAGES:
        before = cpu_ms(renderer)
        page.evaluate(RUN, stage)
        found.append(cpu_ms(renderer) - before)
    context.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, default=[ROOT])
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    found: dict[tuple[str, Path], list[list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder, Site(Path(folder)) as site, sync_playwright() as playwright:
        site.add("bench.zip", python_zip.pack({name: path.read_bytes() for name, path in OURS.items()}))
        site.add("dispatches.js", (ROOT / "py_engine" / "proof" / "dispatches.js").read_bytes())
        for i, checkout in enumerate(args.checkouts):
            packed = subprocess.run([sys.executable, "-c", PACK], cwd=checkout, capture_output=True, check=True)
            site.add(f"{i}.zip", packed.stdout)
        browser = playwright.chromium.launch(**launch_options())
        session = browser.new_browser_cdp_session()
        for _ in range(args.runs):
            for shape in SHAPES:
                for i, checkout in enumerate(args.checkouts):
                    times = measured(browser, session, [site.url, f"{i}.zip", shape])
                    found.setdefault((shape, checkout), []).append(times)
        browser.close()
    for (shape, checkout), runs in found.items():
        stages = ", ".join(
            f"{name} {median(times):.0f}" for name, times in zip(STAGES, zip(*runs, strict=True), strict=True)
        )
        print(f"{shape}, {checkout}: {median(map(sum, runs)):.0f} ms ({stages})")


if __name__ == "__main__":
    main()
