"""Logits processors and stopping rules in Python, on numpy."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from app.answers.hooks import Hooks, ProcessLogits

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# (ids of the prompt and of the answer so far, logits float32 (vocab,)) -> the logits to sample from; None: changed in
# place. Logits are the model's, before bias, penalties, temperature and filters. -inf forbids a token.
LogitsProcessor = Callable[[Sequence[int], "NDArray[np.float32]"], "NDArray[Any] | None"]
StopWhen = Callable[[Sequence[int], str], bool]  # (ids of the answer so far, its text so far) -> whether it ends
FORBIDDEN = -1e30  # finite: kernels subtract the largest logit from all


def hooks_of(processor: LogitsProcessor | None, stop_when: StopWhen | None) -> Hooks:
    """A request's hooks."""
    return Hooks(_adapted(processor) if processor is not None else None, stop_when)


def array_of(values: Any) -> "NDArray[np.float32]":
    """A numpy array of its own, float32, from a Float32Array or a numpy array."""
    import numpy as np

    return np.array(values.to_py() if hasattr(values, "to_py") else values, np.float32)


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
