"""llama.cpp's C API through ctypes, from a prebuilt Python package or from a compiled one.

`xllamacpp` (prebuilt) and `llama-cpp-python` (compiled when installed) both carry the library. The structures below
are those of the versions in `PACKAGES`; `Library` checks their default values and rejects another layout.
"""

import ctypes
import importlib.metadata
import importlib.util
from collections.abc import Sequence
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int, c_int8, c_int32, c_size_t, c_uint32, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

LOG_CALLBACK = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)
LOG_ERROR = 4  # of ggml_log_level


class ModelParams(ctypes.Structure):
    """`struct llama_model_params`."""

    _fields_ = [
        *((name, c_void_p) for name in ("devices", "tensor_buft_overrides")),
        *((name, c_int32) for name in ("n_gpu_layers", "split_mode", "load_mode", "lazy_mode", "main_gpu")),
        *((name, c_void_p) for name in ("tensor_split", "progress_callback", "progress_data", "kv_overrides")),
        *((name, c_bool) for name in ("vocab_only", "check_tensors", "use_extra_bufts")),
        *((name, c_bool) for name in ("no_host", "no_alloc", "load_mtp")),
    ]


def context_params(added: Sequence[tuple[str, type]]) -> type[ctypes.Structure]:
    """`struct llama_context_params`, with the fields that a newer version `added` after the callbacks."""

    class ContextParams(ctypes.Structure):
        _fields_ = [
            *((name, c_uint32) for name in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq")),
            *((name, c_uint32) for name in ("n_outputs_max", "n_outputs_max_per_seq")),
            *((name, c_int32) for name in ("n_threads", "n_threads_batch", "ctx_type", "rope_scaling_type")),
            *((name, c_int32) for name in ("pooling_type", "attention_type", "flash_attn_type")),
            *((name, c_float) for name in ("rope_freq_base", "rope_freq_scale", "yarn_ext_factor")),
            *((name, c_float) for name in ("yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow")),
            ("yarn_orig_ctx", c_uint32),
            ("defrag_thold", c_float),
            *((name, c_void_p) for name in ("cb_eval", "cb_eval_data")),
            *((name, c_int32) for name in ("type_k", "type_v")),
            *((name, c_void_p) for name in ("abort_callback", "abort_data")),
            *added,
            *((name, c_bool) for name in ("embeddings", "offload_kqv", "no_perf", "op_offload")),
            *((name, c_bool) for name in ("swa_full", "kv_unified")),
            ("samplers", c_void_p),
            ("n_samplers", c_size_t),
            ("ctx_other", c_void_p),
        ]

    return ContextParams


class Batch(ctypes.Structure):
    """`struct llama_batch`."""

    _fields_ = [
        ("n_tokens", c_int32),
        ("token", POINTER(c_int32)),
        ("embd", POINTER(c_float)),
        ("pos", POINTER(c_int32)),
        ("n_seq_id", POINTER(c_int32)),
        ("seq_id", POINTER(POINTER(c_int32))),
        ("logits", POINTER(c_int8)),
    ]


# Result and argument types of what is called.
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "llama_backend_init": (None, []),
    "llama_log_set": (None, [LOG_CALLBACK, c_void_p]),
    "llama_model_default_params": (ModelParams, []),
    "llama_model_load_from_file": (c_void_p, [c_char_p, ModelParams]),
    "llama_model_free": (None, [c_void_p]),
    "llama_free": (None, [c_void_p]),
    "llama_n_ctx": (c_uint32, [c_void_p]),
    "llama_model_n_embd_out": (c_int32, [c_void_p]),
    "llama_model_n_cls_out": (c_uint32, [c_void_p]),
    "llama_model_get_vocab": (c_void_p, [c_void_p]),
    "llama_get_memory": (c_void_p, [c_void_p]),
    "llama_memory_clear": (None, [c_void_p, c_bool]),
    "llama_batch_init": (Batch, [c_int32, c_int32, c_int32]),
    "llama_batch_free": (None, [Batch]),
    "llama_decode": (c_int32, [c_void_p, Batch]),
    "llama_encode": (c_int32, [c_void_p, Batch]),
    "llama_model_has_encoder": (c_bool, [c_void_p]),
    "llama_model_decoder_start_token": (c_int32, [c_void_p]),
    "llama_get_logits_ith": (POINTER(c_float), [c_void_p, c_int32]),
    "llama_get_embeddings_ith": (POINTER(c_float), [c_void_p, c_int32]),
    "llama_get_embeddings_seq": (POINTER(c_float), [c_void_p, c_int32]),
    "llama_vocab_n_tokens": (c_int32, [c_void_p]),
    "llama_vocab_get_attr": (c_int, [c_void_p, c_int32]),
    "llama_vocab_get_text": (c_char_p, [c_void_p, c_int32]),
    "llama_vocab_is_eog": (c_bool, [c_void_p, c_int32]),
    "llama_vocab_is_control": (c_bool, [c_void_p, c_int32]),
    "llama_vocab_get_add_bos": (c_bool, [c_void_p]),
    "llama_vocab_mask": (c_int32, [c_void_p]),
    "llama_vocab_bos": (c_int32, [c_void_p]),
    "llama_vocab_get_add_eos": (c_bool, [c_void_p]),
    "llama_tokenize": (c_int32, [c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32, c_bool, c_bool]),
    "llama_token_to_piece": (c_int32, [c_void_p, c_int32, c_char_p, c_int32, c_int32, c_bool]),
    "llama_detokenize": (c_int32, [c_void_p, POINTER(c_int32), c_int32, c_char_p, c_int32, c_bool, c_bool]),
}
# The same for ggml, which may be a library of its own.
GGML_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "ggml_quantize_chunk": (c_size_t, [c_int, c_void_p, c_void_p, *[ctypes.c_int64] * 3, c_void_p]),
}


