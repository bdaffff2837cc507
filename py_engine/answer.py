"""An answer as it grows: what was generated of it, and where it lies in the context."""

from __future__ import annotations

from dataclasses import dataclass, field

from py_engine.sampling import Batch, Constraint, Sampling


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

    def __post_init__(self) -> None:
        self.begins = len(self.ids)

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
