# ruff: noqa: E501
"""The agent loop with a scripted model: turns, budgets, tools side by side, errors, and how a run ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.js_modules import Evaluate, evaluator

# `script`: the model's answers in order, each a text or a list of calls [name, arguments]; the last one repeats.
RUN = """(() => {
  const [script, options, failing] = a, asked = [], events = [];
  const api = { chat: { completions: { create: async (request) => {
    asked.push(structuredClone(request));
    const said = script[Math.min(asked.length, script.length) - 1];
    const calls = Array.isArray(said) && request.tool_choice !== "none"
      ? said.map(([name, args], i) => ({ id: `call_${asked.length}_${i}`, type: "function",
          function: { name, arguments: typeof args === "string" ? args : JSON.stringify(args) } }))
      : undefined;
    const short = request.max_tokens !== undefined && request.max_tokens < 10;
    return {
      choices: [{ finish_reason: short ? "length" : calls ? "tool_calls" : "stop",
        message: { role: "assistant", content: calls ? null : `${said}`, ...(calls && { tool_calls: calls }) } }],
      usage: { prompt_tokens: 5, completion_tokens: short ? request.max_tokens : 10, total_tokens: 15 },
    };
  } } } };
  let running = 0, most = 0;
  const work = async (value) => {
    most = Math.max(most, ++running);
    await new Promise((resolve) => setTimeout(resolve, 5));
    running--;
    return value;
  };
  const tool = (name, run) => ({ function: { name, parameters: { type: "object" } }, run });
  const tools = [
    tool("add", ({ x, y }) => work(x + y)),
    tool("fail", () => { throw new Error("no such city"); }),
  ];
  return new m.Agents(api)
    .run({ model: "mini", messages: [{ role: "user", content: "Go" }], tools, onEvent: (e) => events.push(e), ...options })
    .then((result) => ({ result, asked, events, most }));
})()"""


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return evaluator(Path(tmp_path_factory.mktemp("agents")), ["app/sdk/agents.js"])


def run(evaluate: Evaluate, *script: Any, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = evaluate(RUN, list(script), options)
    return found


def results(found: dict[str, Any]) -> list[str]:
    return [message["content"] for message in found["result"]["messages"] if message["role"] == "tool"]


def test_calls_side_by_side_and_the_answer(evaluate: Evaluate) -> None:
    found = run(evaluate, [["add", {"x": 1, "y": 2}], ["add", {"x": 3, "y": 4}]], "3 and 7")
    result = found["result"]
    assert (result["message"]["content"], result["turns"], result["ended"]) == ("3 and 7", 2, "answer")
    assert found["most"] == 2
    assert [m["role"] for m in result["messages"]] == ["user", "assistant", "tool", "tool", "assistant"]
    assert results(found) == ["3", "7"]
    assert result["messages"][2]["tool_call_id"] == "call_1_0"
    assert result["usage"] == {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}
    first, second = found["asked"]
    assert first["model"] == second["model"] == "mini"
    assert "run" not in first["tools"][0]
    assert second["messages"] == result["messages"][:-1]
    assert [event["type"] for event in found["events"]] == ["turn", "call", "call", "result", "result", "turn"]


def test_errors_are_told_to_the_model(evaluate: Evaluate) -> None:
    found = run(evaluate, [["fail", {}], ["nothing", {}], ["add", "{"]], "Sorry")
    assert found["result"]["ended"] == "answer"
    failed, unknown, broken = (json.loads(text)["error"] for text in results(found))
    assert failed == "no such city"
    assert "nothing" in unknown
    assert "JSON" in broken


def test_a_run_ends_after_its_turns_with_an_answer(evaluate: Evaluate) -> None:
    found = run(evaluate, [["add", {"x": 1, "y": 1}]], maxTurns=3)
    assert (found["result"]["turns"], found["result"]["ended"]) == (3, "turns")
    assert found["result"]["message"]["content"]
    assert [request.get("tool_choice") for request in found["asked"]] == [None, None, "none"]


def test_a_run_ends_with_its_tokens(evaluate: Evaluate) -> None:
    found = run(evaluate, [["add", {"x": 1, "y": 1}]], maxTokens=25)
    assert found["result"]["ended"] == "tokens"
    assert found["result"]["usage"]["completion_tokens"] == 25
    assert "tokens" in json.loads(results(found)[-1])["error"]  # of the call that did not run
    assert [request["max_tokens"] for request in found["asked"]] == [25, 15, 5]


def test_an_abort_ends_a_run(evaluate: Evaluate) -> None:
    code = """(() => {
      const controller = new AbortController();
      const message = { role: "assistant", content: null, tool_calls: [{ id: "x", function: { name: "stop", arguments: "" } }] };
      const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
      const api = { chat: { completions: { create: async () => ({ choices: [{ message }], usage }) } } };
      const tools = [{ function: { name: "stop" }, run: () => { controller.abort(new Error("enough")); throw new Error("x"); } }];
      return new m.Agents(api).run({ messages: [], tools, signal: controller.signal }).then(() => "ran", (e) => e.message);
    })()"""
    assert evaluate(code) == "enough"
