"""Draft models in llama.cpp that read the hidden states of another model.

They need `xllamacpp`, as some functions are in no header of an older llama.cpp.
"""

import ctypes
from ctypes import POINTER, c_bool, c_float, c_int, c_int32, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.make.llama_cpp import Model, Vocabulary
from tests.golden.make.llama_cpp_api import Library

ENCODE, DECODE = 0, 1  # llama_process_type
N_CTX = 256


class Embedding(ctypes.Structure):
    """`struct llama_embd`."""

    _fields_ = [("data", POINTER(c_float)), ("n_rows", c_size_t), ("n_embd", c_size_t)]

    @classmethod
    def of(cls, row: np.ndarray) -> "Embedding":
        """One row of float32, which must stay alive."""
        return cls(row.ctypes.data_as(POINTER(c_float)), 1, len(row))


SET_STATES, STATE = (
    "_Z26llama_set_embeddings_nextnP13llama_contextbb",
    "_Z30llama_get_embeddings_nextn_ithP13llama_contexti",
)
SET_INPUT, INPUT = (
    "_Z30llama_set_embeddings_layer_inpP13llama_contextjb",
    "_Z30llama_get_embeddings_layer_inpP13llama_contextj",
)
STATES = "_Z26llama_get_embeddings_nextnP13llama_context"
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    SET_STATES: (None, [c_void_p, c_bool, c_bool]),
    STATE: (POINTER(c_float), [c_void_p, c_int32]),
    STATES: (POINTER(c_float), [c_void_p]),
    SET_INPUT: (None, [c_void_p, c_int32, c_bool]),
    INPUT: (POINTER(c_float), [c_void_p, c_int32]),
    "llama_batch_ext_init": (c_void_p, [c_void_p]),
    "llama_batch_ext_free": (None, [c_void_p]),
    "llama_batch_ext_add_token": (c_int32, [c_void_p, c_int32, c_int32]),
    "llama_batch_ext_add_embd": (c_int32, [c_void_p, c_int32, Embedding]),
    "llama_batch_ext_set_pos": (c_bool, [c_void_p, c_int32, POINTER(c_int32)]),
    "llama_batch_ext_set_embd_token": (c_bool, [c_void_p, c_int32, Embedding]),
    "llama_batch_ext_set_embd_state": (c_bool, [c_void_p, c_int32, Embedding]),
    "llama_batch_ext_set_output_logits": (c_bool, [c_void_p, c_int32, c_bool]),
    "llama_process": (c_int32, [c_void_p, c_int, c_void_p]),
}


class Drafter(Vocabulary):
    """A draft model with the context of its model. `context_type`: llama_context_type."""

    def __init__(self, found: Library, path: Path, model: Model, context_type: int) -> None:
        super().__init__(found, path, vocab_only=False)
        self.target = model
        for name, (result, arguments) in FUNCTIONS.items():
            called = getattr(self.api, name)
            called.restype, called.argtypes = result, arguments
        parameters = self.api.llama_context_default_params()
        parameters.n_ctx, parameters.n_batch, parameters.n_ubatch = N_CTX, N_CTX, N_CTX
        parameters.n_outputs_max = parameters.n_outputs_max_per_seq = N_CTX
        parameters.flash_attn_type, parameters.type_k, parameters.type_v = 0, 0, 0
        parameters.ctx_type, parameters.ctx_other = context_type, model.context
        self.context = self.api.llama_init_from_model(self.model, parameters)
        if not self.context:
            raise RuntimeError(f"llama.cpp cannot create a context for {path}: {'; '.join(found.errors)}")

    def call(self, name: str, *arguments: Any) -> Any:
        """Call one of FUNCTIONS."""
        return getattr(self.api, name)(*arguments)

    def place(self, batch: Any, at: int, position: int) -> None:
        """Set the position of a batch's token, and that its logits are read."""
        assert self.call("llama_batch_ext_set_pos", batch, at, ctypes.byref(c_int32(position)))
        assert self.call("llama_batch_ext_set_output_logits", batch, at, True)

    def process(self, kind: int, batch: Any) -> None:
        """Compute a batch and free it."""
        code = self.call("llama_process", self.context, kind, batch)
        self.call("llama_batch_ext_free", batch)
        assert not code, f"llama_process: {code}"

    def logits_at(self, index: int) -> np.ndarray:
        """The logits of a token of the last batch."""
        found = self.api.llama_get_logits_ith(self.context, index)
        return np.ctypeslib.as_array(found, (self.n_vocab,)).copy()

    def state_at(self, context: Any, index: int, width: int) -> np.ndarray:
        """The hidden state of a token of a context's last batch."""
        return np.ctypeslib.as_array(self.call(STATE, context, index), (width,)).copy()
