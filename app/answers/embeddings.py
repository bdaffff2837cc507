"""Answer requests for embeddings, in OpenAI's shape, and for rankings of documents.

Embeddings are pooled as the model's metadata says and normalised to length 1, unless a request names another norm.
Without metadata, a causal model pools the last token and an encoder the mean. Source of the norms, of the ranking's
prompt and of its answer: llama.cpp's server.
"""

import base64
import math
import re
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from app.models.loaded import Loaded
from app.openai.fields import boolean, integer, one_of
from py_engine.errors import WispError, prompt_too_long
from py_engine.generate.request_queue import Job

MAX_INPUTS = 2048
FIRST_GROUP = 512  # tokens of the first group of texts that are computed at once
GROUP_S = 0.05  # seconds that a group should take
# Norms by their numbers in `embd_normalize`. The others, from 1 on, are p-norms.
AS_COMPUTED = -1  # no norm
MAXIMUM = 0  # the largest absolute value
EUCLIDEAN = 2  # the length
LARGEST = 32760  # the largest value of an embedding that is scaled by MAXIMUM: it fits an int16
_IGNORED = ("model", "user", "ttl", "keep_alive")
_EMBEDDING = ("input", "dimensions", "encoding_format", "embd_normalize", *_IGNORED)
_RANKING = (
    "query", "documents", "texts", "top_n", "return_documents", "return_text", "truncate", "truncation_direction",
    "raw_scores", *_IGNORED,
)  # fmt: skip


@dataclass(frozen=True)
class EmbeddingRequest:
    """A checked request for embeddings of texts or token ids."""

    inputs: list[str | list[int]]
    dimensions: int | None = None
    as_base64: bool = False
    truncate: bool = False  # shorten what is longer than the context
    param: str = "input"  # the field of the inputs, for errors
    norm: int = EUCLIDEAN  # by which each embedding is scaled, llama.cpp's embd_normalize


@dataclass(frozen=True)
class RankRequest:
    """A checked request for a ranking. `return_documents`: the answer has the documents, too."""

    query: str
    documents: list[str]
    top_n: int
    return_documents: bool = False
    tei: bool = False  # the request and its answer, a list, have the form of Text Embeddings Inference
    cut_side: str = ""  # where a document that is too long loses tokens: "left" or "right"; "": it is refused
    raw: bool = True  # scores as the model computes them, else their sigmoids

    @property
    def param(self) -> str:
        """The field of the documents, for errors."""
        return "texts" if self.tei else "documents"


def embedding_request(body: Any, param: str = "input") -> EmbeddingRequest:
    """Check a request for embeddings. `param`: the client's name of `input`, for errors."""
    body = _fields(body, _EMBEDDING)
    form = body.get("encoding_format")
    if form not in (None, "float", "base64"):
        raise WispError(
            'encoding_format must be "float" or "base64".',
            "invalid_value" if isinstance(form, str) else "invalid_type",
            param="encoding_format",
        )
    inputs = _inputs(body.get("input"), param)
    norm = integer(body, "embd_normalize", AS_COMPUTED)
    return EmbeddingRequest(
        inputs,
        _positive(body, "dimensions"),
        form == "base64",
        param=param,
        norm=EUCLIDEAN if norm is None else norm,
    )


def rank_request(body: Any) -> RankRequest:
    """Check a request for a ranking: query, documents (texts, or objects with a text) and top_n.

    `texts` in place of `documents` asks for the answer of Text Embeddings Inference, as in llama.cpp.
    """
    body = _fields(body, _RANKING)
    tei = body.get("texts") is not None
    if tei and body.get("documents") is not None:
        raise WispError("Give documents or texts, not both.", "invalid_value", param="texts")
    param = "texts" if tei else "documents"
    query, documents = body.get("query"), body.get(param)
    if not isinstance(query, str):
        raise WispError("query must be a string.", "invalid_type", param="query")
    if not isinstance(documents, list):
        raise WispError(f"{param} must be a list of texts.", "invalid_type", param=param)
    if not documents:
        raise WispError(f"{param} is empty.", "invalid_value", param=param)
    texts: list[Any] = [d.get("text") if isinstance(d, dict) else d for d in documents]
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise WispError(f"{param}[{i}] must be a text.", "invalid_type", param=f"{param}[{i}]")
    # Each form has its own name for the switch; the other form's name counts where that is absent.
    name, other = ("return_text", "return_documents") if tei else ("return_documents", "return_text")
    shown = boolean(body, name, default=boolean(body, other))
    top = min(_positive(body, "top_n") or len(texts), len(texts))
    raw = boolean(body, "raw_scores", default=True)
    side = one_of(body, "truncation_direction", ("Right", "Left", "right", "left")) or "Right"
    return RankRequest(query, texts, top, shown, tei, side.lower() if boolean(body, "truncate") else "", raw)


