"""llama.cpp's own server beside Wisp: the same file, the same requests, one after the other in each run.

    llama-server -m FILE -ngl 99 -c 81920 -np 8                     (llama.cpp's; any build, on this machine)
    .venv/bin/python -m bench.native --server http://127.0.0.1:8080 --model FILE [--prompts 512,8192] [--json FILE]

Both sides are measured by the client's clock on streamed completions of random token ids, greedy, without a prompt
cache. Tokens a second, medians:
    prefill N       N / the time until the first token
    decode at N     after the first token of a prompt of N
    N requests      side by side, prompts of 16: all tokens / the time until the last one
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from playwright.async_api import Page, async_playwright

from bench.headless import write_figures
from bench.report import table
from tools import dist
from tools.browser import launch_options
from tools.catalog import MODELS
from tools.failure import Failure
from tools.serve import Server

TIMEOUT_S = 600
LEAST_MS = 0.1  # that a clock tells apart
SHORT = 16  # tokens of a prompt whose reading takes next to no time
LOAD = """async (request) => {
  const { Wisp } = await import("/wisp.js");
  globalThis.engine = await Wisp.create({ shared: false });
  return engine.load(request);
}"""
ASK = """async ({ prompts, tokens }) => {
  const one = async (prompt) => {
    const started = performance.now();
    let first;
    const stream = await engine.completions.create({
      prompt, max_tokens: tokens, temperature: 0, ignore_eos: true, stream: true,
    });
    for await (const _ of stream) first ??= performance.now() - started;
    return [first, performance.now() - started]; // all tokens of a short answer may come at once
  };
  const started = performance.now();
  const found = await Promise.all(prompts.map(one));
  return { total: performance.now() - started, answers: found };
}"""


@dataclass(frozen=True)
class Asked:
    """Requests that begin together: the tokens of each prompt, and of each answer."""

    prompt: int
    tokens: int
    requests: int = 1


@dataclass(frozen=True)
class Times:
    """Milliseconds from the first request on until the last token of all, and of the first answer's first and last."""

    total: float
    first: float
    last: float


Ask = Callable[[list[list[int]], int], Coroutine[Any, Any, Times]]


def prompts(asked: Asked) -> list[list[int]]:
    """Prompts of random ids, which every vocabulary has."""
    return [[random.randrange(16, 250) for _ in range(asked.prompt)] for _ in range(asked.requests)]


def native(client: httpx.AsyncClient) -> Ask:
    """Requests to llama.cpp's server (POST /completion)."""

    async def one(prompt: list[int], tokens: int) -> tuple[float, float]:
        body = {
            **{"prompt": prompt, "n_predict": tokens, "temperature": 0, "top_k": 1},
            **{"ignore_eos": True, "cache_prompt": False, "stream": True},
        }
        started, times = time.perf_counter(), []
        async with client.stream("POST", "/completion", json=body) as response:
            if response.status_code != 200:
                raise Failure(f"The server answered {response.status_code}: {(await response.aread()).decode()[:200]}")
            async for line in response.aiter_lines():
                if line.startswith("data: "):  # the last one has no token, which costs nothing
                    times.append(1000 * (time.perf_counter() - started))
        return times[0], times[-1]

    async def ask(prompts: list[list[int]], tokens: int) -> Times:
        started = time.perf_counter()
        answers = await asyncio.gather(*(one(prompt, tokens) for prompt in prompts))
        return Times(1000 * (time.perf_counter() - started), *answers[0])

    return ask


def wisp(page: Page) -> Ask:
    """Requests to the engine of a page."""

    async def ask(prompts: list[list[int]], tokens: int) -> Times:
        found = await page.evaluate(ASK, {"prompts": prompts, "tokens": tokens})
        return Times(found["total"], *found["answers"][0])

    return ask


def speeds(asked: Asked, times: Times) -> dict[str, float]:
    """Tokens a second, by what they measure."""
    if asked.requests > 1:
        return {f"{asked.requests} requests": 1000 * asked.requests * asked.tokens / times.total}
    decoding = max(times.last - times.first, LEAST_MS)
    found = {f"decode at {asked.prompt}": 1000 * (asked.tokens - 1) / decoding}
    return {f"prefill {asked.prompt}": 1000 * asked.prompt / times.first, **found}


