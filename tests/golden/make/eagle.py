"""Compare EAGLE-3 heads with llama.cpp's: `python -m tests.golden.make.eagle`.

The unit tests compare Wisp with tests/support/eagle_models.py. This compares that reference with llama.cpp, and exits
with 1 if a head's logits differ by more than MOST times what the model's own do: by more than rounding.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.golden.make.drafters import DECODE, ENCODE, INPUT, SET_INPUT, SET_STATES, STATES, Drafter, Embedding
from tests.golden.make.llama_cpp import Model
from tests.golden.make.llama_cpp_api import Library, library
from tests.support import eagle_models

CONTEXT = 0  # llama_context_type
MOST = 1.5  # differences of a head's logits, in those of the model's own
IDS = [(37 * i + 11) % 300 for i in range(40)]
DRAFTED = [5, 9, 250]


class Head(Drafter):
    """An EAGLE-3 head with the context of its model. `width`: of the head; `wide`: of the model."""

    def __init__(self, found: Library, path: Path, model: Model, width: int, wide: int) -> None:
        super().__init__(found, path, model, CONTEXT)
        self.width, self.wide = width, wide
        for layer in eagle_models.READ:
            self.call(SET_INPUT, model.context, layer, True)
        self.call(SET_STATES, self.context, True, True)

    def drafts(self, ids: Sequence[int], drafted: Sequence[int]) -> np.ndarray:
        """The logits (1 + len(drafted), vocab) after `ids`, and after each of some drafted tokens."""
        n, states = len(ids) - 1, self._fused(ids[:-1])  # of the tokens before those that are embedded
        logits = []
        for i, token in enumerate([None, *drafted]):
            batch = self.call("llama_batch_ext_init", self.context)
            tokens = ids[1:] if token is None else [token]
            first = 0 if token is None else n + i - 1
            for m, embedded in enumerate(tokens):
                at = self.call("llama_batch_ext_add_token", batch, 0, embedded)
                assert self.call("llama_batch_ext_set_embd_token", batch, at, Embedding.of(states[m]))
                self.place(batch, at, first + m)  # llama.cpp computes the logits of all, whichever are asked for
            self.process(DECODE, batch)
            logits.append(self.logits_at(len(tokens) - 1))
            states = self.state_at(self.context, len(tokens) - 1, self.width)[None]
        return np.stack(logits)

    def _fused(self, ids: Sequence[int]) -> np.ndarray:
        """What llama.cpp's encoder makes of the model's hidden states: (n, width)."""
        self.target.logits(ids)
        inputs = [
            np.ctypeslib.as_array(self.call(INPUT, self.target.context, layer), (len(ids), self.wide)).copy()
            for layer in eagle_models.READ
        ]
        rows = np.concatenate(inputs, axis=1)
        batch = self.call("llama_batch_ext_init", self.context)
        for position, row in enumerate(rows):
            self.place(batch, self.call("llama_batch_ext_add_embd", batch, 0, Embedding.of(row)), position)
        self.process(ENCODE, batch)
        return np.ctypeslib.as_array(self.call(STATES, self.context), (len(ids), self.width)).copy()


def main() -> int:
    """Compare a head of each kind, and of each architecture; return the exit code."""
    worst = 0.0  # difference, in those of the model's own logits
    for name, kind in {**eagle_models.KINDS, **eagle_models.OTHERS}.items():
        with tempfile.TemporaryDirectory() as folder:
            paths = Path(folder) / "model.gguf", Path(folder) / "head.gguf"
            eagle_models.write(kind, *paths, np.float32)  # llama.cpp rounds activations for F16
            found = library("xllamacpp")
            model, reference = Model(found, paths[0]), eagle_models.EagleReference(*paths)
            noise = np.abs(model.logits(IDS) - reference.model.logits(IDS)).max()
            model.clear_cache()
            want, got = (
                reference.drafts(IDS, DRAFTED),
                Head(found, paths[1], model, kind.width, reference.model.width).drafts(IDS, DRAFTED),
            )
            known = np.isfinite(want)
            assert (known == np.isfinite(got)).all(), "the same tokens are known"
            differences = np.where(known, np.abs(got - np.where(known, want, 0)), 0).max(axis=1)
            print(name, "largest difference of each token's logits:", differences, "model's", noise, flush=True)
            worst = max(worst, float(differences.max() / noise))
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
