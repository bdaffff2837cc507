"""One table of endpoints: the worker, the SDK and the service worker follow it."""

import re
from pathlib import Path

from app.endpoints.compatible import CompatibleHandlers
from app.endpoints.handlers import paths_of
from app.endpoints.lm_studio import LMStudioHandlers
from app.endpoints.openai import OpenAIHandlers
from app.openai.endpoints import ENDPOINTS
from tests.support.js_modules import evaluator
from tools.paths import ROOT


def test_every_endpoint_has_a_handler_and_every_handler_an_endpoint() -> None:
    answered = paths_of(OpenAIHandlers) | paths_of(CompatibleHandlers) | paths_of(LMStudioHandlers)
    assert {*answered, "v1/models"} == {endpoint.path for endpoint in ENDPOINTS.values()}


def test_the_sdks_types_name_every_method_of_the_table() -> None:
    text = (ROOT / "app" / "sdk" / "api.d.ts").read_text()
    api = text.partition("export interface Api {")[2].partition("\n}\n")[0]
    for endpoint in ENDPOINTS.values():
        assert all(re.search(rf"\b{name}\b", api) for name in endpoint.sdk.split(".")), endpoint.sdk


def test_every_path_is_its_own_endpoints_below_any_prefix(tmp_path: Path) -> None:
    """Some paths end with others."""
    evaluate = evaluator(tmp_path, ["app/sdk/endpoints.js"])
    rows = [(path, row.method, row.sdk) for row in ENDPOINTS.values() for path in (row.path, *row.also)]
    for prefix in ("", "engine/", "a/b/"):
        asked = [[f"/{prefix}{path}", method] for path, method, _ in rows]
        assert evaluate("a[0].map(([path, method]) => m.endpointAt(path, false, method).sdk)", asked) == [
            sdk for _, _, sdk in rows
        ]


def test_an_unknown_model_has_openais_code(tmp_path: Path) -> None:
    evaluate = evaluator(tmp_path, ["app/sdk/fetch.js"])
    ask = """m.engineFetch({ models: { list: () => ({ data: [] }) } }, "http://wisp/v1/models/none")
      .then(async (answer) => [answer.status, (await answer.json()).error])"""
    status, error = evaluate(ask)
    assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")


def test_one_model_of_each_list(tmp_path: Path) -> None:
    """The list of its version, below any prefix; a model's id may have slashes and escaped characters."""
    evaluate = evaluator(tmp_path, ["app/sdk/fetch.js"])
    ask = """Promise.all(a.map(async (path) => {
      const list = (of) => ({ list: () => ({ data: [{ id: "org/a b", of }] }) });
      const engine = { models: list("v1"), lmStudio: { models: list("v0") } };
      const answer = await m.engineFetch(engine, `http://wisp/${path}`);
      return [answer.status, (await answer.json()).of ?? null];
    }))"""
    paths = ["v1/models/org/a%20b", "api/v1/models/org/a%20b", "api/v0/models/org/a%20b", "x/api/v0/models/org/a%20b"]
    assert evaluate(ask, *paths) == [[200, "v1"], [200, "v1"], [200, "v0"], [200, "v0"]]
    assert evaluate(ask, "v1/models/b", "api/v0/models/b") == [[404, None], [404, None]]


def test_lm_studios_loads_are_no_models(tmp_path: Path) -> None:
    """Where version 1 has an endpoint, OpenAI's list has no model; downloads are refused, also below a prefix."""
    evaluate = evaluator(tmp_path, ["app/sdk/fetch.js"])
    ask = """Promise.all(a.map(async ([method, path]) => {
      const named = (name) => async (body) => ({ name, ...body });
      const models = { load: named("load"), unload: named("unload"), list: () => ({ data: [{ id: "load" }] }) };
      const init = method === "POST" ? { method, body: '{"model":"a"}' } : { method };
      const answer = await m.engineFetch({ models, lmStudio: { models } }, `http://wisp/${path}`, init);
      const { name, id, error } = await answer.json();
      return [answer.status, name ?? id ?? error.message ?? error];
    }))"""
    loads = [["POST", "api/v1/models/load"], ["POST", "x/api/v1/models/unload/"], ["GET", "v1/models/load"]]
    assert evaluate(ask, *loads) == [[200, "load"], [200, "unload"], [200, "load"]]
    assert evaluate(ask, ["GET", "api/v1/models/load"])[0][0] == 405
    downloads = [["POST", "api/v1/models/download"], ["GET", "x/api/v1/models/download/status/job_1"]]
    for status, message in evaluate(ask, *downloads):
        assert (status, "/api/v1/models lists those" in message) == (501, True)
    status, message = evaluate(ask, ["POST", "api/pull"])[0]
    assert (status, "/api/tags lists those" in message) == (501, True)


