"""The reference of samplers (support/sampling_reference.py) beside the probabilities of llama.cpp's server."""

import json
import math
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from py_engine.plan.sampling import Sampling
from tests.support.llama_server import llama_server
from tests.support.sampling_reference import distribution
from tools.paths import STATIC

pytestmark = pytest.mark.slow

KEY, VOCAB, COMPARED = "sk-of-the-test", 4096, 200
NO_FILTER: dict[str, Any] = {"temperature": 1.0, "min_p": 0.0, "top_p": 1.0, "top_k": 0}
CASES: list[dict[str, Any]] = [
    {"temperature": 0.8, "dynatemp_range": 0.6},
    {"temperature": 0.5, "dynatemp_range": 1.5, "dynatemp_exponent": 2.0, "top_k": 8},
    {"temperature": 0.0, "dynatemp_range": 1.2, "dynatemp_exponent": 0.5, "min_p": 0.02},
    {"temperature": 1.2, "top_n_sigma": 1.5, "top_p": 0.9},
    {"temperature": 1.3, "typical_p": 0.7},
    {"xtc_probability": 1.0, "xtc_threshold": 0.05},
    {"xtc_probability": 1.0, "xtc_threshold": 0.0, "top_k": 150},
    {"xtc_probability": 1.0, "xtc_threshold": 1e-7},
    {"temperature": 1.4, "top_k": 30, "typical_p": 0.9, "top_p": 0.95, "min_p": 0.02, "dynatemp_range": 0.5},
]


class Server:
    """llama.cpp's, with one prompt."""

    def __init__(self, url: str) -> None:
        self._url = url.removesuffix("v1") + "completion"
        self.logits = [-math.inf] * VOCAB
        for token in self._asked({"n_probs": VOCAB})["top_logprobs"]:
            self.logits[token["id"]] = token["logprob"]

    def probabilities(self, parameters: dict[str, Any]) -> dict[int, float]:
        """Of the likeliest tokens after the samplers."""
        found = self._asked(parameters | {"n_probs": COMPARED, "post_sampling_probs": True})["top_probs"]
        return {token["id"]: token["prob"] for token in found}

    def _asked(self, parameters: dict[str, Any]) -> Any:
        body = {"prompt": "The capital of", "n_predict": 1, "seed": 1, **NO_FILTER, **parameters}
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(self._url, json.dumps(body).encode(), headers)) as answer:
            return json.load(answer)["completion_probabilities"][0]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with llama_server(STATIC / "models" / "wisp-mini-q4_0.gguf", 64, KEY) as url:
        yield Server(url)


@pytest.mark.parametrize("parameters", CASES, ids=", ".join)
def test_probabilities_are_those_of_llama_cpp(server: Server, parameters: dict[str, Any]) -> None:
    want = distribution(server.logits, [], 0, Sampling(**NO_FILTER | parameters))
    got = server.probabilities(parameters)
    likeliest = sorted(range(VOCAB), key=lambda token: -want[token])[:COMPARED]
    for token in {*got, *likeliest}:
        assert got.get(token, 0.0) == pytest.approx(want[token], abs=1e-5), token
