"""Perplexity, divergence and multiple-choice questions are llama.cpp's."""

import json
import math
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page

from tools.paths import ROOT
from tools.serve import Server

GOLDEN = json.loads((ROOT / "tests" / "golden" / "quality.json").read_text(encoding="utf-8"))
LOAD = """async () => {
  const { Wisp } = await import("/wisp.js");
  globalThis.engine = await Wisp.create();
  for (const model of ["wisp-mini-q8_0", "wisp-mini-q4_0", "/repo/tests/golden/llama/llama.F16.gguf"])
    await engine.load({ model, backend: "cpu", kvType: "f32", contextLength: 256 });
}"""
BASE, MODEL, WITH_BOS = "wisp-mini-q8_0", "wisp-mini-q4_0", "llama.F16"
RUN = """async ([method, input, options]) => {
  const done = [];
  const onProgress = (...progress) => done.push(progress);
  try {
    return { ...(await engine.quality[method](input, { ...options, onProgress })), done };
  } catch ({ message, code, param }) {
    return { message, code, param };
  }
}"""


@pytest.fixture(scope="module")
def page(context: BrowserContext, server: Server) -> Page:
    """A page with the golden's models."""
    made = context.new_page()
    made.goto(f"{server.url}tests/blank.html")
    made.evaluate(LOAD)
    return made


def run(page: Page, method: str, given: Any, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(RUN, [method, given, options])
    return found


def close(found: dict[str, Any], wanted: dict[str, Any], nats: float = 0.03) -> bool:
    """Whether figures are llama.cpp's, within so many nats a token: it rounds activations beside quantized weights."""
    if "perplexity" in wanted:
        same = (found["tokens"], found["chunks"]) == (wanted["tokens"], wanted["chunks"])
        near = abs(math.log(found["perplexity"] / wanted["perplexity"])) < nats
        return same and near and math.isclose(found["error"], wanted["error"], rel_tol=2 * nats)
    tops = abs(found["same_top"] - wanted["same_top"])
    near = math.isclose(found["mean"], wanted["mean"], rel_tol=nats)
    return near and math.isclose(found["max"], wanted["max"], rel_tol=0.1) and tops < 0.04


@pytest.mark.parametrize(("model", "name", "nats"), [(MODEL, "model", 0.03), (WITH_BOS, "with_bos", 0.003)])
def test_the_perplexity_is_llama_cpp_s(page: Page, model: str, name: str, nats: float) -> None:
    found = run(page, "perplexity", GOLDEN["text"], model=model, contextLength=GOLDEN["n_ctx"])
    assert close(found, GOLDEN[name], nats), found
    chunks = GOLDEN[name]["chunks"]
    assert found["done"] == [[chunk + 1, chunks] for chunk in range(chunks)]


def test_the_divergence_of_a_quantisation_is_llama_cpp_s(page: Page) -> None:
    found = run(page, "divergence", GOLDEN["text"], base=BASE, model=MODEL, contextLength=GOLDEN["n_ctx"])
    assert close(found, GOLDEN["divergence"]), found
    assert close(found["base"], GOLDEN["base"])
    itself = run(page, "divergence", GOLDEN["text"], base=MODEL, model=MODEL, contextLength=GOLDEN["n_ctx"])
    assert (itself["mean"], itself["max"], itself["same_top"]) == (0, 0, 1)


def test_multiple_choice_questions_get_llama_cpp_s_answers(page: Page) -> None:
    questions = GOLDEN["questions"]
    lines = "\n".join(json.dumps({name: one[name] for name in ("question", "choices", "answer")}) for one in questions)
    found = run(page, "multipleChoice", lines + "\n\n", model=MODEL)
    assert found["chosen"] == [one["scores"].index(max(one["scores"])) for one in questions]
    assert found["correct"] == sum(one["scores"].index(max(one["scores"])) == one["answer"] for one in questions)
    assert found["accuracy"] == found["correct"] / len(questions)


def test_bad_input_is_named(page: Page) -> None:
    short = run(page, "perplexity", "too short", model=MODEL)
    assert (short["code"], short["param"]) == ("invalid_value", "contextLength")  # 512 tokens exceed this context
    assert "Give a longer text" in run(page, "perplexity", "too short", model=MODEL, contextLength=64)["message"]
    for questions, message in (("{", "Line 1 of the questions is not JSON"), ("", "There are no questions"),
                               ('{"question": "a", "choices": ["b"], "answer": 0}', "Question 1 is not")):  # fmt: skip
        assert message in run(page, "multipleChoice", questions)["message"]
    other = run(page, "divergence", GOLDEN["text"], base=WITH_BOS, model=MODEL, contextLength=GOLDEN["n_ctx"])
    assert other["param"] in ("base", "ids")
