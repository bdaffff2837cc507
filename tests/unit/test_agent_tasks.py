"""Fifty tasks for agents with a scripted model: every call runs once with its arguments, and no budget is exceeded."""

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.agent_tasks import SCHEMAS, TASKS
from tests.support.js_modules import evaluator

TOKENS = 10  # of each answer of the scripted model
# The model makes the task's calls, turn by turn, then answers; it calls as long as its budget lasts where `stubborn`.
RUN = """Promise.all(a[0].map(async ({ definitions, turns, budget, stubborn }) => {
  const ran = [];
  let asked = 0;
  const create = async (request) => {
    const made = stubborn ? turns[asked % turns.length] : (turns[asked] ?? []);
    const calls = request.tool_choice === "none" && !stubborn ? [] : made;
    asked += 1;
    const tokens = Math.min(a[1], request.max_tokens ?? Infinity);
    const message = { role: "assistant", content: calls.length ? null : "Done.", ...(calls.length && {
      tool_calls: calls.map(([name, given], i) => (
        { id: `call_${asked}_${i}`, type: "function", function: { name, arguments: JSON.stringify(given) } })) }) };
    return { usage: { prompt_tokens: 20, completion_tokens: tokens, total_tokens: 20 + tokens },
             choices: [{ message, finish_reason: tokens < a[1] ? "length" : calls.length ? "tool_calls" : "stop" }] };
  };
  const tools = definitions.map(({ function: described }) => (
    { function: described, run: (given) => { ran.push([described.name, given]); return { ok: true }; } }));
  const result = await new m.Agents({ chat: { completions: { create } } }).run({ messages: [], tools, ...budget });
  return { ran, asked, result };
}))"""
BUDGETS: list[dict[str, int]] = [
    {},
    {"maxTurns": 1},
    {"maxTurns": 2},
    {"maxTokens": 15},
    {"maxTurns": 3, "maxTokens": 20},
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(What was asked, what happened) for each task and budget, of a model that ends and of a stubborn one."""
    evaluate = evaluator(Path(tmp_path_factory.mktemp("agents")), ["app/sdk/agents.js"])
    asked = [
        {"definitions": task.definitions, "turns": task.turns, "budget": budget, "stubborn": stubborn}
        for task in TASKS
        for budget in BUDGETS
        for stubborn in (False, True)
    ]
    return list(zip(asked, evaluate(RUN, asked, TOKENS), strict=True))


def test_there_are_fifty_tasks_whose_calls_fit_their_schemas() -> None:
    assert len(TASKS) == 50
    for task in TASKS:
        for turn in task.turns:
            for name, given in turn:
                jsonschema.validate(given, SCHEMAS[name])


def test_no_budget_is_exceeded(runs: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    for asked, run in runs:
        budget, result = asked["budget"], run["result"]
        assert result["turns"] == run["asked"] <= budget.get("maxTurns", 8)
        assert result["usage"]["completion_tokens"] == min(TOKENS * run["asked"], budget.get("maxTokens", 10**6))
        if asked["stubborn"]:
            assert result["ended"] != "answer"


def test_every_call_has_one_result_and_ran_with_its_arguments(
    runs: list[tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    for asked, run in runs:
        messages = run["result"]["messages"]
        made = [call["id"] for message in messages for call in message.get("tool_calls", [])]
        told = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
        assert made == told
        order = [call for turn in asked["turns"] for call in turn] * 8
        assert [tuple(call) for call in run["ran"]] == order[: len(run["ran"])]
        if run["result"]["ended"] == "answer":
            assert len(run["ran"]) == len(made) == sum(map(len, asked["turns"]))
