"""What the monitor costs: `.venv/bin/python -m bench.monitor_cost`, on the CPU backend.

Prints the time of one sample, and the time of an answer with the monitor's samples against one without, in turns.
"""

import sys

from playwright.sync_api import sync_playwright

from bench.headless import READY_MS, launched
from tools import dist
from tools.serve import Server

MEASURE = """async () => {
  const { Wisp } = await import("/wisp.js");
  const engine = await Wisp.create();
  await engine.load({ backend: "cpu" });
  const request = { prompt: "Once", max_tokens: 60, ignore_eos: true, temperature: 0, cache_prompt: false };
  const timed = async (work) => {
    const started = performance.now();
    await work();
    return performance.now() - started;
  };
  const answer = () => timed(() => engine.completions.create(request));
  const samples = 200;
  await answer();
  const sample = await timed(async () => {
    for (let i = 0; i < samples; i++) await engine.stats();
  });
  const without = [], sampled = [];
  for (let i = 0; i < 8; i++) {
    without.push(await answer());
    const monitor = engine.monitor();
    sampled.push(await answer());
    monitor.stop();
  }
  return { sample: sample / samples, ratio: Math.min(...sampled) / Math.min(...without) };
}"""


def main() -> int:
    """Measure once and print."""
    server = Server(dist.made(), 0).start()
    try:
        with sync_playwright() as playwright, launched(playwright, "swiftshader") as browser:
            page = browser.new_page()
            page.set_default_timeout(READY_MS)
            page.goto(f"{server.url}notices.html")
            found = page.evaluate(MEASURE)
    finally:
        server.shutdown()
    print(f"one sample: {found['sample']:.1f} ms, once a second: {found['sample'] / 10:.2f} % of the worker's time")
    print(f"an answer with samples takes {found['ratio']:.3f} times as long as one without (quickest of 8 each)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
