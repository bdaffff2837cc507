"""What a draft model gains on chats, and what a bad one costs.

.venv/bin/python -m bench.drafts [--draft FILE] [--model FILE] [--kinds chats,stories] [--runs 5] [--json FILE]

Tokens a second of whole answers, medians, each question alone, by turns on the same model loaded in four ways:
    drafts     with the draft model
    wrong      with a copy of it whose tokens are mixed up, so that nothing is accepted: what a trial costs
    lookup     drafts from the text so far, where they pay
    plain      no drafts
`chats` are those of tests/golden/wisp-mini-chat.json, whose answers are short; `stories` are longer.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from bench.headless import DEFAULT, add_common, evaluated, write_figures
from py_engine.files.gguf_header import parse
from tools.paths import ROOT

DRAFT = DEFAULT.with_name("wisp-mini-draft-q4_0.gguf")
CHATS = ROOT / "tests" / "golden" / "wisp-mini-chat.json"
STORIES = (
    "Tell me a story about a fox named Pip.",
    "Write a short story about a dragon named Ember who finds a silver key.",
    "Please tell me a story about a robot called Bolt.",
    "Tell me a story about a girl named Nora who finds an old map.",
    "Write a story about an owl called Hoot.",
    "Tell me a short story about friendship.",
)
HEADER = 64 << 20  # bytes of a file in which its header ends
EMBEDDING = "token_embd.weight"
KINDS = ("chats", "stories")
WAYS = ("drafts", "wrong", "lookup", "plain")
SAMPLINGS = {
    "greedy": {"temperature": 0},
    "page": {"temperature": 0.4, "seed": 1},
    "top_p": {"temperature": 0.8, "top_p": 0.95, "seed": 1},
    "api": {"seed": 1},
}
MEASURE = """async ({ model, ways, kinds, samplings, tokens, runs, options }) => {
  const { Wisp } = await import("/wisp.js");
  const engine = await Wisp.create({ shared: false, memoryBudget: 64 * 2 ** 30 });
  const median = (values) => values.toSorted((a, b) => a - b)[values.length >> 1];
  const result = { kinds: {} };
  for (const [name, { draft, ...more }] of Object.entries(ways)) {
    const files = { model, ...(draft && { draft: new URL(draft, location.href).href }) };
    const stats = await engine.load({ name, ...files, ...options, ...more });
    Object.assign(result, { backend: stats.backend, adapter: stats.adapter?.description });
  }
  const totals = async (way) => ({ ...(await engine.stats({ model: way })).totals });
  const answer = async (way, chat, sampling) => {
    const before = await totals(way), begun = performance.now();
    const { choices } = await engine.chat.completions.create({
      model: way, messages: chat.messages, ...(chat.tools && { tools: chat.tools }), max_tokens: tokens, ...sampling,
    });
    const ms = performance.now() - begun, after = await totals(way);
    const more = Object.fromEntries(Object.keys(after).map((key) => [key, after[key] - before[key]]));
    const unlessId = (key, value) => (key === "id" ? undefined : value); // calls have random ids
    return { ...more, ms, text: JSON.stringify(choices[0].message, unlessId) };
  };
  const sum = (rows, key) => rows.reduce((total, row) => total + row[key], 0);
  const made = (rows) => sum(rows, "completion_tokens");
  for (const [kind, chats] of Object.entries(kinds)) {
    for (const [how, sampling] of Object.entries(samplings)) {
      const seen = Object.fromEntries(Object.keys(ways).map((way) => [way, []]));
      let different = 0;
      for (let run = 0; run <= runs; run++) { // the first run compiles kernels
        const rows = Object.fromEntries(Object.keys(ways).map((way) => [way, []]));
        for (const chat of chats) {
          const order = run % 2 ? Object.keys(ways) : Object.keys(ways).reverse();
          for (const way of order) rows[way].push(await answer(way, chat, sampling));
          const text = rows[order[0]].at(-1).text;
          different += order.some((way) => rows[way].at(-1).text !== text);
        }
        for (const way of Object.keys(ways)) if (run) seen[way].push(rows[way]);
      }
      const figures = (all) => {
        const rows = all.flat(), drafted = sum(rows, "model_drafted");
        return {
          decode: median(all.map((one) => (1000 * (made(one) - one.length)) / sum(one, "decode_ms"))),
          whole: median(all.map((one) => (1000 * made(one)) / sum(one, "ms"))),
          accepted: drafted ? sum(rows, "model_accepted") / drafted : null,
          tokens_a_step: sum(rows, "draft_steps") ? sum(rows, "draft_tokens") / sum(rows, "draft_steps") : null,
          drafted: sum(rows, "draft_tokens") / made(rows),
          tokens: made(all[0]),
        };
      };
      const of = ([way, all]) => [way, figures(all)];
      (result.kinds[kind] ??= {})[how] = { different, ...Object.fromEntries(Object.entries(seen).map(of)) };
    }
  }
  return result;
}"""


def main(arguments: list[str]) -> int:
    """Measure and print; the exit status is 1 where a text depends on drafts."""
    parser = argparse.ArgumentParser(prog="python -m bench.drafts", description="Measure drafts by a model.")
    parser.add_argument("--draft", type=Path, default=DRAFT, help="a .gguf file of the same vocabulary")
    parser.add_argument("--draft-tokens", type=int, help="of a draft at most (default: the engine's)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="default: chats,stories")
    parser.add_argument("--samplings", default=",".join(SAMPLINGS), help=f"default: {','.join(SAMPLINGS)}")
    parser.add_argument("--chats", type=int, help="of each kind at most (default: all)")
    parser.add_argument("--tokens", type=int, default=256, help="of an answer at most (default: 256)")
    add_common(parser, runs=5, context_length=2048)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        good, wrong = Path(folder) / "draft.gguf", Path(folder) / "wrong.gguf"
        good.write_bytes(options.draft.read_bytes())
        wrong.write_bytes(mixed_up(good.read_bytes()))
        given = {"draftTokens": options.draft_tokens} if options.draft_tokens else {}
        asked = {
            "ways": ways("/drafts/draft.gguf", "/drafts/wrong.gguf", given),
            "kinds": {kind: questions(kind)[: options.chats] for kind in options.kinds.split(",")},
            "samplings": {name: SAMPLINGS[name] for name in options.samplings.split(",")},
            **{name: getattr(options, name) for name in ("tokens", "runs")},
            "options": {"backend": options.backend, "contextLength": options.context_length},
        }
        found = evaluated(MEASURE, options.model, asked, options.adapter, {"drafts/": Path(folder)})
    print(table(found))
    write_figures(found, options.json)
    return int(any(one["different"] for kind in found["kinds"].values() for one in kind.values()))


def ways(good: str, wrong: str, given: dict[str, Any]) -> dict[str, Any]:
    """How the model is loaded, by the names of WAYS. `given`: further options with a draft model."""
    by_model = [{"draft": draft, **given} for draft in (good, wrong)]
    return dict(zip(WAYS, [*by_model, {}, {"speculation": False}], strict=True))


def questions(kind: str) -> list[dict[str, Any]]:
    """The chats of a kind: messages and tools."""
    if kind == "stories":
        return [{"messages": [{"role": "user", "content": text}], "tools": None} for text in STORIES]
    chats = json.loads(CHATS.read_text(encoding="utf-8"))["chats"]
    return [{key: chat[key] for key in ("messages", "tools")} for chat in chats]


def mixed_up(file: bytes) -> bytes:
    """A GGUF file whose embedding has each token's row at another token."""
    header = parse(file[:HEADER], len(file))
    tensor = header.tensors[EMBEDDING]
    at = header.data_offset + tensor.offset
    data = np.frombuffer(file, np.uint8).copy()
    rows = data[at : at + tensor.nbytes].reshape(tensor.shape[-1], -1)
    rows[:] = np.random.default_rng(1).permutation(rows)
    return data.tobytes()


def table(found: dict[str, Any]) -> str:
    """The figures as text: tokens a second while decoding, and from the request to the end; by those without drafts."""
    lines = [f"{found['backend']} {found.get('adapter') or ''}; tokens/s while decoding | of whole answers (by plain)"]
    for kind, samplings in found["kinds"].items():
        for how, one in samplings.items():
            plain, texts = one["plain"], f"{one['different']} texts differ" if one["different"] else "equal texts"
            lines.append(f"{kind}, {how}: {plain['tokens']} tokens, {texts}")
            for way in WAYS:
                cells = [f"{one[way][of]:8.1f} ({one[way][of] / plain[of]:.2f})" for of in ("decode", "whole")]
                lines.append(f"  {way:8}{' |'.join(cells)}{_drafted(one[way])}")
    return "\n".join(lines)


def _drafted(figures: dict[str, Any]) -> str:
    """How many tokens were drafted, and with which success."""
    if not figures["tokens_a_step"]:
        return ""
    accepted = "" if figures["accepted"] is None else f", {figures['accepted']:.0%} of the drafts accepted"
    return f"  {figures['drafted']:.0%} of the tokens with drafts, {figures['tokens_a_step']:.2f} a step{accepted}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
