"""Requests for embeddings and rankings, with an encoder's vocabulary and an engine that computes sums of ids."""

import base64
import math
import re
import struct
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from app.answers import embeddings
from app.answers.chat import Loaded
from app.models.loading import vocabulary
from py_engine.errors import WispError
from py_engine.files.gguf_header import parse
from py_engine.generate.request_queue import Job

BERT = Path(__file__).parents[1] / "golden" / "embedding" / "bert.F16.gguf"
CLS, SEP = 2, 3


class Engine:
    context_length = 20
    pooling = "mean"
    width = 3

    def __init__(self) -> None:
        self.embeddings = self
        self.asked: list[tuple[list[int], str]] = []
        self.groups: list[int] = []  # sequences of each call

    async def all(self, groups: Iterable[list[list[int]]], pooling: str, *, unit: bool) -> AsyncGenerator[np.ndarray]:
        for sequences in groups:
            self.asked += [(ids, pooling) for ids in sequences]
            self.groups.append(len(sequences))
            rows = np.array([[3.0, 4.0, len(ids)] for ids in sequences], np.float32)
            yield rows / np.linalg.norm(rows, axis=1, keepdims=True) if unit else rows

    async def scores(self, groups: Iterable[list[list[int]]]) -> AsyncGenerator[list[list[float]]]:
        for sequences in groups:
            self.asked += [(ids, "rank") for ids in sequences]
            yield [[float(sum(ids))] for ids in sequences]


def fake(model: Loaded) -> Engine:
    """The engine of the model under test."""
    return cast(Engine, model.engine)


@pytest.fixture
def model() -> Loaded:
    data = BERT.read_bytes()
    loaded = vocabulary("bert", parse(data, len(data)), {})
    loaded.engine = cast(Any, Engine())
    return loaded


async def create(model: Loaded, /, **body: Any) -> dict[str, Any]:
    return await embeddings.embeddings(model, embeddings.embedding_request(body), Job())


async def test_embedding_of_one_text(model: Loaded) -> None:
    answer = await create(model, input="hello", model="x", user="y")
    (ids, pooling) = fake(model).asked[0]
    assert (ids[0], ids[-1], pooling) == (CLS, SEP, "mean")
    assert answer["object"] == "list"
    assert answer["usage"] == {"prompt_tokens": len(ids), "total_tokens": len(ids)}
    (one,) = answer["data"]
    assert (one["object"], one["index"]) == ("embedding", 0)
    want = np.array([3, 4, len(ids)]) / np.sqrt(25 + len(ids) ** 2)
    np.testing.assert_allclose(one["embedding"], want, rtol=1e-6)


@pytest.mark.parametrize("dimensions", [None, 2])
@pytest.mark.parametrize(
    ("norm", "length"),
    [
        (-1, lambda row: 1),
        (0, lambda row: max(row) / 32760),
        (1, sum),
        (2, np.linalg.norm),
        (None, np.linalg.norm),
        (3, lambda row: sum(row**3) ** (1 / 3)),
        (1 << 31, max),
    ],
)
async def test_norms_of_embeddings(
    model: Loaded, norm: int | None, length: Callable[[Any], float], dimensions: int | None
) -> None:
    """As llama.cpp's server has them: none, the largest value of an int16, the sum, the length, and powers."""
    answer = await create(model, input="hello", embd_normalize=norm, dimensions=dimensions)
    row = np.array([3.0, 4.0, len(fake(model).asked[0][0])])[:dimensions]
    np.testing.assert_allclose(answer["data"][0]["embedding"], row / length(row), rtol=1e-6)
    coded = await create(model, input="hello", embd_normalize=norm, dimensions=dimensions, encoding_format="base64")
    assert base64.b64decode(coded["data"][0]["embedding"]) == answer["data"][0]["embedding"].tobytes()


@pytest.mark.parametrize("norm", [0, 1, 2, 7])
def test_a_vector_of_zeros_stays_as_it_is(norm: int) -> None:
    assert embeddings.scaled([0.0, 0.0], norm) == [0.0, 0.0]
    assert embeddings.scaled([-3e38, 0.0], norm)[0] == pytest.approx(-1 if norm else -32760)


