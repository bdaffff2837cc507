"""How long hard forms take until they are refused or accepted, in a page, with a vocabulary of 151,936 tokens.

.venv/bin/python -m bench.refusals [--runs 3] [--random 40] [--seed 1] [--own] [--json FILE]

The forms are those that tests/unit/test_constraint_limits.py and tests/e2e/test_slow_grammars.py have, and nested
repetitions at random. Each is validated; the quickest of the runs counts, because others may use the machine. The
first run's time is given for forms that are accepted: later ones find them compiled.
"""

import argparse
import sys
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from bench.headless import evaluated, write_figures
from tests.e2e.test_slow_grammars import QUICK, SLOW
from tests.unit.test_constraint_limits import REFUSED
from tests.unit.test_constraint_limits import SLOW as TRIED
from tools.paths import ROOT

VOCABULARY = ROOT / "tests" / "golden" / "vocab" / "ggml-vocab-qwen2.gguf"
MEASURE = """async ({ model, forms, runs, shared }) => {
  const { Wisp } = await import("/wisp.js");
  const engine = await Wisp.create({ shared });
  const bytes = await (await fetch(model)).arrayBuffer();
  await engine.load({ model: new File([bytes], "qwen2.gguf"), vocabOnly: true });
  await engine.validate({ regex: "a" }, "");
  const found = forms.map(() => ({ times: [] }));
  for (let run = 0; run < runs; run++)
    for (const [i, form] of forms.entries()) {
      if (found[i].answer === "accepted") continue;
      const begun = performance.now();
      found[i].answer = await engine.validate(form, "").then(() => "accepted", (error) => error.code);
      found[i].times.push(performance.now() - begun);
    }
  return { forms: found };
}"""
ATOMS = ("[a-z]", "[a-zA-Z ]", "[ -~]", "[^a]", r"[^\\n]", ".", "[0-9]", '"a"', '"é"', "[à-ÿ]")
COUNTS = ("", "?", "*", "+", "{2}", "{2,9}", "{16}", "{1,40}", "{3,}", "{1,300}")


def main(arguments: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.refusals", description="Measure how forms are refused.")
    parser.add_argument("--runs", type=int, default=3, help="of each form (default: 3)")
    parser.add_argument("--random", type=int, default=40, help="nested repetitions at random (default: 40)")
    parser.add_argument("--seed", type=int, default=1, help="of the first of them (default: 1)")
    parser.add_argument("--own", action="store_true", help="an engine of the page's own (default: a shared one)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    options = parser.parse_args(arguments)
    forms = [*known(), *({"grammar": nested(Random(options.seed + i))} for i in range(options.random))]
    found = evaluated(MEASURE, VOCABULARY, {"forms": forms, "runs": options.runs, "shared": not options.own}, None)
    measured = [{"form": form, **one} for form, one in zip(forms, found["forms"], strict=True)]
    print(table(measured))
    write_figures({"forms": measured}, options.json)
    return 0


def known() -> list[dict[str, Any]]:
    """The forms of the tests that JSON can hold."""
    grammars = [*SLOW.values(), *QUICK.values(), *TRIED]
    values = [(kind, value) for kind, value in REFUSED if "nan" not in repr(value) and "inf" not in repr(value)]
    return [{kind: value} for kind, value in values] + [{"grammar": text} for text in dict.fromkeys(grammars)]


def nested(rng: Random) -> str:
    """A grammar of repetitions within repetitions; sometimes it recurses."""

    def part(depth: int) -> str:
        if not depth:
            return rng.choice(ATOMS) + rng.choice(COUNTS)
        inner = [part(rng.randrange(depth)) for _ in range(rng.randrange(1, 4))]
        return f"({rng.choice((' ', ' | ')).join(inner)}){rng.choice(COUNTS)}"

    return f"root ::= {part(3)}{rng.choice(('', '', ' root?'))}"


def table(measured: list[dict[str, Any]]) -> str:
    """The figures as text."""
    refused = [one for one in measured if one["answer"] != "accepted"]
    accepted = [one["times"][0] for one in measured if one["answer"] == "accepted"]
    slowest = sorted(refused, key=lambda one: -min(one["times"]))
    times = [min(one["times"]) for one in refused]
    lines = [
        f"{len(refused)} of {len(measured)} forms refused: median {median(times):.0f} ms, slowest {max(times):.0f} ms",
        *(f"  {min(one['times']):5.0f} ms  {str(one['form'])[:90]}" for one in slowest[:8]),
        f"accepted: median {median(accepted):.0f} ms, slowest {max(accepted):.0f} ms",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