class Package(NamedTuple):
    """A Python package that carries llama.cpp."""

    version: str  # whose structures are known to be those above
    module: str
    llama: str  # the library's file in the module's folder
    ggml: str
    added: list[tuple[str, type]]  # fields of its llama_context_params


PACKAGES = {
    # llama.cpp b11549.
    "xllamacpp": Package("2026.10.11549", "xllamacpp", "xllamacpp*.so", "xllamacpp*.so", [("unknown", c_void_p)]),
    # llama.cpp 0c1e57098.
    "llama-cpp-python": Package("0.3.36", "llama_cpp", "lib/libllama.*", "lib/libggml-base.*", []),
}


class NoLlamaCpp(Exception):
    """Neither package is installed, or its structures are not the ones here."""


class Library:
    """The C functions of one package."""

    def __init__(self, name: str) -> None:
        package = PACKAGES[name]
        found = importlib.util.find_spec(package.module)
        if not found or not found.origin:
            raise NoLlamaCpp(f"{name} is not installed: pip install {name}=={package.version}")
        folder = Path(found.origin).parent
        self.name, self.version = name, importlib.metadata.version(name)
        self.llama = ctypes.CDLL(str(min(folder.glob(package.llama))))
        self.ggml = ctypes.CDLL(str(min(folder.glob(package.ggml))))
        context = context_params(package.added)
        functions = FUNCTIONS | {
            "llama_context_default_params": (context, []),
            "llama_init_from_model": (c_void_p, [c_void_p, context]),
        }
        for library, declared in ((self.llama, functions), (self.ggml, GGML_FUNCTIONS)):
            for function, (result, arguments) in declared.items():
                called = getattr(library, function)
                called.restype, called.argtypes = result, arguments
        self.errors: list[str] = []  # what the library logged as errors
        self.on_log = LOG_CALLBACK(self._log)  # must stay alive while the library may call it
        self.llama.llama_log_set(self.on_log, None)
        self.llama.llama_backend_init()
        self.check_layout()

    def _log(self, level: int, text: bytes, _data: Any) -> None:
        if level == LOG_ERROR:
            self.errors.append(text.decode(errors="replace").strip())

    def check_layout(self) -> None:
        """Compare default values with llama.h's: a moved field fails here, not as wrong logits."""
        model, context = self.llama.llama_model_default_params(), self.llama.llama_context_default_params()
        found = [context.n_ctx, context.n_batch, context.n_ubatch, context.n_seq_max, context.yarn_beta_fast]
        found += [context.type_k, context.type_v, context.embeddings, context.offload_kqv, context.op_offload]
        found += [context.samplers, context.n_samplers, model.use_extra_bufts, model.vocab_only]
        if found != [512, 2048, 512, 1, -1.0, 1, 1, False, True, True, None, 0, True, False]:
            raise NoLlamaCpp(f"{self.name} {self.version} has other structures than llama_cpp_api.py: {found}")


@cache
def library(name: str | None = None) -> Library:
    """Load the package `name`, by default the first that is installed."""
    for candidate in [name] if name else PACKAGES:
        if importlib.util.find_spec(PACKAGES[candidate].module):
            return Library(candidate)
    wanted = [name] if name else list(PACKAGES)
    raise NoLlamaCpp("Install " + " or ".join(f"{n}=={PACKAGES[n].version}" for n in wanted))
