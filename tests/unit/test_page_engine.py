"""The page's engine, app/ui/engine.js: which model answers when loads overlap. In Node."""

from pathlib import Path

import pytest

from tests.support.js_modules import Evaluate, evaluator

SDK = "exports.Wisp = globalThis.Wisp = class {}; exports.WispError = class extends Error {};"
# `choose(name)` begins a load, `begun(name)` waits until the worker has it, `arrivals[name]({})` answers it.
# A model "away" is another server's.
START = """(async () => {
  const arrivals = {};
  Wisp.create = async () => ({ load: ({ model }) => new Promise((resolve) => (arrivals[model] = resolve)) });
  const told = [];
  const nothing = () => {};
  const events = { loading: nothing, progress: nothing, failed: nothing, unsuited: nothing, idle: nothing };
  const engine = new m.Engine({ ...events, loaded: ({ name }) => told.push(name) });
  const choose = (name) => engine.load({ name, model: name, ...(name === "away" && { upstream: "office" }) });
  const begun = async (name) => {
    while (!arrivals[name]) await new Promise((resolve) => setImmediate(resolve));
  };
  CODE
  return [engine.loaded.name, told];
})()"""


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    folder: Path = tmp_path_factory.mktemp("engine") / "ui"
    folder.mkdir()
    (folder.parent / "wisp.js").write_text(SDK, encoding="utf-8")  # where the bundle looks for it
    return evaluator(folder, ["app/ui/engine.js"])


def test_a_model_that_was_loaded_answers(evaluate: Evaluate) -> None:
    code = 'const one = choose("one"); await begun("one"); arrivals.one({}); await one;'
    assert evaluate(START.replace("CODE", code)) == ["one", ["one"]]


def test_an_earlier_load_that_ends_late_does_not_replace_the_model(evaluate: Evaluate) -> None:
    """The worker may have answered the earlier load before its cancellation reaches it."""
    code = """
      const one = choose("one");
      await begun("one");
      await choose("away");
      arrivals.one({});
      await one;"""
    assert evaluate(START.replace("CODE", code)) == ["away", ["away"]]


def test_a_second_model_takes_the_place_of_a_load(evaluate: Evaluate) -> None:
    """The model that answers is then the one that another context length loads again."""
    code = """
      const one = choose("one");
      await begun("one");
      arrivals.one({});
      await one;
      const beside = engine.beside({ name: "two", model: "two" });
      const three = choose("three");
      await begun("two");
      arrivals.three(Promise.reject({ code: "aborted" }));
      await three;
      arrivals.two({});
      await beside;
      told.push(engine.current.choice.name);"""
    assert evaluate(START.replace("CODE", code)) == ["one", ["one", "one"]]