async def test_several_inputs_in_each_form(model: Loaded) -> None:
    texts = await create(model, input=["hello", "world world"])
    assert [d["index"] for d in texts["data"]] == [0, 1]
    assert len(fake(model).asked[1][0]) > len(fake(model).asked[0][0])
    ids = await create(model, input=[[5, 6], [7]])
    assert [a[0] for a in fake(model).asked[2:]] == [[5, 6], [7]], "token ids stay as they are"
    assert ids["usage"]["prompt_tokens"] == 3
    single = await create(model, input=[5, 6])
    assert single["data"][0]["embedding"] == ids["data"][0]["embedding"]


async def test_texts_that_are_too_long_are_shortened_on_request(model: Loaded) -> None:
    request = replace(embeddings.embedding_request({"input": ["hello " * 30, [7] * 30, "hello"]}), truncate=True)
    answer = await embeddings.embeddings(model, request, Job())
    text, ids, short = (asked for asked, _ in fake(model).asked)
    assert (len(text), text[0], text[-1]) == (20, CLS, SEP)
    assert ids == [7] * 20
    assert short[-1] == SEP
    assert answer["usage"]["prompt_tokens"] == 40 + len(short)


async def test_fewer_dimensions_and_base64(model: Loaded) -> None:
    answer = await create(model, input="hello", dimensions=2, encoding_format="base64")
    raw = base64.b64decode(answer["data"][0]["embedding"])
    np.testing.assert_allclose(struct.unpack("<2f", raw), [0.6, 0.8], rtol=1e-6)


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "invalid_type", "input"),
        ({"input": 5}, "invalid_type", "input"),
        ({"input": ""}, "invalid_value", "input"),
        ({"input": []}, "invalid_value", "input"),
        ({"input": ["a", ""]}, "invalid_value", "input[1]"),
        ({"input": ["a", 5]}, "invalid_type", "input[1]"),
        ({"input": [[5], [True]]}, "invalid_type", "input[1]"),
        ({"input": [[5], [99999]]}, "invalid_value", "input[1]"),
        ({"input": ["a"] * 2049}, "invalid_value", "input"),
        ({"input": "a", "dimensions": 4}, "invalid_value", "dimensions"),
        ({"input": "a", "dimensions": 0}, "invalid_value", "dimensions"),
        ({"input": "a", "dimensions": 1.5}, "invalid_type", "dimensions"),
        ({"input": "a", "encoding_format": "int8"}, "invalid_value", "encoding_format"),
        ({"input": "a", "encoding_format": 1}, "invalid_type", "encoding_format"),
        ({"input": "a", "nonsense": 1}, "unsupported_parameter", "nonsense"),
        ({"input": ["a", "hello " * 30]}, "context_length_exceeded", "input[1]"),
    ],
    ids=lambda x: str(x)[:40],
)
async def test_bad_requests(model: Loaded, body: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(WispError) as caught:
        await create(model, **body)
    assert (caught.value.code, caught.value.param) == (code, param)


async def test_a_text_that_is_too_long_is_counted(model: Loaded) -> None:
    with pytest.raises(WispError) as caught:
        await create(model, input=[[5] * 99])
    assert caught.value.counts == {"n_prompt_tokens": 99, "n_ctx": fake(model).context_length}


async def test_an_encoder_without_pooling_type_uses_mean(model: Loaded) -> None:
    fake(model).pooling = "none"
    await create(model, input="hello")
    assert fake(model).asked[0][1] == "mean"


async def test_many_texts_are_computed_in_groups(model: Loaded) -> None:
    """Each group has as many texts as its tokens allow, at least one; the answers keep their order."""
    inputs = [[5] * (1 + i % 20) for i in range(200)]
    answer = await create(model, input=inputs)
    assert [ids for ids, _ in fake(model).asked] == inputs
    assert sum(fake(model).groups) == 200
    assert 1 < len(fake(model).groups) < 20
    assert [d["index"] for d in answer["data"]] == list(range(200))
    lengths = [round(4 * d["embedding"][2] / d["embedding"][1]) for d in answer["data"]]
    assert lengths == [len(ids) for ids in inputs]


async def test_an_abort_between_two_groups_ends_the_request(model: Loaded) -> None:
    job = Job()
    compute = fake(model).all

    async def abort_after(groups: Iterable[list[list[int]]], pooling: str, *, unit: bool) -> AsyncGenerator[np.ndarray]:
        async for rows in compute(groups, pooling, unit=unit):
            job.abort()
            yield rows

    fake(model).all = abort_after  # type: ignore[method-assign]
    request = embeddings.embedding_request({"input": [[5] * 20] * 100})
    with pytest.raises(WispError, match="aborted"):
        await embeddings.embeddings(model, request, job)
    assert len(fake(model).groups) == 1


async def test_rerank(model: Loaded) -> None:
    fake(model).pooling = "rank"
    with pytest.raises(WispError, match="ranks"):
        await create(model, input="hello")
    body = {"query": "hello", "documents": ["a", {"text": "world"}, "b"], "top_n": 2}
    answer = await embeddings.rank(model, embeddings.rank_request(body), Job())
    asked = [ids for ids, _ in fake(model).asked]
    query, world = model.tokenizer.encode("hello"), model.tokenizer.encode("world")
    assert asked[1] == [CLS, *query, SEP, *world]
    scores = [float(sum(ids)) for ids in asked]
    order = sorted(range(3), key=lambda i: -scores[i])[:2]
    assert answer["results"] == [{"index": i, "relevance_score": scores[i]} for i in order]
    assert answer["usage"]["prompt_tokens"] == sum(map(len, asked))


async def test_rerank_with_the_models_template(model: Loaded) -> None:
    model.header.metadata["tokenizer.chat_template.rerank"] = "[MASK]{query} and {document}[SEP]"
    ids = embeddings.rank_prompt(model, "{document}", "hello")
    assert ids == model.tokenizer.encode("[MASK]{document} and hello[SEP]", False, True)


async def test_an_aborted_request(model: Loaded) -> None:
    job = Job()
    job.abort()
    with pytest.raises(WispError, match="aborted"):
        await embeddings.embeddings(model, embeddings.embedding_request({"input": "a"}), job)
    assert not fake(model).asked


@pytest.mark.parametrize("body", [{"query": 1, "documents": ["a"]}, {"query": "a", "documents": []}, {"query": "a"}])
def test_bad_rerank_requests(body: dict[str, Any]) -> None:
    with pytest.raises(WispError):
        embeddings.rank_request(body)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"texts": "a"}, "texts"),
        ({"texts": []}, "texts"),
        ({"texts": ["a", 1]}, "texts[1]"),
        ({"texts": ["a"], "documents": ["a"]}, "texts"),
        ({"documents": ["a", 1]}, "documents[1]"),
        ({}, "documents"),
    ],
)
def test_errors_of_rankings_name_the_request_s_field(body: dict[str, Any], param: str) -> None:
    with pytest.raises(WispError, match=re.escape(param)) as caught:
        embeddings.rank_request({"query": "a"} | body)
    assert caught.value.param == param