def test_one_model_at_a_whole_path(tmp_path: Path) -> None:
    evaluate = evaluator(tmp_path, ["app/sdk/endpoints.js"])
    ask = "a.map((path) => m.modelAt(path, true)?.id ?? null)"
    assert evaluate(ask, "v1/models/a", "api/v0/models/a/b", "api/v1/models/a") == ["a", "a/b", None]
    assert evaluate(ask, "api/v0/models", "api/v0/models/", "my-api/v0/models/a") == [None, None, None]


def test_a_prompt_that_is_too_long_is_counted(tmp_path: Path) -> None:
    """llama.cpp's two fields, beside those of OpenAI's shape and in llama.cpp's own; other errors lack them."""
    evaluate = evaluator(tmp_path, ["app/sdk/fetch.js", "app/sdk/error.js"])
    ask = """(() => {
      const fail = () => Promise.reject(new m.WispError(a[1]));
      const engine = { completions: { create: fail }, llama: { completion: fail } };
      return m.engineFetch(engine, `http://wisp/${a[0]}`, { method: "POST", body: "{}" })
        .then(async (answer) => [answer.status, (await answer.json()).error]);
    })()"""
    body = {"message": "long", "type": "invalid_request_error", "param": "prompt", "code": "context_length_exceeded"}
    counts = {"n_prompt_tokens": 900, "n_ctx": 512}
    assert evaluate(ask, "v1/completions", body | counts) == [400, body | counts]
    theirs = body | counts | {"code": 400, "type": "exceed_context_size_error"}
    assert evaluate(ask, "completion", body | counts) == [400, theirs]
    assert evaluate(ask, "v1/completions", body) == [400, body]


def test_a_body_that_is_no_object_is_the_clients_error(tmp_path: Path) -> None:
    """Before it reaches the engine, which sees a copy of the body's fields."""
    evaluate = evaluator(tmp_path, ["app/sdk/fetch.js"])
    ask = """(() => {
      const engine = new Proxy(() => {}, { get: (target, name, proxy) => proxy });
      const asked = m.engineFetch(engine, `http://wisp/${a[0]}`, { method: "POST", body: a[1] });
      return asked.then(async (answer) => [answer.status, (await answer.json()).error]);
    })()"""
    for endpoint in (e for e in ENDPOINTS.values() if e.method == "POST" and not e.form):
        for body, found in (("null", "null"), ("5", "a number"), ('"messages"', "a string"), ("true", "a boolean")):
            status, error = evaluate(ask, endpoint.path, body)
            message = error if isinstance(error, str) else error["message"]
            assert (status, message) == (400, f"Expected a JSON object as the request, not {found}."), endpoint.path


def test_a_list_reaches_ollamas_endpoints_as_one(tmp_path: Path) -> None:
    evaluate = evaluator(tmp_path, ["app/sdk/fetch.js"])
    ask = """new Promise((resolve) => m.engineFetch({ ollama: { chat: resolve } }, "http://wisp/api/chat",
      { method: "POST", body: "[]" }))"""
    assert evaluate(ask) == []


def test_the_documentation_lists_every_path() -> None:
    text = (ROOT / "docs" / "http-api.md").read_text()
    for endpoint in ENDPOINTS.values():
        assert all(f"/{path}`" in text for path in (endpoint.path, *endpoint.also)), endpoint.path