async def compare(sides: dict[str, Ask], cases: Sequence[Asked], runs: int) -> dict[str, dict[str, float]]:
    """Medians of tokens a second: {what: {side: speed}}."""
    samples: dict[str, dict[str, list[float]]] = {}
    for asked in cases:
        for ask in sides.values():  # compiles kernels and takes memory
            await ask(prompts(replace(asked, tokens=min(asked.tokens, 8))), min(asked.tokens, 8))
        for _ in range(runs):
            for side, ask in sides.items():
                for what, speed in speeds(asked, await ask(prompts(asked), asked.tokens)).items():
                    samples.setdefault(what, {}).setdefault(side, []).append(speed)
    return {what: {side: median(found) for side, found in both.items()} for what, both in samples.items()}


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure both sides."""
    cases = [Asked(length, options.tokens) for length in options.prompts]
    cases += [Asked(SHORT, options.tokens, options.requests)] if options.requests > 1 else []
    authorization = {"Authorization": f"Bearer {options.key}"}
    async with httpx.AsyncClient(base_url=options.server, timeout=TIMEOUT_S, headers=authorization) as client:
        await native(client)([[SHORT]], 2)  # tells at once if there is no such server
        async with opened(options, max(case.prompt + case.tokens for case in cases) + 64) as (page, backend):
            found = await compare({"native": native(client), "wisp": wisp(page)}, cases, options.runs)
    return {"model": options.model.stem, "backend": backend, "runs": options.runs, "tokens_per_second": found}


@asynccontextmanager
async def opened(options: argparse.Namespace, context: int) -> AsyncIterator[tuple[Page, str]]:
    """A page with the model loaded as `globalThis.engine`, and the engine's backend."""
    server = Server(dist.made(), 0, mounts={"model/": options.model.resolve().parent}).start()
    try:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(**launch_options())
            page = await browser.new_page()
            page.set_default_timeout(1000 * TIMEOUT_S)
            await page.goto(f"{server.url}notices.html")
            request = {
                **{"model": f"{server.url}model/{options.model.name}", "contextLength": context, "clampContext": True},
                **{"parallel": max(1, options.requests), "backend": options.backend, "speculation": False},
            }
            yield page, (await page.evaluate(LOAD, request))["backend"]
            await browser.close()
    finally:
        server.shutdown()
        server.server_close()


def text(found: dict[str, Any]) -> str:
    """The figures as a table, with Wisp's speed in parts of native's."""
    rows = [["tokens/s", "llama.cpp", "Wisp", "ratio"]]
    for what, both in found["tokens_per_second"].items():
        ratio = both["wisp"] / both["native"]
        rows.append([what, f"{both['native']:,.0f}", f"{both['wisp']:,.0f}", f"{ratio:.2f}"])
    return f"{found['model']}, Wisp on {found['backend']}, medians of {found['runs']}\n\n{table(rows)}"


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.native", description="Compare with llama.cpp's server.")
    numbers = lambda given: [int(number) for number in given.split(",")]  # noqa: E731
    parser.add_argument("--server", default="http://127.0.0.1:8080", help="of llama.cpp, with the same file loaded")
    parser.add_argument("--key", default="none", help="the server's API key, if it has one")
    parser.add_argument("--model", type=Path, default=MODELS / "wisp-mini-q4_0.gguf", help="a .gguf file")
    parser.add_argument("--prompts", type=numbers, default=[128, 512, 8192], help="lengths (default: 128,512,8192)")
    parser.add_argument("--tokens", type=int, default=128, help="of each answer (default: 128)")
    parser.add_argument("--requests", type=int, default=8, help="side by side; 1: none (default: 8)")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--backend", choices=["auto", "webgpu", "cpu"], default="auto", help="of Wisp")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args(arguments)
    try:
        found = asyncio.run(measure(options))
    except (Failure, httpx.HTTPError) as error:
        print(f"bench.native: {error or type(error).__name__}", file=sys.stderr)
        return 1
    print(text(found))
    write_figures(found, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