async def test_a_text_that_is_too_long_is_named(model: Loaded) -> None:
    fake(model).pooling = "rank"
    request = embeddings.rank_request({"query": "hello", "texts": ["a", "hello " * 9999]})
    with pytest.raises(WispError) as caught:
        await embeddings.rank(model, request, Job())
    assert caught.value.param == "texts[1]"


async def test_rankings_with_their_documents(model: Loaded) -> None:
    fake(model).pooling = "rank"
    body = {"query": "hello", "documents": ["a", {"text": "world"}], "return_documents": True}
    answer: Any = await embeddings.rank(model, embeddings.rank_request(body), Job())
    texts = [result["document"]["text"] for result in answer["results"]]
    assert [result["index"] for result in answer["results"]] == [["a", "world"].index(text) for text in texts]
    plain = embeddings.rank_request(body | {"return_documents": False})
    assert "document" not in (await embeddings.rank(model, plain, Job()))["results"][0]


async def test_rankings_as_text_embeddings_inference_has_them(model: Loaded) -> None:
    """Also llama.cpp's server, where a request has texts."""
    fake(model).pooling = "rank"
    body = {"query": "hello", "texts": ["a", "world"]}
    whole: Any = await embeddings.rank(
        model, embeddings.rank_request({"query": "hello", "documents": body["texts"]}), Job()
    )
    wanted = [{"index": one["index"], "score": one["relevance_score"]} for one in whole["results"]]
    assert await embeddings.rank(model, embeddings.rank_request(body), Job()) == wanted
    told = await embeddings.rank(model, embeddings.rank_request(body | {"return_text": True, "top_n": 1}), Job())
    assert told == [wanted[0] | {"text": body["texts"][wanted[0]["index"]]}]


