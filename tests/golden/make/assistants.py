"""Compare Gemma 4's assistants with llama.cpp's: `python -m tests.golden.make.assistants`.

The unit tests compare Wisp with tests/support/assistant_models.py. This compares that reference with llama.cpp, and
exits with 1 if they differ by more than llama.cpp's own rounding. It needs `xllamacpp`, as some functions are in no
header of an older llama.cpp.
"""

import ctypes
import sys
import tempfile
from collections.abc import Sequence
from ctypes import POINTER, c_bool, c_float, c_int, c_int32, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.make.llama_cpp import Model, Vocabulary
from tests.golden.make.llama_cpp_api import Library, library
from tests.support import assistant_models

MTP_CONTEXT = 1  # llama_context_type
DECODE = 1  # llama_process_type
MOST = 4  # differences of an assistant's logits, in those of the model's own: llama.cpp reads gelu from a table of f16
IDS = [(37 * i + 11) % 300 for i in range(40)]
DRAFTED = [5, 9, 250]


class Embedding(ctypes.Structure):
    """`struct llama_embd`."""

    _fields_ = [("data", POINTER(c_float)), ("n_rows", c_size_t), ("n_embd", c_size_t)]


FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "_Z26llama_set_embeddings_nextnP13llama_contextbb": (None, [c_void_p, c_bool, c_bool]),
    "_Z30llama_get_embeddings_nextn_ithP13llama_contexti": (POINTER(c_float), [c_void_p, c_int32]),
    "llama_batch_ext_init": (c_void_p, [c_void_p]),
    "llama_batch_ext_free": (None, [c_void_p]),
    "llama_batch_ext_add_token": (c_int32, [c_void_p, c_int32, c_int32]),
    "llama_batch_ext_set_pos": (c_bool, [c_void_p, c_int32, POINTER(c_int32)]),
    "llama_batch_ext_set_embd_state": (c_bool, [c_void_p, c_int32, Embedding]),
    "llama_batch_ext_set_output_logits": (c_bool, [c_void_p, c_int32, c_bool]),
    "llama_process": (c_int32, [c_void_p, c_int, c_void_p]),
}


class Assistant(Vocabulary):
    """An assistant with the context of its model."""

    def __init__(self, found: Library, path: Path, model: Model) -> None:
        super().__init__(found, path, vocab_only=False)
        self.target = model
        for name, (result, arguments) in FUNCTIONS.items():
            called = getattr(self.api, name)
            called.restype, called.argtypes = result, arguments
        parameters = self.api.llama_context_default_params()
        parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = 256, 256, 256
        parameters.flash_attn_type, parameters.type_k, parameters.type_v = 0, 0, 0
        parameters.ctx_type, parameters.ctx_other = MTP_CONTEXT, model.context
        self.context = self.api.llama_init_from_model(self.model, parameters)
        if not self.context:
            raise RuntimeError(f"llama.cpp cannot create a context for {path}: {'; '.join(found.errors)}")
        self._set_states, self._state = (getattr(self.api, name) for name in list(FUNCTIONS)[:2])
        self._set_states(model.context, True, False)
        self._set_states(self.context, True, True)
        self.width = self.api.llama_model_n_embd_out(self.model)

    def drafts(self, ids: Sequence[int], drafted: Sequence[int]) -> np.ndarray:
        """The logits (1 + len(drafted), vocab) after `ids`, and after each of some drafted tokens."""
        self.target.logits(ids[:-1])
        state = self._read(self.target.context, len(ids) - 2)
        logits = []
        for token in (ids[-1], *drafted):
            batch = self.api.llama_batch_ext_init(self.context)
            at = self.api.llama_batch_ext_add_token(batch, 0, token)
            place = c_int32(len(ids) - 1)  # the same for all tokens of a draft
            row = Embedding(state.ctypes.data_as(POINTER(c_float)), 1, self.width)
            assert self.api.llama_batch_ext_set_pos(batch, at, ctypes.byref(place))
            assert self.api.llama_batch_ext_set_embd_state(batch, at, row)
            assert self.api.llama_batch_ext_set_output_logits(batch, at, True)
            code = self.api.llama_process(self.context, DECODE, batch)
            assert not code, f"llama_process: {code}"
            found = self.api.llama_get_logits_ith(self.context, at)
            logits.append(np.ctypeslib.as_array(found, (self.n_vocab,)).copy())
            state = self._read(self.context, at)
            self.api.llama_batch_ext_free(batch)
        return np.stack(logits)

    def _read(self, context: Any, index: int) -> np.ndarray:
        return np.ctypeslib.as_array(self._state(context, index), (self.width,)).copy()


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
