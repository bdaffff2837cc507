"""Grammars that the mask engine is slow with: refused in time, while another answer goes on."""

import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser import new_profile
from tests.support.waiting import HANG_S
from tools.selection import fewer
from tools.serve import Server

SET_UP = """async (shared) => {
  const { Wisp } = await import("/wisp.js");
  const engine = await Wisp.create({ shared });
  const bytes = await (await fetch("/repo/tests/golden/vocab/ggml-vocab-qwen2.gguf")).arrayBuffer();
  await engine.load({ backend: "cpu" });
  const { model } = await engine.load({ model: new File([bytes], "qwen2.gguf"), vocabOnly: true });
  await engine.validate({ regex: "a" }, "", { model }); // opens the vocabulary
  Object.assign(globalThis, { engine, vocabulary: model });
}"""
# Beside an answer of the other model.
TRY = """async ([grammar, max_tokens]) => {
  const messages = [{ role: "user", content: "Hello" }];
  const request = { model: "wisp-mini-q4_0", messages, max_tokens, ignore_eos: true, stream: true, seed: 1 };
  const stream = await engine.chat.completions.create(request);
  let tokens = 0;
  const reading = (async () => { for await (const _ of stream) tokens++; })();
  while (!tokens) await new Promise((resolve) => setTimeout(resolve, 10)); // a busy machine begins late
  const before = tokens;
  const found = await engine.validate({ grammar }, "", { model: vocabulary }).then(() => "quick", (e) => e.code);
  const beside = tokens - before;
  stream.controller.abort();
  await reading.catch(() => {});
  return { found, beside };
}"""

SLOW = {
    "masks of 4 s": r"root ::= ([ -~]{2,9}){1,300}",
    "longer and longer": 'root ::= (([a-zA-Z ]*)+ ("é"{2,9}){1,300}){0,100}',
    "40 s of compilation": 'root ::= "[" x{1,300} root? "]"\nx ::= "b" | y\ny ::= "c"? [^a]',
    "masks of 2 s": "root ::= .{2,9} root?",
    "compilation": r"root ::= (([ -~]{2,9} .{2,9}){2} ([a-z]{1,300} | . | [a-zA-Z ]{16})?)*",
}
KINDS = 3  # of slow grammars; the others are slow in the same ways, and WISP_ALL=1 runs them
ESTIMATED_SLOW = {
    "many ways": "root ::= a0\n" + "\n".join(f'a{i} ::= a{i + 1} a{i + 1} | ""' for i in range(30)) + '\na30 ::= "x"',
}
QUICK = {
    "a state for each count": r"root ::= (.? [^\n]{0,12}){2}",
    "expressions": 'root ::= e\ne ::= e "+" e | e "*" e | "(" e ")" | [0-9]+',
}


def in_workers(grammars: dict[str, str]) -> pytest.MarkDecorator:
    """Each grammar in one kind of worker, in turn: the trial runs in a worker of its own."""
    cases = [(at % 2 == 0, grammar) for at, grammar in enumerate(grammars.values())]
    ids = [f"{name}, {'own' if at % 2 else 'shared'} worker" for at, name in enumerate(grammars)]
    return pytest.mark.parametrize(("shared", "grammar"), cases, ids=ids)


@pytest.fixture(scope="module")
def pages(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Callable[[bool], Page]]:
    """pages(shared) -> a page with Wisp Mini, and a vocabulary of 151,936 tokens, in a shared worker or its own."""
    context = new_profile(chromium(None), service_worker=False)
    opened: dict[bool, Page] = {}

    def get(shared: bool) -> Page:
        if shared not in opened:
            page = opened[shared] = context.new_page()
            page.set_default_timeout(120_000)
            page.goto(f"{server.url}manifest.webmanifest")
            page.evaluate(SET_UP, shared)
        return opened[shared]

    yield get
    context.close()


@in_workers(dict(fewer([*SLOW.items()], KINDS)))
def test_a_slow_grammar_is_refused_while_another_answer_goes_on(
    pages: Callable[[bool], Page], shared: bool, grammar: str
) -> None:
    page = pages(shared)
    seen = page.evaluate(TRY, [grammar, 1900])  # the answer is aborted after the refusal, however late that is
    assert seen["found"] == "unsupported_parameter", seen
    assert seen["beside"], seen
    wait_until_trials_have_ended(page)


@in_workers(ESTIMATED_SLOW)
def test_a_grammar_is_refused_by_an_estimate(pages: Callable[[bool], Page], shared: bool, grammar: str) -> None:
    page = pages(shared)
    seen = page.evaluate(TRY, [grammar, 400])
    assert seen["found"] == "unsupported_parameter", seen
    wait_until_trials_have_ended(page)


def wait_until_trials_have_ended(page: Page) -> None:
    """Wait until each worker of a trial has ended, used or not."""
    end = time.monotonic() + HANG_S
    while any("/grammar-" in worker.url for worker in page.workers):
        assert time.monotonic() < end, "the worker of a trial goes on"
        page.wait_for_timeout(100)


@in_workers(QUICK)
def test_a_grammar_that_only_looks_slow_is_taken(pages: Callable[[bool], Page], shared: bool, grammar: str) -> None:
    seen = pages(shared).evaluate(TRY, [grammar, 40])
    assert seen["found"] == "quick", seen


def test_a_worker_whose_page_was_closed_is_replaced(chromium: Callable[[str | None], Browser], server: Server) -> None:
    """The first page lends the worker of a trial that does not come, since the estimates refuse the form."""
    context = new_profile(chromium(None))
    first, second = context.new_page(), context.new_page()
    for page in (first, second):
        page.set_default_timeout(120_000)
        page.goto(f"{server.url}manifest.webmanifest")
    first.evaluate("async () => globalThis.engine = await (await import('/wisp.js')).Wisp.create()")
    second.evaluate(SET_UP, True)
    validate = "(grammar) => engine.validate({ grammar }, '', { model: vocabulary })"
    judge = f"(grammar) => ({validate})(grammar).then(() => 'quick', (error) => error.code)"
    with first.expect_event("worker", lambda worker: "/grammar-" in worker.url):
        assert second.evaluate(judge, 'root ::= root root | "a"') == "unsupported_parameter"
    first.close()
    with second.expect_event("worker", lambda worker: "/grammar-" in worker.url):
        assert second.evaluate(judge, QUICK["expressions"]) == "quick"
    context.close()