async def test_documents_that_are_too_long_are_shortened_where_asked(model: Loaded) -> None:
    fake(model).pooling = "rank"
    longest = model.engine_or_error().context_length
    body = {"query": "hello", "documents": ["a", "hello world " * 9999], "truncate": True}
    answer: Any = await embeddings.rank(model, embeddings.rank_request(body), Job())
    short = len(embeddings.rank_prompt(model, "hello", "a"))
    assert longest - 8 <= answer["usage"]["prompt_tokens"] - short <= longest
    with pytest.raises(WispError) as caught:  # nothing of a document would be left
        await embeddings.rank(model, embeddings.rank_request(body | {"query": "hello " * 9999}), Job())
    assert caught.value.param == "query"


async def test_the_side_of_a_document_that_is_left_out(model: Loaded) -> None:
    body = {"query": "a", "texts": ["hello " * 300 + "world " * 300], "truncate": True}

    def shortened(**direction: Any) -> str:
        (ids,) = embeddings._pairs(model, embeddings.rank_request(body | direction))
        return model.tokenizer.decode(ids)

    ends, begins = shortened(truncation_direction="Left"), shortened()
    assert (begins.count("hello") > 8, "world" in begins) == (True, False)
    assert (ends.count("world") > 8, "hello" in ends) == (True, False)
    assert shortened(truncation_direction="Right") == begins == shortened(truncation_direction=None)
    with pytest.raises(WispError) as caught:
        embeddings.rank_request(body | {"truncation_direction": "Middle"})
    assert (caught.value.code, caught.value.param) == ("invalid_value", "truncation_direction")


async def test_scores_may_be_sigmoids(model: Loaded) -> None:
    fake(model).pooling = "rank"
    body = {"query": "hello", "texts": ["a", "world"]}
    raw: Any = await embeddings.rank(model, embeddings.rank_request(body | {"raw_scores": True}), Job())
    assert await embeddings.rank(model, embeddings.rank_request(body), Job()) == raw
    found: Any = await embeddings.rank(model, embeddings.rank_request(body | {"raw_scores": False}), Job())
    assert [one["index"] for one in found] == [one["index"] for one in raw]
    assert [one["score"] for one in found] == pytest.approx([1 / (1 + math.exp(-one["score"])) for one in raw])


@pytest.mark.parametrize("field", ["documents", "texts"])
@pytest.mark.parametrize(
    ("documents", "text", "shown"),
    [
        (True, None, (True, True)),
        (None, True, (True, True)),
        (True, False, (True, False)),
        (False, True, (False, True)),
    ],
)
def test_the_switch_for_documents_has_a_name_in_each_form(
    field: str, documents: bool | None, text: bool | None, shown: tuple[bool, bool]
) -> None:
    """The other form's name counts only where a form's own is absent. `shown`: by documents, by texts."""
    body = {"query": "a", field: ["b"], "return_documents": documents, "return_text": text}
    assert embeddings.rank_request(body).return_documents == shown[field == "texts"]
    for name in ("return_documents", "return_text"):
        with pytest.raises(WispError) as caught:
            embeddings.rank_request(body | {name: "yes"})
        assert (caught.value.code, caught.value.param) == ("invalid_type", name)


@pytest.mark.parametrize("body", [{"ttl": 60}, {"keep_alive": "5m"}])
def test_how_long_a_model_stays_loaded_has_no_effect(body: dict[str, Any]) -> None:
    assert embeddings.embedding_request({"input": "a"} | body) == embeddings.embedding_request({"input": "a"})
