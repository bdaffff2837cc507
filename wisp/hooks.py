"""Logits processors and stopping rules: in Python on numpy, or in WGSL on the GPU."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from app.answers.hooks import Hooks, ProcessLogits
from py_engine.plan.processors import Processor, needs_gpu, processor, refused

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# (ids of the prompt and of the answer so far, logits float32 (vocab,)) -> the logits to sample from; None: changed in
# place. Logits are the model's, before bias, penalties, temperature and filters. -inf forbids a token.
LogitsProcessor = Callable[[Sequence[int], "NDArray[np.float32]"], "NDArray[Any] | None"]
StopWhen = Callable[[Sequence[int], str], bool]  # (ids of the answer so far, its text so far) -> whether it ends
FORBIDDEN = -1e30  # finite: kernels subtract the largest logit from all


class WgslProcessor:
    """A logits processor that runs on the GPU, in front of the sampler: nothing is read back.

    `source`: WGSL with a function `process(token: u32, logit: f32, ...) -> f32`, which returns the logit to sample
    from; its other parameters, u32, i32 or f32, are `values` by their names. It may call `token_count()` (of the prompt
    and the answer so far), `answer_count()`, `token_at(i)` and, with a table, `table_at(token)`. `python`: does the
    same where there is no GPU. WispError invalid_value for a source or values of the wrong form.
    """

    def __init__(
        self, source: str, values: Mapping[str, float] | None = None, *,
        table: "Sequence[float] | NDArray[Any] | None" = None, python: LogitsProcessor | None = None,
    ) -> None:  # fmt: skip
        self.python = python
        checked = processor(source)
        self.packed = checked.with_values(values or {}, b"" if table is None else _table_bytes(table))

    def on(self, backend: str | None, vocab: int) -> "Processor | LogitsProcessor":
        """What runs on a model: this, or its equivalent in Python. WispError where neither can."""
        if len(self.packed.table) > 4 * vocab:
            raise refused(f"The table has {len(self.packed.table) // 4} values; the vocabulary has {vocab} tokens.")
        if backend == "webgpu":
            return self.packed
        if self.python is None:
            raise needs_gpu()
        return self.python


AnyProcessor = LogitsProcessor | WgslProcessor


def hooks_of(
    given: "AnyProcessor | None", stop_when: StopWhen | None, backend: str | None = None, vocab: int = 0
) -> Hooks:
    """A request's hooks, for a model with this backend and vocabulary."""
    chosen = given.on(backend, vocab) if isinstance(given, WgslProcessor) else given
    if isinstance(chosen, Processor):
        return Hooks(None, chosen, stop_when)
    return Hooks(_adapted(chosen) if chosen is not None else None, None, stop_when)


def array_of(values: Any) -> "NDArray[np.float32]":
    """A numpy array of its own, float32, from a Float32Array or a numpy array."""
    import numpy as np

    return np.array(values.to_py() if hasattr(values, "to_py") else values, np.float32)


def _table_bytes(table: "Sequence[float] | NDArray[Any]") -> bytes:
    import numpy as np

    try:
        values = np.asarray(table, np.float32)
    except (TypeError, ValueError):
        values = np.empty(0, np.float32)
    if values.ndim != 1 or not len(values):
        raise refused("A processor's table must be a list of numbers, one for each token of the vocabulary.")
    return values.tobytes()


def _adapted(processor: LogitsProcessor) -> ProcessLogits:
    async def process(ids: Sequence[int], logits: Any) -> bytes:
        import numpy as np

        given = array_of(logits)
        made = processor(ids, given)
        out = np.asarray(given if made is None else made, np.float32)
        if out.shape != given.shape or np.isnan(out).any():
            raise ValueError(f"A logits processor must return {given.shape[0]} numbers, none of them NaN.")
        return np.maximum(out, np.float32(FORBIDDEN)).tobytes()

    return process
