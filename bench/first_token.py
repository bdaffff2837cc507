"""Where the time until the first token of a short prompt goes, or that until an embedding, on the host.

.venv/bin/python -m bench.first_token [--model FILE] [--prompt 16] [--chat | --embedding] [--instant] [--runs 100]
    [--json FILE]

The worker's calls of the browser divide each request into parts: bench/first_token.js notes them. `--instant` measures
the host where there is no GPU: dispatches have no workgroups, so the GPU does nothing, and kernels are those of a GPU.
Prints medians, and the sixth of the runs that were quickest in each part: a busy machine delays the others.
"""

import argparse
import sys
from pathlib import Path
from statistics import median
from typing import Any

from bench.headless import AS_ON_GPU, add_common, evaluated, instant, write_figures

PROBE = Path(__file__).with_suffix(".js")
QUICK = 6  # one of so many runs is quicker than the second figure
MEASURE = """async ({ model, prompt, chat, embedding, runs, options }) => {
  const { Wisp } = await import("/wisp.js");
  const channel = new BroadcastChannel("wisp.first_token");
  const notes = () => new Promise((done) => {
    channel.onmessage = ({ data }) => done(data);
    channel.postMessage(null);
  });
  const engine = await Wisp.create({ shared: false });
  const { backend, dispatches_per_token } = await engine.load({ model, ...options });
  const ids = () => Array.from({ length: prompt }, () => Math.floor(Math.random() * 250));
  const asked = { max_tokens: 1, temperature: 0, stream: true };
  const message = () => ({ role: "user", content: ids().join(" ").slice(0, prompt) });
  const ask = () => chat
    ? engine.chat.completions.create({ ...asked, messages: [message()] })
    : engine.completions.create({ ...asked, prompt: ids() });
  const now = () => performance.timeOrigin + performance.now();
  const request = async () => {
    const begun = now();
    let first = 0;
    if (embedding) {
      await engine.embeddings.create({ input: [ids()] });
      return { begun, first: now() };
    }
    for await (const { choices: [choice] } of await ask())
      if (choice?.text || choice?.delta?.content || choice?.finish_reason) first ||= now();
    return { begun, first };
  };
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const warm = Date.now() + 10_000; // kernels for short prompts are compiled meanwhile
  for (let i = 0; i < 10 || Date.now() < warm; i++) {
    await request();
    await pause(100);
  }
  await notes();
  const found = [];
  for (let i = 0; i < runs; i++) {
    const times = await request();
    await pause(5);
    found.push({ ...times, notes: await notes() });
  }
  return { backend, dispatches_per_token, submits: (await engine.stats()).last?.submits, runs: found };
}"""


def parts(run: dict[str, Any]) -> dict[str, float]:
    """The milliseconds of each part of one request."""

    def times(what: str) -> list[float]:
        return [at for noted, at, _ in run["notes"] if noted == what and at <= run["first"]]

    received, posted = times("received")[0], times("posted")[-1]
    read = max(at for at in times("read") if at < posted)
    encoded = min(at for at in times("encode") if at > received)
    submitted = next(at for at in times("submitted") if at > encoded)
    return {
        "page to worker": received - run["begun"],
        "request to first encoder": encoded - received,
        "encode, submit": submitted - encoded,
        "until the token is read": read - submitted,
        "token to chunk": posted - read,
        "worker to page": run["first"] - posted,
        "host": run["first"] - read + submitted - run["begun"],
        "all": run["first"] - run["begun"],
    }


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.first_token", description="Measure the first token.")
    parser.add_argument("--prompt", type=int, default=16, help="tokens, of a chat characters (default: 16)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--chat", action="store_true", help="a chat, in place of a completion of token ids")
    kind.add_argument("--embedding", action="store_true", help="the embedding of the prompt")
    parser.add_argument("--instant", action="store_true", help="let the GPU do nothing, to measure the host")
    add_common(parser, runs=100, context_length=2048)
    options = parser.parse_args(arguments)
    load = {"backend": options.backend, "contextLength": options.context_length}
    if options.instant:
        load |= {"backend": "webgpu"} | AS_ON_GPU
    asked = {name: getattr(options, name) for name in ("prompt", "chat", "embedding", "runs")} | {"options": load}
    probe = instant(options.instant) + PROBE.read_text(encoding="utf-8")
    found = evaluated(MEASURE, options.model, asked, options.adapter, in_worker=probe)
    print(table(found))
    write_figures(found, options.json)
    return 0


def table(found: dict[str, Any]) -> str:
    """The figures as text."""
    runs = [parts(run) for run in found["runs"]]
    submits = f", {found['submits']} submits" if found.get("submits") else ""
    lines = [
        f"{found['backend']}, {found['dispatches_per_token']} dispatches per token{submits}; ms",
        f"{'':28}{'median':>10}{'quick':>10}",
    ]
    for name in runs[0]:
        values = sorted(run[name] for run in runs)
        lines.append(f"{name:28}{median(values):10.2f}{values[len(values) // QUICK]:10.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
