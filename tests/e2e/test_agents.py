"""Tasks for agents with Wisp Mini: grammars constrain its calls, so that each fits its tool's schema.

Every third of the fifty tasks, which have every tool among them; WISP_ALL=1: all.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import pytest
from playwright.sync_api import Browser

from tests.support import agent_tasks
from tests.support.agent_tasks import SCHEMAS
from tests.support.browser import new_profile
from tools.selection import everything
from tools.serve import Server

TASKS = agent_tasks.TASKS if everything() else agent_tasks.TASKS[1::3]
MAX_TURNS, MAX_TOKENS = 2, 120
RUN = """async ([tasks, budget]) => {
  const { Wisp } = await import("/wisp.js");
  const engine = await Wisp.create();
  await engine.load({ backend: "cpu", contextLength: 1024 });
  const todo = tasks.entries(), runs = [];
  const work = async () => {
    for (const [index, { question, definitions }] of todo) {
      const calls = [], run = (name, given) => { calls.push([name, given]); return { ok: true }; };
      const tools = definitions.map((each) => ({ ...each, run: (given) => run(each.function.name, given) }));
      const messages = [{ role: "user", content: question }];
      // The first turn must call; with temperature, so that the model tries what the grammar must stop.
      const sampling = { tool_choice: "required", temperature: 1, seed: index };
      const result = await engine.agents.run({ messages, tools, ...sampling, ...budget });
      runs[index] = { calls, result };
    }
  };
  await Promise.all([work(), work(), work(), work()]);
  return runs;
}"""


@pytest.fixture(scope="module")
def runs(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[list[dict[str, Any]]]:
    """What the tasks' requests gave. V8 optimizes WebAssembly here, which is worth its time for thousands of tokens."""
    context = new_profile(chromium("cpu"))
    page = context.new_page()
    page.goto(f"{server.url}tests/blank.html")
    tasks = [{"question": task.question, "definitions": task.definitions} for task in TASKS]
    yield page.evaluate(RUN, [tasks, {"maxTurns": MAX_TURNS, "maxTokens": MAX_TOKENS}])
    context.close()


def test_all_calls_fit_their_schemas(runs: list[dict[str, Any]]) -> None:
    calls = 0
    for task, run in zip(TASKS, runs, strict=True):
        for name, given in run["calls"]:
            assert name in task.tools
            jsonschema.validate(given, SCHEMAS[name])
            calls += 1
    assert calls >= 0.8 * len(TASKS)  # a long call may take all tokens; then it does not run


def test_no_budget_is_exceeded(runs: list[dict[str, Any]]) -> None:
    for run in runs:
        result = run["result"]
        assert result["turns"] <= MAX_TURNS
        assert result["usage"]["completion_tokens"] <= MAX_TOKENS
        told = [message["tool_call_id"] for message in result["messages"] if message["role"] == "tool"]
        made = [call["id"] for message in result["messages"] for call in message.get("tool_calls") or []]
        assert told == made
        spent = result["usage"]["completion_tokens"] == MAX_TOKENS
        assert result["ended"] == ("tokens" if spent else "turns")
