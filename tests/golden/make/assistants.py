"""Compare Gemma 4's assistants with llama.cpp's: `python -m tests.golden.make.assistants`.

The unit tests compare Wisp with tests/support/assistant_models.py. This compares that reference with llama.cpp, and
exits with 1 if they differ by more than llama.cpp's own rounding.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.golden.make.drafters import DECODE, SET_STATES, Drafter, Embedding
from tests.golden.make.llama_cpp import Model
from tests.golden.make.llama_cpp_api import Library, library
from tests.support import assistant_models

MTP_CONTEXT = 1  # llama_context_type
MOST = 4  # differences of an assistant's logits, in those of the model's own: llama.cpp reads gelu from a table of f16
IDS = [(37 * i + 11) % 300 for i in range(40)]
DRAFTED = [5, 9, 250]


class Assistant(Drafter):
    """An assistant with the context of its model."""

    def __init__(self, found: Library, path: Path, model: Model) -> None:
        super().__init__(found, path, model, MTP_CONTEXT)
        self.call(SET_STATES, model.context, True, False)
        self.call(SET_STATES, self.context, True, True)
        self.width = self.api.llama_model_n_embd_out(self.model)

    def drafts(self, ids: Sequence[int], drafted: Sequence[int]) -> np.ndarray:
        """The logits (1 + len(drafted), vocab) after `ids`, and after each of some drafted tokens."""
        self.target.logits(ids[:-1])
        state = self.state_at(self.target.context, len(ids) - 2, self.width)
        logits = []
        for token in (ids[-1], *drafted):
            batch = self.call("llama_batch_ext_init", self.context)
            at = self.call("llama_batch_ext_add_token", batch, 0, token)
            self.place(batch, at, len(ids) - 1)  # the same for all tokens of a draft
            assert self.call("llama_batch_ext_set_embd_state", batch, at, Embedding.of(state))
            self.process(DECODE, batch)
            logits.append(self.logits_at(at))
            state = self.state_at(self.context, at, self.width)
        return np.stack(logits)


def main() -> int:
    """Compare each base's assistant; return the exit code."""
    worst = 0.0  # difference, in those of the model's own logits
    for base in assistant_models.BASES:
        with tempfile.TemporaryDirectory() as folder:
            paths = Path(folder) / "model.gguf", Path(folder) / "assistant.gguf"
            assistant_models.write(base, *paths, np.float32)  # llama.cpp rounds activations for F16
            found = library("xllamacpp")
            model, reference = Model(found, paths[0]), assistant_models.AssistantReference(*paths)
            noise = np.abs(model.logits(IDS) - reference.model.logits(IDS)).max()
            model.clear_cache()
            want = reference.drafts(IDS, DRAFTED)
            differences = np.abs(Assistant(found, paths[1], model).drafts(IDS, DRAFTED) - want).max(axis=1)
            print(base, "largest difference of each token's logits:", differences, "model's", noise, flush=True)
            worst = max(worst, float(differences.max() / noise))
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
