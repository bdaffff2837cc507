"""Embeddings and scores of whole sequences, of one loaded model. Engine.embeddings; pooling.py has the poolings."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from py_engine.errors import WispError
from py_engine.generate.generation import Generation
from py_engine.generate.pooled import Group, Pooled, pooled_rows
from py_engine.plan.lists import EMBED, NORMALIZE, PREFILL
from py_engine.plan.plan import Embedding
from py_engine.plan.pooling import NAMES
from py_engine.runners import Runner


class Embeddings:
    """What one engine computes of whole sequences."""

    def __init__(self, generation: Generation, check_ids: Callable[[Sequence[int]], None]) -> None:
        self._generation, self._check_ids = generation, check_ids

    @property
    def _runner(self) -> Runner:  # another one after a lost GPU
        return self._generation.runner

    @property
    def _embedding(self) -> Embedding | None:
        return self._runner.plan.embedding

    @property
    def pooling(self) -> str:
        """The default pooling of this model's embeddings."""
        pooling = self._embedding.pooling if self._embedding else None
        if self._runner.plan.causal and pooling in (None, "none"):
            return "last"
        return pooling or "none"

    @property
    def width(self) -> int:
        """Values of an embedding."""
        return self._embedding.width if self._embedding else 0

    @property
    def preferred(self) -> bool:
        """Whether this is an embedding model: an encoder, or a model whose metadata names a pooling."""
        pooling = self._embedding.pooling if self._embedding else None
        return not self._runner.plan.generates or pooling not in (None, "none")

    async def one(self, ids: list[int], pooling: str | None = None) -> tuple[Any, tuple[int, ...]]:
        """The embedding of a sequence before normalisation, float32 as Engine.evaluate() returns it, and its shape.

        `pooling`: "mean", "cls" (first token), "last" (last token), "rank" (the classification head's scores,
        (labels,)) or "none" (every token, (n, n_embd)). Default: the model's metadata, else "last" for a causal model
        and "none" for an encoder or a diffusion model.
        """
        kind = pooling or self.pooling
        self._check_ids(ids)
        width = self._width(kind)
        if kind != "none":
            name = "ranked" if kind == "rank" else "pooled"
            async with aclosing(self._pooled([[ids]], Pooled(kind, name, width))) as results:
                rows = await anext(results)
            return (rows[0] if self._runner.numpy else rows), (width,)
        return await self._generation.alone(lambda: self._rows(ids)), (len(ids), width)

    async def _rows(self, ids: list[int]) -> Any:
        """The embedding of each token, (len(ids), n_embd)."""
        assert self._embedding is not None
        parts, width = [], self._embedding.width
        async with aclosing(self._generation.feed(ids, self._runner.plan.batch, [PREFILL, EMBED])) as batches:
            async for n in batches:
                parts.append(await self._runner.rows(self._embedding.rows, n, width))
        return joined(self._runner, parts)

    async def all(self, groups: Iterable[Group], pooling: str, *, unit: bool = True) -> AsyncGenerator[Any]:
        """Pooled embeddings, in order: in float32, rows of some sequences at a time, (n, n_embd).

        `unit`: scale them to length 1.
        On a GPU, the next group is taken before the result of the one before is awaited.
        """
        what = Pooled(pooling, "pooled", self._width(pooling), [NORMALIZE] if unit else [])
        async with aclosing(self._pooled(self._checked(groups), what)) as results:
            async for rows in results:
                yield rows

    async def scores(self, groups: Iterable[Group]) -> AsyncGenerator[list[list[float]]]:
        """A ranking model's score of each label, per sequence; probabilities where the architecture defines them so.

        Groups and results are as in all().
        """
        labels = self._width("rank")
        softmax = self._embedding is not None and self._embedding.softmax
        what = Pooled("rank", "ranked", labels)
        async with aclosing(self._pooled(self._checked(groups), what)) as results:
            async for found in results:
                flat = (found.reshape(-1) if self._runner.numpy else found.to_py()).tolist()
                rows: list[list[float]] = [flat[at : at + labels] for at in range(0, len(flat), labels)]
                yield [_softmax(row) for row in rows] if softmax else rows

    async def _pooled(self, groups: Iterable[Group], what: Pooled) -> AsyncGenerator[Any]:
        """pooled_rows(), while nothing else uses the engine: all sequences pool into the same rows."""
        rows_of = self._generation.access.yield_alone(pooled_rows(self._generation, groups, what))
        async with aclosing(rows_of) as results:
            async for rows in results:
                yield rows

    def _width(self, pooling: str) -> int:
        """The width of a pooled row. WispError for poolings that do not exist."""
        embedding = self._embedding
        if embedding is None or pooling not in NAMES or (pooling == "rank" and not embedding.labels):
            raise WispError(
                f"This model's embeddings cannot be pooled by {pooling!r}.", "invalid_value", param="pooling"
            )
        return embedding.labels if pooling == "rank" else embedding.width

    def _checked(self, groups: Iterable[Group]) -> Iterator[Group]:
        for group in groups:
            for ids in group:
                self._check_ids(ids)
            yield group


def joined(runner: Runner, parts: list[Any]) -> Any:
    """Rows of several batches as one array: numpy's, or a Float32Array."""
    if runner.numpy:
        import numpy as np

        return np.concatenate(parts)
    from py_engine.gpu.gpu import concatenate

    return concatenate(parts)


def _softmax(values: list[float]) -> list[float]:
    top = max(values)
    exponentials = [math.exp(v - top) for v in values]
    return [e / sum(exponentials) for e in exponentials]
