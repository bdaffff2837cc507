"""Measure a model's quality in headless Chromium: perplexity of a text, divergence from a base model, or questions.

`build.py eval` runs this in the virtual environment, which has Playwright.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Playwright, sync_playwright

from tools.chat import engine_page, exit_status, file_of
from tools.failure import Failure

EVALUATE = """async ({ models, file, input, questions, contextLength }) => {
  const { Wisp } = await import("/wisp.js");
  const tell = (stage) => (loaded, total) => wispProgress({ stage, loaded, total });
  try {
    const engine = await Wisp.create({ onProgress: (progress) => wispProgress(progress) });
    const ids = [];
    for (const model of models) {
      const source = model === file ? document.querySelector("#chat-file").files[0] : model ?? undefined;
      ids.push((await engine.load({ model: source, parallel: 1 })).model);
    }
    const [model, base] = ids;
    const onProgress = tell(questions ? "questions" : "chunks");
    const options = { model, contextLength: contextLength ?? undefined, onProgress };
    const { quality } = engine;
    const result = questions ? await quality.multipleChoice(input, options)
      : base ? await quality.divergence(input, { ...options, base })
      : await quality.perplexity(input, options);
    await wispProgress(null);
    return { result };
  } catch (error) {
    return { error: error.message };
  }
}"""


def main(arguments: list[str]) -> int:
    """Measure and print JSON; return the exit status."""
    parser = argparse.ArgumentParser(prog="build.py eval", description=__doc__.splitlines()[0])
    parser.add_argument("input", type=Path, help="a text file, or questions as .jsonl: question, choices, answer")
    parser.add_argument("--model", help="a catalog id, the address of a .gguf, or a .gguf file (default: the embedded)")
    parser.add_argument("--base", help="catalog id or address of a model to measure the KL divergence from")
    parser.add_argument("--context", type=int, help="tokens of a chunk (default: 512)")
    options = parser.parse_args(arguments)

    def evaluate() -> None:
        try:
            text = options.input.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Failure(f"{options.input} cannot be read as text: {error}") from None
        with sync_playwright() as playwright:
            print(json.dumps(_evaluate(playwright, options, text), indent=1))

    return exit_status(evaluate)


def _evaluate(playwright: Playwright, options: argparse.Namespace, text: str) -> dict[str, Any]:
    file = file_of(options.model)
    given = {
        "models": [options.model, options.base] if options.base else [options.model],
        "file": options.model if file else "",
        "input": text,
        "questions": options.input.suffix == ".jsonl",
        "contextLength": options.context,
    }
    with engine_page(playwright, file) as (page, _):
        found: dict[str, Any] = page.evaluate(EVALUATE, given)
    if "error" in found:
        raise Failure(found["error"])
    result: dict[str, Any] = found["result"]
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
