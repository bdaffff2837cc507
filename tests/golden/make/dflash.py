"""Compare DFlash models with llama.cpp's: `python -m tests.golden.make.dflash`.

The unit tests compare Wisp with tests/support/dflash_models.py. This compares that reference with llama.cpp, and exits
with 1 if the logits of a draft differ by more than MOST times what the model's own do, or if the tokens do.
"""

import ctypes
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.make.drafters import DECODE, INPUT, SET_INPUT, Drafter, Embedding
from tests.golden.make.llama_cpp import Model
from tests.golden.make.llama_cpp_api import Library, library
from tests.support import dflash_models

CONTEXT = 0  # llama_context_type
RANDOM = 40  # DFlash models of random shapes
MOST = 4.0  # differences of a draft's logits, in those of the model's own
IDS = [(37 * i + 11) % 300 for i in range(40)]


class DFlash(Drafter):
    """A DFlash model with the context of its model. `wide`: of the model's states."""

    def __init__(self, found: Library, path: Path, model: Model, kind: dflash_models.Kind, wide: int) -> None:
        super().__init__(found, path, model, CONTEXT)
        self.kind, self.wide = kind, wide
        for layer in kind.read:
            self.call(SET_INPUT, model.context, layer, True)
        self.api.llama_set_causal_attn.argtypes = [ctypes.c_void_p, ctypes.c_bool]
        self.api.llama_set_causal_attn(self.context, kind.causal)

    def drafts(self, ids: Sequence[int], count: int) -> np.ndarray:
        """The logits (count, vocab) of the tokens after `ids`, of which the model computes all but the last."""
        self._inject(ids[:-1])
        batch = self.call("llama_batch_ext_init", self.context)
        for i, token in enumerate([ids[-1], *[dflash_models.MASK] * count]):
            self.place(batch, self.call("llama_batch_ext_add_token", batch, 0, token), len(ids) - 1 + i)
        self.process(DECODE, batch)
        return np.stack([self.logits_at(1 + i) for i in range(count)])

    def place(self, batch: Any, at: int, position: int) -> None:
        """Set the position of a batch's token, on each axis if there are several, and that its logits are read."""
        axes = (ctypes.c_int32 * 4)(position, position, position, 0)
        assert self.call("llama_batch_ext_set_pos", batch, at, axes)
        assert self.call("llama_batch_ext_set_output_logits", batch, at, True)

    def _inject(self, ids: Sequence[int]) -> None:
        """Fill the caches with keys and values of the model's hidden states."""
        self.target.logits(ids)
        inputs = [
            np.ctypeslib.as_array(self.call(INPUT, self.target.context, layer), (len(ids), self.wide)).copy()
            for layer in self.kind.read
        ]
        batch = self.call("llama_batch_ext_init", self.context)
        rows = np.concatenate(inputs, axis=1)
        for position, row in enumerate(rows):
            self.place(batch, self.call("llama_batch_ext_add_embd", batch, 0, Embedding.of(row)), position)
        self.process(DECODE, batch)


def main() -> int:
    """Compare a DFlash model of each kind, of each architecture, and of random shapes; return the exit code."""
    worst, same = 0.0, True  # difference, in those of the model's own logits
    shapes = {f"random {seed}": dflash_models.random_kind(seed) for seed in range(RANDOM)}
    for name, kind in {**dflash_models.KINDS, **dflash_models.OTHERS, **shapes}.items():
        with tempfile.TemporaryDirectory() as folder:
            paths = Path(folder) / "model.gguf", Path(folder) / "draft.gguf"
            dflash_models.write(kind, *paths, np.float32)  # llama.cpp rounds activations for F16
            found = library("xllamacpp")
            model, reference = Model(found, paths[0]), dflash_models.DFlashReference(kind, *paths)
            noise = np.abs(model.logits(IDS) - reference.model.logits(IDS)).max()
            model.clear_cache()
            count, wide = kind.block - 1, len(reference.model.tensors["output_norm.weight"])
            want = reference.drafts(IDS, count)
            got = DFlash(found, paths[1], model, kind, wide).drafts(IDS, count)
            known = np.isfinite(want)
            assert (known == np.isfinite(got)).all(), "the same tokens are known"
            differences = np.where(known, np.abs(got - np.where(known, want, 0)), 0).max(axis=1)
            print(name, "largest difference of each token's logits:", differences, "model's", noise, flush=True)
            worst = max(worst, float(differences.max() / noise))
            same &= bool((want.argmax(axis=1) == got.argmax(axis=1)).all())
    print("worst", worst, "same tokens", same)
    return int(worst > MOST or not same)


if __name__ == "__main__":
    sys.exit(main())
