# ruff: noqa: E501
"""MCP servers among the tools of the responses endpoint: a scripted engine, and servers that a test describes."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.js_modules import Evaluate, evaluator

# `script`: what each turn of the engine answers with: a text, or a list of calls [name, arguments].
RUN = """(async () => {
  const [script, request, failing] = a, asked = [], ran = [], closed = [];
  const item = (said, i) => typeof said === "string"
    ? { id: `msg_${asked.length}`, type: "message", role: "assistant", content: [{ type: "output_text", text: said }] }
    : { id: `fc_${asked.length}_${i}`, type: "function_call", call_id: `call_${asked.length}_${i}`, name: said[0], arguments: JSON.stringify(said[1]) };
  const create = async function (request) {
    asked.push(structuredClone(request));
    const said = script[asked.length - 1];
    const items = (Array.isArray(said) ? said : [said.cut ?? said]).map(item);
    const body = { id: `resp_${asked.length}`, created_at: asked.length, status: "in_progress", output: [], usage: null };
    return (async function* () {
      let n = 0;
      yield { type: "response.created", sequence_number: n++, response: body };
      yield { type: "response.in_progress", sequence_number: n++, response: body };
      for (const [i, item] of items.entries()) {
        yield { type: "response.output_item.added", sequence_number: n++, output_index: i, item: { ...item, ...(item.arguments && { arguments: "" }) } };
        if (item.arguments) {
          const where = { item_id: item.id, output_index: i };
          yield { type: "response.function_call_arguments.delta", sequence_number: n++, ...where, delta: item.arguments };
          yield { type: "response.function_call_arguments.done", sequence_number: n++, ...where, arguments: item.arguments, name: item.name };
        } else {
          yield { type: "response.output_text.delta", sequence_number: n++, item_id: item.id, output_index: i, content_index: 0, delta: item.content[0].text };
        }
        yield { type: "response.output_item.done", sequence_number: n++, output_index: i, item };
      }
      const status = said.cut ? "incomplete" : "completed";
      const usage = { input_tokens: 5, output_tokens: 2, total_tokens: 7, output_tokens_details: { reasoning_tokens: 1 } };
      yield { type: `response.${status}`, sequence_number: n++, response: { ...body, status, output: items, usage } };
    })();
  };
  const named = async (wanted) => {
    if (failing === wanted.label) throw new Error("absent");
    const tool = (own) => ({ own, function: { name: own, description: own, parameters: { type: "object" } } });
    return {
      tools: [tool("price"), tool("odd"), tool("sell")],
      call: async (own, given) => {
        ran.push([wanted.label, own, given]);
        return own === "sell" ? { text: "sold out", failed: true } : { text: `${given.n} euros`, failed: false };
      },
      close: async () => void closed.push(wanted.label),
    };
  };
  const unusable = async ({ own }) => (own === "odd" ? "its pattern" : null);
  const answer = m.withMcp(create, { named, unusable });
  const failed = (error) => ({ error: error.message, param: error.param ?? null });
  const stream = await answer({ ...request, stream: true }).catch(failed);
  if (stream.error) return { ...stream, closed, asked };
  const events = [];
  for await (const event of stream) events.push(event);
  return { events, response: events.at(-1).response, asked, ran, closed };
})()"""
FREE = {
    "type": "mcp",
    "server_label": "shop",
    "server_url": "https://example.org/mcp",
    "require_approval": "never",
    "authorization": "secret",
}
HI = {"input": "Hi"}


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return evaluator(Path(tmp_path_factory.mktemp("responses")), ["app/sdk/mcp_responses.js"])


def run(evaluate: Evaluate, *script: Any, failing: str = "", **request: Any) -> dict[str, Any]:
    found: dict[str, Any] = evaluate(RUN, list(script), {**HI, **request}, failing)
    return found


def kinds(found: dict[str, Any]) -> list[str]:
    return [item["type"] for item in found["response"]["output"]]


def test_calls_run_and_their_results_go_back_to_the_model(evaluate: Evaluate) -> None:
    found = run(evaluate, [["price", {"n": 3}], ["sell", {}]], "3 euros", tools=[FREE])
    assert kinds(found) == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
    listed, price, sell, _ = found["response"]["output"]
    assert [tool["name"] for tool in listed["tools"]] == ["price", "sell"]
    assert (price["output"], price["error"], price["arguments"]) == ("3 euros", None, '{"n":3}')
    assert (sell["output"], sell["error"], sell["status"]) == (None, "sold out", "failed")
    first, second = found["asked"]
    assert [tool["name"] for tool in first["tools"]] == ["price", "sell"]
    assert [item["type"] for item in second["input"]] == [
        "message",
        *["function_call"] * 2,
        *["function_call_output"] * 2,
    ]
    assert second["input"][-2]["output"] == "3 euros"
    assert "sold out" in second["input"][-1]["output"]
    assert found["closed"] == ["shop"]


def test_no_tool_gets_the_name_that_another_one_has(evaluate: Evaluate) -> None:
    """Here a function has the name that a tool gets because another server has a tool of its name."""
    other, function = FREE | {"server_label": "shop_2"}, {"type": "function", "name": "shop_price", "parameters": {}}
    found = run(evaluate, [["shop_price_2", {"n": 3}]], "ok", tools=[FREE, other, function])
    names = [tool["name"] for tool in found["asked"][0]["tools"]]
    assert sorted(names) == ["shop_2_price", "shop_2_sell", "shop_price", "shop_price_2", "shop_sell"]
    assert found["ran"] == [["shop", "price", {"n": 3}]]


def test_a_call_that_may_be_cut_does_not_run(evaluate: Evaluate) -> None:
    found = run(evaluate, {"cut": ["price", {}]}, tools=[FREE])
    assert found["response"]["status"] == "incomplete"
    assert found["ran"] == []
    (call,) = [item for item in found["response"]["output"] if item["type"] == "mcp_call"]
    assert call["status"] == "failed"
    assert "has not run" in call["error"]


def test_the_response_is_one(evaluate: Evaluate) -> None:
    found = run(evaluate, [["price", {"n": 3}]], "3 euros", tools=[FREE])
    response, events = found["response"], found["events"]
    assert (response["id"], response["created_at"], response["status"]) == ("resp_1", 1, "completed")
    assert response["usage"] == {
        "input_tokens": 10,
        "output_tokens": 4,
        "total_tokens": 14,
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    assert "authorization" not in response["tools"][0]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events if event["type"] == "response.created"] == ["response.created"]
    for event in events:
        if "item_id" in event:
            assert response["output"][event["output_index"]]["id"] == event["item_id"]
    names = [event["type"].removeprefix("response.") for event in events]
    order = [
        "mcp_list_tools.completed",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.completed",
        "output_text.delta",
        "completed",
    ]
    assert [name for name in names if name in order] == order
    assert not any("function_call" in name for name in names)


def test_a_call_waits_for_approval(evaluate: Evaluate) -> None:
    asking = {**FREE, "require_approval": {"never": {"tool_names": ["sell"]}}}
    found = run(evaluate, [["price", {"n": 3}]], tools=[asking])
    assert kinds(found) == ["mcp_list_tools", "mcp_approval_request"]
    assert not found["ran"]
    request = found["response"]["output"][1]
    assert (request["name"], request["arguments"]) == ("price", '{"n":3}')
    items = [{"role": "user", "content": "Hi"}, *found["response"]["output"]]
    answer = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    approved = run(evaluate, "3 euros", tools=[asking], input=[*items, answer])
    assert kinds(approved) == ["mcp_list_tools", "mcp_call", "message"]
    assert approved["response"]["output"][1]["approval_request_id"] == request["id"]
    assert approved["ran"] == [["shop", "price", {"n": 3}]]
    assert approved["asked"][0]["input"][-1]["output"] == "3 euros"
    later = [*items, answer, *approved["response"]["output"]]
    assert run(evaluate, "Yes", tools=[asking], input=later)["ran"] == [], "it has run already"
    refused = run(evaluate, "Well", tools=[asking], input=[*items, {**answer, "approve": False, "reason": "Too dear"}])
    assert not refused["ran"]
    assert "Too dear" in refused["asked"][0]["input"][-1]["output"]
    assert "has no mcp_approval_response" in run(evaluate, "x", tools=[asking], input=items)["error"]


def test_functions_of_the_request_are_left_to_the_client(evaluate: Evaluate) -> None:
    own = {"type": "function", "name": "price", "parameters": {}}
    found = run(evaluate, [["price", {}], ["shop_price", {"n": 1}]], tools=[own, {**FREE, "allowed_tools": ["price"]}])
    assert [tool["name"] for tool in found["asked"][0]["tools"]] == ["price", "shop_price"]
    assert kinds(found) == ["mcp_list_tools", "function_call", "mcp_call"]
    assert len(found["asked"]) == 1


def test_turns_are_limited(evaluate: Evaluate) -> None:
    found = run(evaluate, *[[["price", {"n": 1}]]] * 7, "Done", tools=[FREE], tool_choice="required")
    assert [request.get("tool_choice") for request in found["asked"]] == ["required", *["auto"] * 6, "none"]
    chosen = run(evaluate, "x", tools=[FREE], tool_choice={"type": "mcp", "server_label": "shop", "name": "sell"})
    assert chosen["asked"][0]["tool_choice"]["tools"] == [{"type": "function", "name": "sell"}]


def test_a_server_that_fails_fails_the_request(evaluate: Evaluate) -> None:
    other = {**FREE, "server_label": "other"}
    found = run(evaluate, "x", tools=[FREE, other], failing="other")
    assert (found["error"], found["closed"], found["asked"]) == ("absent", ["shop"], [])


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"server_label": "a b"}, "tools[0].server_label"),
        ({"connector_id": "connector_gmail"}, "tools[0].connector_id"),
        ({"allowed_tools": {"read_only": True}}, "tools[0].allowed_tools"),
        ({"require_approval": "sometimes"}, "tools[0].require_approval"),
    ],
)
def test_what_is_wrong_is_named(evaluate: Evaluate, tool: dict[str, Any], param: str) -> None:
    found = run(evaluate, "x", tools=[{**FREE, **tool}])
    assert found["param"] == param
    assert param in found["error"]
