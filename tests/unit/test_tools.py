"""Tools of the page's chats: their registry, and how calls and results are told to a model."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.js_modules import Evaluate, evaluator

OFFER = """const registry = new m.ToolRegistry();
const tool = (name) => ({ name, parameters: { type: "object" }, run: () => name });"""


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    files = ["app/tools/registry.js", "app/ui/chats/steps.js", "app/ui/chats/turns.js"]
    return evaluator(Path(tmp_path_factory.mktemp("tools")), files)


def offered(evaluate: Evaluate, code: str) -> Any:
    return evaluate(f"(async () => {{ {OFFER} {code} }})()")


def test_a_name_of_two_sources_is_told_with_the_source(evaluate: Evaluate) -> None:
    names = offered(
        evaluate,
        """registry.offer({ id: "one", name: "One", tools: [tool("run"), tool("now")] });
        registry.offer({ id: "two", name: "Two", tools: [tool("run")] });
        return [["one"], ["two", "one"]].map((ids) => registry.of(ids).map(({ called }) => called));""",
    )
    assert names == [["run", "now"], ["one_run", "now", "two_run"]]


def test_no_tool_gets_the_name_that_another_one_has(evaluate: Evaluate) -> None:
    """A server that knows such a name could have its own tool called, or all requests refused."""
    names = offered(
        evaluate,
        """const long = "n".repeat(64);
        registry.offer({ id: "one", name: "One", tools: [tool("run"), tool(long)] });
        registry.offer({ id: "two", name: "Two", tools: [tool("run"), tool("one_run"), tool(long)] });
        return registry.of(["one", "two"]).map(({ called, name, source }) => [called, `${source.id} ${name}`]);""",
    )
    assert len({called for called, _ in names}) == len(names) == 5
    assert all(len(called) <= 64 for called, _ in names)
    assert names[0] == ["one_run", "one run"]
    assert ["one_run_2", "two one_run"] in names


@pytest.mark.parametrize("wrong", ['{ id: "a b" }', '{ tools: [tool("a b")] }', '{ tools: [tool("a"), tool("a")] }'])
def test_wrong_names_are_refused(evaluate: Evaluate, wrong: str) -> None:
    code = f"""try {{ registry.offer({{ id: "x", name: "X", tools: [], ...{wrong} }}); }}
        catch (error) {{ return [error.message, registry.sources.length]; }}"""
    message, sources = offered(evaluate, code)
    assert "letters, digits" in message
    assert sources == 0


def test_the_sources_of_a_kind_are_replaced(evaluate: Evaluate) -> None:
    ids = offered(
        evaluate,
        """const source = (id) => ({ id, name: id, tools: [] });
        registry.offer(source("code"));
        registry.replace("mcp-", [source("mcp-a"), source("mcp-b")]);
        registry.replace("mcp-", [source("mcp-b"), source("mcp-c")]);
        return registry.sources.map(({ id }) => id);""",
    )
    assert ids == ["code", "mcp-b", "mcp-c"]


def call(number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"c{number}", "name": "run", "arguments": "{}", "state": "done", **more}


def test_every_call_is_told_with_a_result(evaluate: Evaluate) -> None:
    steps: list[Any] = [{"content": "Wait.", "calls": [call(0, text="x" * 90 + "y" * 90), call(1, state="running")]}]
    answer, long, missing = evaluate("m.saidIn(a[0], 100)", steps)
    assert [each["id"] for each in answer["tool_calls"]] == ["c0", "c1"]
    assert long["content"] == f"{'x' * 50}\n[... 80 characters left out ...]\n{'y' * 50}"
    assert "It may have done its work." in json.loads(missing["content"])["error"]
    steps[0]["calls"][1]["state"] = "asked"
    assert "before this ran" in json.loads(evaluate("m.saidIn(a[0], 100)", steps)[2]["content"])["error"]
    assert [long["tool_call_id"], missing["tool_call_id"]] == ["c0", "c1"]


def test_an_answer_that_was_stopped_after_its_calls_stays_in_the_chat(evaluate: Evaluate) -> None:
    stopped = {"role": "assistant", "content": "", "steps": [{"content": "", "calls": [call(0)]}]}
    turns = [
        {"role": "user", "content": "Go"},
        stopped,
        {"role": "user", "content": "On"},
        {"role": "assistant", "content": ""},
    ]
    assert evaluate("m.answered(a[0])", turns) == turns[:2]
