"""What LoRA adapters cost: requests side by side, each with an adapter of its own, against the model without any.

.venv/bin/python -m bench.adapters [--model FILE] [--count 4] [--rank 16] [--tokens 256] [--runs 5] [--json FILE]

Random adapters in F16 for all matrices of the layers are written for the model. Tokens a second, in sum, medians:
    none        the model is loaded without adapters
    off         with adapters; no request uses one
    same        every request uses the first one
    own         every request uses another one
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bench.headless import add_common, evaluated, write_figures
from py_engine.files.gguf_header import parse
from tests.golden.make.adapters import write_adapter

HEADER = 64 << 20  # bytes of a file in which its header ends
MEASURE = """async ({ model, adapters, requests, tokens, runs, options }) => {
  const { Wisp } = await import("/wisp.js");
  const engine = await Wisp.create({ shared: false });
  const random = () => Array.from({ length: 16 }, () => Math.floor(Math.random() * 256));
  const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
  const speed = async (n, lora) => {
    const ask = (i) => engine.completions.create({
      prompt: random(), max_tokens: tokens, temperature: 0, ignore_eos: true, ...(lora && { lora: lora(i) }),
    });
    const once = async () => {
      const started = performance.now();
      const answers = await Promise.all(Array.from({ length: n }, (_, i) => ask(i)));
      const made = answers.reduce((sum, { usage }) => sum + usage.completion_tokens, 0);
      return (1000 * made) / (performance.now() - started);
    };
    await once(); // compiles kernels, and reserves the sequences
    await new Promise((resolve) => setTimeout(resolve, 1500)); // lists for short prompts are compiled meanwhile
    await once();
    const found = [];
    for (let run = 0; run < runs; run++) found.push(await once());
    return median(found);
  };
  const result = { requests };
  adapters = adapters.map((path) => new URL(path, location.href).href);
  const shared = { model, parallel: Math.max(4, requests), speculation: false, ...options };
  const count = adapters.length;
  for (const [when, lora, ways] of [
    ["without adapters", undefined, { none: undefined }],
    ["with adapters", adapters, {
      off: () => [], same: () => [{ id: 0, scale: 1 }], own: (i) => [{ id: i % count, scale: 1 }],
    }],
  ]) {
    await engine.unload();
    const started = performance.now();
    const stats = await engine.load({ ...shared, ...(lora && { lora }) });
    result[when] = {
      load_ms: performance.now() - started, backend: stats.backend, adapter: stats.adapter, memory: stats.memory,
      dispatches_per_token: stats.dispatches_per_token,
    };
    for (const [name, chosen] of Object.entries(ways)) {
      result[name] = { one: await speed(1, chosen), together: await speed(requests, chosen) };
    }
  }
  return result;
}"""


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.adapters", description="Measure adapters.")
    parser.add_argument("--count", type=int, default=4, help="adapters, and requests side by side (default: 4)")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=256, help="of each answer (default: 256)")
    add_common(parser, runs=5, context_length=1024)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        adapters = write_adapters(options.model, Path(folder), options.count, options.rank)
        asked = {
            "adapters": [f"/adapters/{path.name}" for path in adapters],
            **{name: getattr(options, name) for name in ("tokens", "runs")},
            "requests": options.count,
            "options": {"backend": options.backend, "contextLength": options.context_length},
        }
        found = evaluated(MEASURE, options.model, asked, options.adapter, {"adapters/": Path(folder)})
    print(table(found))
    write_figures(found, options.json)
    return 0


def write_adapters(model: Path, folder: Path, count: int, rank: int) -> list[Path]:
    """Random adapters for all matrices of a model's layers, which change it little."""
    with model.open("rb") as file:
        header = parse(file.read(HEADER), model.stat().st_size)
    matrices = {
        name: info.shape for name, info in header.tensors.items() if name.startswith("blk.") and len(info.shape) == 2
    }
    random, paths = np.random.default_rng(1), []
    for number in range(count):
        pairs = {
            name: (
                random.standard_normal((rank, cols), np.float32) * np.float32(cols**-0.5),
                random.standard_normal((rows, rank), np.float32) * np.float32(0.001),
            )
            for name, (cols, rows) in matrices.items()
        }
        paths.append(folder / f"adapter-{number}.gguf")
        write_adapter(paths[-1], header.architecture, float(rank), pairs, "F16")
    return paths


def table(found: dict[str, Any]) -> str:
    """The figures as text."""
    lines = []
    for when in ("without adapters", "with adapters"):
        one = found[when]
        weights = one["memory"]["weights"] / 2**20
        lines.append(
            f"{when}: {one['backend']}, {weights:.0f} MiB of weights, {one['dispatches_per_token']} dispatches a token"
        )
    lines.append(f"{'tokens/s':10} {'1 request':>12} {found['requests']:>3} requests")
    for name in ("none", "off", "same", "own"):
        speeds, base = found[name], found["none"]
        shares = [f"{speeds[kind]:8.1f} {speeds[kind] / base[kind]:4.0%}" for kind in ("one", "together")]
        lines.append(f"{name:10} {'   '.join(shares)}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
