"""An answer as it grows: what was generated of it, and where it lies in the context."""

from __future__ import annotations

from dataclasses import dataclass, field

from py_engine.plan.sampling import Batch, Constraint, Sampling


@dataclass
class GenerationStats:
    """One request in numbers; `prefill_ms` ends with the first token."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    shifted_tokens: int = 0  # dropped from a context that was full
    prefill_ms: float = 0.0
    decode_ms: float = 0.0
    submits: int = 0
    dispatches: int = 0
    encode_ms: float = 0.0  # spent on asking the GPU
    wait_ms: float = 0.0  # spent on waiting for its answers: little means that the host is the slower


@dataclass
class Answer:
    """One request's. `ids` begins as the prompt, and is what the context holds, or will hold."""

    ids: list[int]
    sampling: Sampling
    left: int  # tokens that may still come
    stop_ids: frozenset[int]
    constraint: Constraint | None = None
    exact: bool = False  # equal seeds are to give equal text, whatever the cache holds
    begins: int = field(init=False)  # position of its first token in `ids`
    tokens: int = 0  # so far
    shifted: int = 0  # tokens dropped from the context
    done: bool = False
    paused: bool = False  # others have the device; it will go on
    stats: GenerationStats = field(default_factory=GenerationStats)

    def __post_init__(self) -> None:
        self.begins = len(self.ids)

    @property
    def together(self) -> bool:
        """Whether it may be generated with others: its tokens need nothing but the logits. What is to be exact is
        computed alone: sums in another order round differently.
        """
        plain = self.constraint is None and not self.sampling.shapes and self.sampling.logprobs < 0
        return plain and not self.exact

    def take(self, batch: Batch) -> Batch:
        """The tokens up to one that ends the answer."""
        stop = next((i for i, token in enumerate(batch.ids) if token in self.stop_ids), None)
        batch = batch if stop is None else batch[: stop + 1]
        self.tokens += len(batch.ids)
        self.left -= len(batch.ids)
        self.done = stop is not None or self.left <= 0
        return batch

    def shift(self, keep: int, n_ctx: int) -> int:
        """Make room: the first `keep` tokens stay, the older half of the others goes. Gives how many went."""
        keep = min(keep, n_ctx // 2)
        dropped = (len(self.ids) - keep) // 2
        del self.ids[keep : keep + dropped]
        self.begins = self.begins if self.begins <= keep else max(keep, self.begins - dropped)
        self.shifted += dropped
        return dropped
