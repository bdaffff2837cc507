"""What the SDK makes of `load({ lora })`, and how it tells two methods of a path apart, in Node."""

from pathlib import Path

import pytest

from tests.support.js_modules import Evaluate, evaluator


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    folder: Path = tmp_path_factory.mktemp("sdk")
    return evaluator(folder, ["app/sdk/adapters.js", "app/sdk/endpoints.js"])


def test_files_and_options_of_adapters(evaluate: Evaluate) -> None:
    """An address, a File, an object, or several."""
    one = "https://a.org/x.gguf"
    assert evaluate("m.adapterFields(undefined)") == {}
    assert evaluate("m.adapterFields(a[0])", one) == {"adapters": [one], "lora": [{}]}
    given = [one, {"model": one, "scale": 0.5}, {"scale": 1}, None]
    found = evaluate("m.adapterFields(a[0])", given)
    assert found == {"adapters": [one, one, None, None], "lora": [{}, {"scale": 0.5}, {"scale": 1}, {}]}
    file = "m.adapterFields([new Blob(['x'])]).adapters[0] instanceof Blob"
    assert evaluate(file) is True


def test_a_path_of_two_methods(evaluate: Evaluate) -> None:
    asked = "a.map(([path, method]) => m.endpointAt(path, true, method)?.sdk ?? null)"
    paths = [["/lora-adapters", "GET"], ["lora-adapters", "POST"], ["/props", "POST"], ["/nothing", "GET"]]
    assert evaluate(asked, *paths) == ["llama.loraAdapters", "llama.setLoraAdapters", "llama.props", None]


def test_a_misspelt_path_below_v1_is_no_other_servers(evaluate: Evaluate) -> None:
    """llama.cpp has /completion, at any prefix but this one."""
    asked = "a.map((path) => m.endpointAt(path)?.sdk ?? null)"
    paths = ["/v1/chat/completion", "/base/v1/chat/completions", "/base/completion", "/v1/completion"]
    assert evaluate(asked, *paths) == [None, "chat.completions.create", "llama.completion", "llama.completion"]
    assert evaluate(asked, "/v1/account/v1/chat/completions") == ["chat.completions.create"]


def test_paths_without_v1_are_llama_cpps(evaluate: Evaluate) -> None:
    """Its clients need not say v1; without it, three endpoints are others."""
    asked = "a.map((path) => m.endpointAt(path)?.sdk ?? null)"
    paths = ["/chat/completions", "/completions", "/embeddings", "/embedding", "/reranking", "/models"]
    wanted = ["chat.completions.create", "llama.completion", "llama.embeddings", "llama.embeddings", "rerank"]
    assert evaluate(asked, *paths) == [*wanted, "models.list"]
    paths = ["/v1/completions", "/v1/embeddings", "/api/embeddings", "/v1/reranking", "/v1/models", "/v1/x/models"]
    wanted = ["completions.create", "embeddings.create", "ollama.embeddings", "rerank", "models.list"]
    assert evaluate(asked, *paths) == [*wanted, None]
    paths = [
        "/api/v0/completions",
        "/x/api/v0/chat/completions",
        "/api/v0/embeddings",
        "/api/v0/models",
        "/api/v1/models",
    ]
    wanted = ["lmStudio.completions.create", "lmStudio.chat.completions.create", "embeddings.create"]
    assert evaluate(asked, *paths) == [*wanted, "lmStudio.models.list", "lmStudio.models.listV1"]
    paths = ["/api/v1/chat/completions", "/api/v1/chat", "/api/v1/x"]
    assert evaluate(asked, *paths) == ["chat.completions.create", "lmStudio.chat.create", None]


def test_a_list_is_sent_as_it_is(evaluate: Evaluate) -> None:
    code = """(async () => {
      const sent = [];
      const connection = { call: (...args) => sent.push(args), onUpdate: new Set() };
      const api = new m.Endpoints(connection);
      api.llama.setLoraAdapters([{ id: 0, scale: 1 }]);
      api.llama.loraAdapters();
      api.llama.detokenize({ tokens: [1], signal: undefined });
      return sent.map(([kind, fields]) => [kind, fields ?? null]);
    })()"""
    assert evaluate(code) == [
        ["llama.setLoraAdapters", {"request": [{"id": 0, "scale": 1}]}],
        ["llama.loraAdapters", None],
        ["llama.detokenize", {"request": {"tokens": [1]}}],
    ]
