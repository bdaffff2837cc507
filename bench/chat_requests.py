"""Requests of chats and agents: answers held to a schema, side by side, and the next question of a long chat.

.venv/bin/python -m bench.chat_requests [--model FILE] [--tokens 256] [--chats 4096,8000] [--runs 3] [--json FILE]

Tokens a second in sum, medians, with temperature 0.8 and seeds:
    strings    an array of strings: the mask changes few tokens
    objects    an array of objects: in random models, the mask changes most tokens
of one and of four such requests at once, and of one beside seven without a schema (all of them, and it alone).
Then the milliseconds until the first token of 32, 100 and 200 more tokens after a prompt, sampled without a seed.
"""

import argparse
import sys
from typing import Any

from bench.headless import add_common, evaluated, write_figures

MEASURE = """async ({ model, tokens, chats, more, short = 128, runs, options, shared = false }) => {
  const { Wisp } = await import("/wisp.js");
  const engine = await Wisp.create({ shared });
  const random = (n) => Array.from({ length: n }, () => Math.floor(Math.random() * 250));
  const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
  const answer = async (prompt, max_tokens, options) => {
    const begun = performance.now();
    let first = 0, made = 0;
    const stream = await engine.completions.create({
      prompt, max_tokens, temperature: 0.8, stream: true, stream_options: { include_usage: true }, ...options,
    });
    for await (const chunk of stream) {
      made = chunk.usage?.completion_tokens ?? made;
      if (chunk.choices.length) first ||= performance.now() - begun;
    }
    return { first, made, ms: performance.now() - begun };
  };
  const stats = await engine.load({ model, parallel: 8, speculation: false, ...options });
  const result = { backend: stats.backend, forms: {}, chats: {} };
  const item = {
    type: "object", additionalProperties: false, required: ["name", "kind", "tags"],
    properties: {
      name: { type: "string", maxLength: 40 },
      kind: { enum: ["alpha", "beta", "gamma"] },
      tags: { type: "array", items: { type: "string", maxLength: 12 }, minItems: 2, maxItems: 4 },
    },
  };
  for (const [name, items] of Object.entries({ strings: { type: "string" }, objects: item })) {
    const schema = { type: "array", items, minItems: 1000 };
    const format = { type: "json_schema", json_schema: { name, strict: true, schema } };
    const held = (seed) => answer(random(short), tokens, { seed, response_format: format });
    const free = (seed) => answer(random(short), 2 * tokens, { seed, ignore_eos: true });
    const found = (result.forms[name] = { one: [], four: [], mixed: [], own: [] });
    for (let run = 0; run <= runs; run++) { // the first run compiles kernels
      const timed = async (answers) => {
        const begun = performance.now(), all = await Promise.all(answers);
        return [all, (1000 * all.reduce((sum, { made }) => sum + made, 0)) / (performance.now() - begun)];
      };
      const [, one] = await timed([held(0)]);
      const [, four] = await timed([0, 1, 2, 3].map(held));
      const [all, mixed] = await timed([held(9), ...[1, 2, 3, 4, 5, 6, 7].map(free)]);
      const own = (1000 * all[0].made) / all[0].ms;
      if (run) Object.entries({ one, four, mixed, own }).forEach(([key, value]) => found[key].push(value));
    }
    for (const key in found) found[key] = median(found[key]);
  }
  for (const length of chats) {
    result.chats[length] = {};
    for (const count of more) {
      const firsts = [];
      for (let run = -3; run < runs; run++) {
        const chat = random(length);
        await answer(chat, 2, {});
        const { first } = await answer([...chat, ...random(count)], 2, {});
        if (run >= 0) firsts.push(first);
        else await new Promise((resolve) => setTimeout(resolve, 500)); // kernels of long chats compile meanwhile
      }
      result.chats[length][count] = median(firsts);
    }
  }
  return result;
}"""


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.chat_requests", description="Measure requests of chats.")
    parser.add_argument("--tokens", type=int, default=256, help="of each answer held to a schema (default: 256)")
    parser.add_argument("--chats", default="4096,8000", help="tokens of the chats (default: 4096,8000)")
    add_common(parser, runs=3, context_length=9216)
    options = parser.parse_args(arguments)
    asked = {
        "chats": [int(length) for length in options.chats.split(",")],
        "more": [32, 100, 200],
        "tokens": options.tokens,
        "runs": options.runs,
        "options": {"backend": options.backend, "contextLength": options.context_length},
    }
    found = evaluated(MEASURE, options.model, asked, options.adapter)
    print(table(found))
    write_figures(found, options.json)
    return 0


def table(found: dict[str, Any]) -> str:
    """The figures as text."""
    lines = [f"{found['backend']}; tokens/s of requests held to a schema: one / four / one and seven free (its own)"]
    for name, form in found["forms"].items():
        speeds = " / ".join(f"{form[key]:.0f}" for key in ("one", "four", "mixed"))
        lines.append(f"{name:10}{speeds} ({form['own']:.0f})")
    for length, firsts in found["chats"].items():
        times = ", ".join(f"{ms:.1f} ms for {count}" for count, ms in firsts.items())
        lines.append(f"first token after {length} tokens and more: {times}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