def _fields(body: Any, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise WispError("The request must be an object.", "invalid_type")
    if unknown := next((name for name in body if name not in known), None):
        raise WispError(f"{unknown} is not a parameter of this endpoint.", "unsupported_parameter", param=unknown)
    return body


def _positive(body: dict[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise WispError(f"{name} must be an integer.", "invalid_type", param=name)
    if value < 1:
        raise WispError(f"{name} must be at least 1.", "invalid_value", param=name)
    return value


def _inputs(value: Any, param: str) -> list[str | list[int]]:
    """Check inputs: a text, a list of ids, or a list of either. `param`: their field."""
    if isinstance(value, str) or _are_ids(value):
        value = [value]
    if not isinstance(value, list):
        raise WispError(f"{param} must be a text, a list of token ids, or a list of them.", "invalid_type", param=param)
    if not 0 < len(value) <= MAX_INPUTS:
        raise WispError(f"{param} must have from 1 to {MAX_INPUTS} items.", "invalid_value", param=param)
    for i, one in enumerate(value):
        name = f"{param}[{i}]" if len(value) > 1 else param
        if one in ("", []):
            raise WispError(f"{name} is empty.", "invalid_value", param=name)
        if not isinstance(one, str) and not _are_ids(one):
            raise WispError(f"{name} must be a text or a list of token ids.", "invalid_type", param=name)
    return value


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and set(map(type, value)) == {int}  # a bool's type is not int


async def embeddings(model: Loaded, request: EmbeddingRequest, job: Job) -> dict[str, Any]:
    """Compute the embedding of each input, in order: base64, or an array of f32."""
    engine = model.engine_or_error()
    if engine.embeddings.pooling == "rank":
        raise WispError(
            "This model ranks documents and makes no embeddings. Use /v1/rerank, or load an embedding model.",
            "unsupported_parameter",
            param="model",
        )
    width = engine.embeddings.width
    if request.dimensions and request.dimensions > width:
        raise WispError(
            f"dimensions is {request.dimensions}; this model's embeddings have {width}.",
            "invalid_value",
            param="dimensions",
        )
    pooling = "mean" if engine.embeddings.pooling == "none" else engine.embeddings.pooling
    sequences = _Sequences(_tokenized(model, request), job)
    data: list[dict[str, Any]] = []
    unit = request.norm == EUCLIDEAN
    async with aclosing(engine.embeddings.all(sequences, pooling, unit=unit)) as results:
        async for found in results:
            # a JavaScript Float32Array, or a numpy array
            flat = array("f", found.to_bytes() if hasattr(found, "to_bytes") else found.tobytes())
            for vector in _vectors(flat, width, request):
                out = base64.b64encode(vector.tobytes()).decode() if request.as_base64 else vector
                data.append({"object": "embedding", "index": len(data), "embedding": out})
    usage = {"prompt_tokens": sequences.tokens, "total_tokens": sequences.tokens}
    return {"object": "list", "data": data, "model": model.id, "usage": usage}


def _tokenized(model: Loaded, request: EmbeddingRequest) -> Iterator[list[int]]:
    """The checked token ids of each input."""
    longest = model.engine_or_error().context_length
    for i, one in enumerate(request.inputs):
        name = f"{request.param}[{i}]" if len(request.inputs) > 1 else request.param
        ids = model.tokenizer.encode(one, True, True) if isinstance(one, str) else one
        model.check_ids(ids, name)
        if request.truncate and len(ids) > longest:
            ids = _shortened(ids, longest, model.tokenizer.encode("", True, True))
        _check_length(model.engine_or_error(), ids, name)
        yield ids


def _shortened(ids: list[int], length: int, around: list[int]) -> list[int]:
    """The first ids of a text. The one that ends all texts, such as SEP, stays. `around`: the ids of an empty text."""
    end = around[-1:] if len(around) > 1 and ids[-1:] == around[-1:] else []
    return [*ids[: length - len(end)], *end]


def _vectors(flat: "array[float]", width: int, request: EmbeddingRequest) -> Iterator["array[float]"]:
    """Cut rows of `width` values apart; shorten each to the request's dimensions, and scale it by the request's norm.

    The engine has scaled whole rows by EUCLIDEAN already.
    """
    for at in range(0, len(flat), width):
        vector = flat[at : at + (request.dimensions or width)]
        is_done = request.norm == AS_COMPUTED or (request.norm == EUCLIDEAN and len(vector) == width)
        yield vector if is_done else array("f", scaled(vector, request.norm))


async def rank(model: Loaded, request: RankRequest, job: Job) -> Any:
    """Rank the documents by their relevance to the query, in descending order."""
    engine = model.engine_or_error()
    if engine.embeddings.pooling != "rank":
        raise WispError(
            "This model does not rank documents. Load one that does.", "unsupported_parameter", param="model"
        )
    sequences = _Sequences(_pairs(model, request), job)
    scores: list[float] = []
    async with aclosing(engine.embeddings.scores(sequences)) as results:
        async for rows in results:
            scores += [float(labels[0]) for labels in rows]
    order = sorted(range(len(scores)), key=lambda i: -scores[i])[: request.top_n]
    scores = scores if request.raw else list(map(_sigmoid, scores))  # once ordered: sigmoids of large scores are equal
    texts, shown = request.documents, request.return_documents
    if request.tei:
        return [{"index": i, "score": scores[i]} | ({"text": texts[i]} if shown else {}) for i in order]
    return {
        "object": "list",
        "results": [
            {"index": i, "relevance_score": scores[i]} | ({"document": {"text": texts[i]}} if shown else {})
            for i in order
        ],
        "model": model.id,
        "usage": {"prompt_tokens": sequences.tokens, "total_tokens": sequences.tokens},
    }


def _pairs(model: Loaded, request: RankRequest) -> Iterator[list[int]]:
    """The checked prompt of each document."""
    engine, query = model.engine_or_error(), request.query
    longest = engine.context_length
    for i, document in enumerate(request.documents):
        ids = rank_prompt(model, query, document)
        if len(ids) > longest:
            _check_length(engine, rank_prompt(model, query, ""), "query")
        words = model.tokenizer.encode(document) if request.cut_side and len(ids) > longest else []
        while words and (excess := len(ids) - longest) > 0:  # a shortened text may have more tokens than before
            words = words[excess:] if request.cut_side == "left" else words[: max(0, len(words) - excess)]
            ids = rank_prompt(model, query, model.tokenizer.decode(words))
        _check_length(engine, ids, f"{request.param}[{i}]")
        yield ids


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


class _Sequences:
    """Sequences in groups that the device computes at once. Raises WispError aborted between two groups.

    A group is made when the engine asks for it, so texts are tokenized while the device computes the group before.
    Its size follows the time from one request for a group to the next: long enough to wait for the device rarely, short
    enough to notice an abort soon.
    """

    def __init__(self, sequences: Iterator[list[int]], job: Job) -> None:
        self.tokens = 0  # of all groups so far
        self._sequences, self._job = sequences, job

    def __iter__(self) -> Iterator[list[list[int]]]:
        size, count, group = FIRST_GROUP, 0, list[list[int]]()
        started = time.perf_counter()
        for ids in self._sequences:
            if group and count + len(ids) > size:
                self._job.check()
                yield group
                now = time.perf_counter()
                spent, started = now - started, now
                size = size * 2 if spent < GROUP_S / 2 else max(1, size // 2) if spent > 2 * GROUP_S else size
                count, group = 0, []
            group.append(ids)
            count += len(ids)
            self.tokens += len(ids)
        self._job.check()
        yield group


def rank_prompt(model: Loaded, query: str, document: str) -> list[int]:
    """The prompt of a ranking: the model's template, else both texts with the tokenizer's special tokens."""
    tokenizer, metadata = model.tokenizer, model.header.metadata
    if template := metadata.get("tokenizer.chat_template.rerank"):
        texts = {"{query}": query, "{document}": document}
        return tokenizer.encode(re.sub(r"\{query}|\{document}", lambda m: texts[m[0]], str(template)), False, True)
    sep = tokenizer.vocab.special("sep")
    end = tokenizer.eos_id if tokenizer.eos_id is not None else sep
    has_sep = metadata.get("tokenizer.ggml.add_sep_token", tokenizer.always_wrap)
    begin = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
    close = [end] if tokenizer.add_eos and end is not None else []
    between = [sep] if has_sep and sep is not None else []
    return [*begin, *tokenizer.encode(query), *close, *between, *tokenizer.encode(document), *close]


def _check_length(engine: Any, ids: list[int], param: str) -> None:
    if len(ids) > engine.context_length:
        raise prompt_too_long(
            f"{param} has {len(ids)} tokens; this model's context holds {engine.context_length}. Shorten it, or load "
            "the model with a longer context.",
            len(ids),
            engine.context_length,
            param,
        )
    if not ids:
        raise WispError(f"{param} has no tokens.", "invalid_value", param=param)


def scaled(vector: Sequence[float], norm: int) -> list[float]:
    """A vector over its norm: (the sum of |x|^norm)^(1/norm), or for MAXIMUM the largest |x| over LARGEST.

    A zero vector stays zero.
    """
    largest = max(map(abs, vector), default=0.0)
    if not largest:
        return list(vector)
    if norm == MAXIMUM:
        length = largest / LARGEST
    else:  # divided by the largest value first, powers cannot overflow
        length = largest * sum((abs(x) / largest) ** norm for x in vector) ** (1 / norm)
    return [x / length for x in vector]
