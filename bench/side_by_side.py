"""What requests cost each other: drafts when several share their steps, and a long prompt beside streams.

.venv/bin/python -m bench.side_by_side [--model FILE] [--draft FILE] [--tokens 256] [--prompt 8192] [--runs 3]
    [--json FILE]

Tokens a second in sum, medians: with drafts by prompt lookup, with a draft model as well if `--draft` names one
(bench/make_model.py makes one that agrees), and without drafts:
    repeating   greedy, of a text that repeats one token
    sampled     temperature 0.8, top_p 0.95, a seed each; in random models no draft by prompt lookup is right
Then the milliseconds until the first token of a long prompt, alone and beside four sampled streams; and the longest
time that one of those was without a token, before and beside it.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from bench.headless import add_common, evaluated, write_figures

MEASURE = """async (asked) => {
  const { model, draft, counts, tokens, prompt, short = 128, pause = 1000, runs, options, shared = false } = asked;
  const { Wisp } = await import("/wisp.js");
  const engine = await Wisp.create({ shared });
  const random = (n) => Array.from({ length: n }, () => Math.floor(Math.random() * 250));
  const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
  const answer = async (ids, max_tokens, more) => {
    const begun = performance.now(), made = { first: 0, tokens: 0, gaps: [] };
    let last = 0;
    const stream = await engine.completions.create({
      prompt: ids, max_tokens, temperature: 0, ignore_eos: true, stream: true,
      stream_options: { include_usage: true }, ...more,
    });
    for await (const chunk of stream) {
      made.tokens = chunk.usage?.completion_tokens ?? made.tokens;
      if (!chunk.choices.length) continue;
      const now = performance.now();
      if (last) made.gaps.push([now, now - last]);
      made.first ||= now - begun;
      last = now;
    }
    return made;
  };
  const sampled = (seed) => ({ temperature: 0.8, top_p: 0.95, seed });
  const kinds = { repeating: () => ({ logit_bias: { 77: 100 } }), sampled };
  const result = { counts };
  const byModel = draft ? { draft: { draft: new URL(draft, location.href).href } } : {};
  const ways = { ...byModel, lookup: {}, plain: { speculation: false } };
  for (const [way, more] of Object.entries(ways)) {
    await engine.unload();
    const stats = await engine.load({ model, parallel: Math.max(5, ...counts), ...options, ...more });
    result.backend = stats.backend;
    await answer(random(Math.min(64, short)), Math.min(64, tokens));
    const found = (result[way] = {});
    for (const [kind, how] of Object.entries(kinds)) {
      found[kind] = [];
      for (const count of counts) {
        const totals = [];
        for (let run = 0; run <= runs; run++) { // kernels compile in the first run, or in the pause after it
          const begun = performance.now();
          const all = await Promise.all(Array.from({ length: count }, (_, i) => answer(random(short), tokens, how(i))));
          const made = all.reduce((sum, one) => sum + one.tokens, 0);
          if (run) totals.push((1000 * made) / (performance.now() - begun));
          else await new Promise((resolve) => setTimeout(resolve, pause));
        }
        found[kind].push(median(totals));
      }
    }
  }
  const rows = [];
  for (let run = 0; run <= runs; run++) {
    const alone = (await answer(random(prompt), 2)).first;
    const streams = [1, 2, 3, 4].map((i) => answer(random(short), 4 * tokens, sampled(i)));
    await new Promise((resolve) => setTimeout(resolve, 400));
    const begun = performance.now();
    const beside = (await answer(random(prompt), 2)).first;
    const gaps = (await Promise.all(streams)).flatMap((one) => one.gaps);
    const longest = (list) => Math.max(0, ...list.map(([, ms]) => ms));
    rows.push([alone, beside, longest(gaps.filter(([at]) => at < begun)),
      longest(gaps.filter(([at, ms]) => at >= begun && at - ms < begun + beside))]);
  }
  const names = ["alone", "beside", "gap before", "gap beside"];
  result.long = Object.fromEntries(names.map((name, i) => [name, median(rows.slice(1).map((row) => row[i]))]));
  result.long.first_run = rows[0];
  return result;
}"""


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.side_by_side", description="Measure requests side by side.")
    parser.add_argument("--draft", type=Path, metavar="FILE", help="a draft model")
    parser.add_argument("--counts", default="1,2,4,6,8", help="requests at once (default: 1,2,4,6,8)")
    parser.add_argument("--tokens", type=int, default=256, help="of each answer (default: 256)")
    parser.add_argument("--prompt", type=int, default=8192, help="tokens of the long prompt (default: 8192)")
    add_common(parser, runs=3, context_length=9216)
    options = parser.parse_args(arguments)
    asked: dict[str, Any] = {
        "counts": [int(count) for count in options.counts.split(",")],
        **{name: getattr(options, name) for name in ("tokens", "prompt", "runs")},
        "options": {"backend": options.backend, "contextLength": options.context_length},
    }
    draft: Path | None = options.draft
    mounts = {"draft/": draft.resolve().parent} if draft else {}
    asked["draft"] = f"/draft/{draft.name}" if draft else None
    found = evaluated(MEASURE, options.model, asked, options.adapter, mounts)
    print(table(found))
    write_figures(found, options.json)
    return 0


def table(found: dict[str, Any]) -> str:
    """The figures as text."""
    lines = [f"{found['backend']}; tokens/s in sum (times those without drafts), by requests at once"]
    lines.append(" " * 20 + "".join(f"{count:>18}" for count in found["counts"]))
    for kind in ("repeating", "sampled"):
        for way in (name for name in ("draft", "lookup", "plain") if name in found):
            pairs = zip(found[way][kind], found["plain"][kind], strict=True)
            lines.append(f"{kind:10}{way:10}" + "".join(f"{n:>11.0f} ({n / plain:.2f})" for n, plain in pairs))
    long = found["long"]
    lines.append(f"first token of a long prompt: {long['alone']:.0f} ms alone, {long['beside']:.0f} ms beside streams")
    lines.append(f"longest gap of a stream: {long['gap before']:.0f} ms before, {long['gap beside']:.0f} ms beside it")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
