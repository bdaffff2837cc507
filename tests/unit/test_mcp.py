# ruff: noqa: E501
"""The client of the Model Context Protocol against a real server, in both kinds of revisions, in Node."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.js_modules import Evaluate, evaluator
from tests.support.mcp_servers import mcp_server

pytestmark = pytest.mark.slow

PRELUDE = """const [url, options = {}] = a;
  const connected = async (more = {}) => m.connect(new URL(url), { ...options, ...more }, m.WispError);
  const tool = (server, name) => server.tools.find((tool) => tool.function.name === name);
  const failure = (promise) => promise.then(() => null, ({ name, code, message }) => ({ name, code, message }));"""

# What the tests look at, in one run: starting Node takes longest.
FIND = f"""(async () => {{ {PRELUDE}
  const server = await connected(), found = {{}};
  found.about = [server.name, server.version, server.protocol, server.instructions];
  found.price = tool(server, "price").function;
  const calls = [["price", {{ article: "pears", count: 2 }}], ["stock", {{}}], ["picture", {{}}]];
  found.called = await server.call("picture", {{}});
  found.results = await Promise.all(calls.map(([name, given]) => tool(server, name).run(given)));
  found.failed = await tool(server, "fail").run({{}}).catch((error) => [error.name, error.message]);
  found.resources = await server.resources();
  found.contents = await server.read("shop://article/pears");
  found.prompts = await server.prompts();
  found.messages = await server.prompt("offer", {{ article: "pears" }});

  let given = {{ centimetres: 7 }};
  const progress = [], questions = [], controller = new AbortController();
  const other = await connected({{
    name: "shop",
    onInput: (question) => {{ questions.push(question); return given; }},
    onProgress: (step) => {{ progress.push(step); if (step.tool === "wait") controller.abort(); }},
  }});
  found.named = other.tools[0].function.name;
  found.accepted = await tool(other, "shop_measure").run({{}});
  given = null;
  found.declined = await tool(other, "shop_measure").run({{}}).catch((error) => error.message);
  found.question = questions[0];
  await tool(other, "shop_count").run({{ until: 2 }});
  found.progress = progress;
  found.aborted = (await failure(tool(other, "shop_wait").run({{}}, {{ signal: controller.signal }}))).code;
  for (let i = 0; i < 200 && (found.cancelled ?? "0") === "0"; i++) {{
    found.cancelled = await tool(server, "cancellations").run({{}});
    await new Promise((resolve) => setTimeout(resolve, 20));
  }}
  await Promise.all([server.close(), other.close()]);
  return found;
}})()"""


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return evaluator(
        Path(tmp_path_factory.mktemp("mcp")), ["app/mcp/client.js", "app/mcp/schema.js", "app/sdk/error.js"]
    )


@pytest.fixture(scope="module", params=["2025-11-25", "2026-07-28"])
def found(request: pytest.FixtureRequest, evaluate: Evaluate) -> dict[str, Any]:
    """What the server does in a revision."""
    with mcp_server(*(["--old"] if request.param == "2025-11-25" else [])) as url:
        return {**evaluate(FIND, url), "revision": request.param}


def test_what_a_server_says_of_itself(found: dict[str, Any]) -> None:
    assert found["about"] == ["Shop", "1.2", found["revision"], "Prices are in euros."]


def test_tools_have_the_schema_of_their_arguments(found: dict[str, Any]) -> None:
    assert found["price"]["description"] == "The price of an article"
    assert found["price"]["parameters"]["required"] == ["article"]
    assert found["price"]["parameters"]["additionalProperties"] is False
    assert found["named"] == "shop_price"


CLOSED = [
    ({"type": "object", "properties": {"a": {"properties": {}}}}, {"type": "object", "properties": {"a": {"properties": {}, "additionalProperties": False}}, "additionalProperties": False}),
    ({"properties": {}, "additionalProperties": True}, {"properties": {}, "additionalProperties": True}),
    ({"properties": {"a": {}}, "allOf": [{"properties": {"b": {}}}]}, {"properties": {"a": {}}, "allOf": [{"properties": {"b": {}}}]}),
    ({"properties": {"a": {}}, "anyOf": [{"required": ["a"]}]}, {"properties": {"a": {}}, "anyOf": [{"required": ["a"]}]}),
    ({"anyOf": [{"properties": {}}, {"type": "null"}]}, {"anyOf": [{"properties": {}, "additionalProperties": False}, {"type": "null"}]}),
    ({"items": {"properties": {}}}, {"items": {"properties": {}, "additionalProperties": False}}),
    ({"type": "object"}, {"type": "object"}),
]  # fmt: skip


def test_schemas_are_closed_where_that_leaves_every_listed_argument_possible(evaluate: Evaluate) -> None:
    assert evaluate("a[0].map(m.closed)", [schema for schema, _ in CLOSED]) == [made for _, made in CLOSED]


def test_results_are_texts(found: dict[str, Any]) -> None:
    pears, stock, picture = found["results"]
    assert pears == "2 pears: 6 euros"
    assert json.loads(stock) == {"apples": 4}
    assert picture == "An apple\n[image: image/png]"


def test_a_call_has_the_media_of_its_result(found: dict[str, Any]) -> None:
    called = found["called"]
    (medium,) = called.pop("media")
    assert called == {"text": "An apple\n[image: image/png]", "failed": False}
    assert medium["mimeType"] == "image/png"
    assert base64.b64decode(medium["data"]).startswith(b"\x89PNG")


def test_a_tool_that_fails_rejects_with_what_it_says(found: dict[str, Any]) -> None:
    name, message = found["failed"]
    assert name == "Error"
    assert message.endswith("the till is closed")


def test_a_server_asks_the_user(found: dict[str, Any]) -> None:
    assert found["accepted"] == "It is 7 cm large."
    assert "decline" in found["declined"]
    assert found["question"]["message"] == "How large is it?"
    assert list(found["question"]["schema"]["properties"]) == ["centimetres"]


def test_progress_is_told(found: dict[str, Any]) -> None:
    steps = [step for step in found["progress"] if step["tool"] == "count"]
    assert steps[0] == {"tool": "count", "progress": 1, "total": 2, "message": "at 1"}


def test_an_abort_cancels_the_tool_on_the_server(found: dict[str, Any]) -> None:
    assert found["aborted"] == "aborted"
    assert found["cancelled"] != "0"


def test_resources_and_prompts(found: dict[str, Any]) -> None:
    uris = [(resource["uri"], resource.get("template", False)) for resource in found["resources"]]
    shelves = "shop://shelves/{+path}{?sort,limit}"
    assert uris == [("shop://hours", False), ("shop://article/{name}", True), (shelves, True)]
    assert found["contents"][0]["text"] == "About pears"
    assert found["prompts"][0]["arguments"] == [{"name": "article", "required": True}]
    assert found["messages"] == [{"role": "user", "content": "Write an offer for pears."}]


def test_failures_say_what_to_do(evaluate: Evaluate) -> None:
    code = f"""(async () => {{ {PRELUDE}
      const server = await connected({{ token: "secret" }});
      await server.close();
      const absent = m.connect(new URL("http://127.0.0.1:9/mcp"), {{}}, m.WispError);
      const elsewhere = m.connect(new URL("/other", url), {{ token: "secret" }}, m.WispError);
      return [server.tools.length, ...(await Promise.all([absent, connected(), connected({{ token: "wrong" }}), elsewhere].map(failure)))];
    }})()"""
    with mcp_server("--token") as url:
        tools, absent, *others = evaluate(code, url)
    assert tools == 10
    assert (absent["name"], absent["code"]) == ("WispError", "mcp_unreachable")
    assert [error["code"] for error in others] == ["mcp_unauthorized", "mcp_unauthorized", "mcp_error"]


def test_a_user_signs_in_once_and_tokens_are_refreshed(evaluate: Evaluate) -> None:
    code = f"""(async () => {{ {PRELUDE}
      const opened = [];
      let stored;
      const signIn = {{
        redirectUrl: "http://127.0.0.1:1/back",
        open: async (address) => {{
          opened.push(address.searchParams.get("redirect_uri"));
          return (await fetch(address, {{ redirect: "manual" }})).headers.get("location");
        }},
        onStored: (grant) => (stored = grant),
      }};
      const server = await connected({{ signIn }});
      const said = [];
      for (let i = 0; i < 4; i++) said.push(await tool(server, "price").run({{ article: "pears" }}));
      await server.close();
      const again = await connected({{ signIn: {{ ...signIn, stored }} }});
      await again.close();
      const foreign = {{ ...signIn, open: async () => "http://127.0.0.1:1/back?code=x&state=y" }};
      return [said, opened, again.tools.length, await failure(connected({{ signIn: foreign }})), await failure(connected())];
    }})()"""
    with mcp_server("--oauth") as url:
        said, opened, tools, foreign, without = evaluate(code, url)
    assert said == ["1 pears: 3 euros"] * 4
    assert opened == ["http://127.0.0.1:1/back"]
    assert tools == 10
    assert "for another request" in foreign["message"]
    assert without["code"] == "mcp_unauthorized"
