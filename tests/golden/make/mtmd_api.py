"""llama.cpp's C API of pictures and sound (`mtmd`) through ctypes, beside llama_cpp_api.py.

Only `xllamacpp` has it here. `MtmdLibrary` checks the structures' default values and rejects another layout.
"""

import ctypes
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int32, c_int64, c_size_t, c_ubyte, c_uint32, c_void_p
from typing import Any

from tests.golden.make.llama_cpp_api import LOG_CALLBACK, Library, NoLlamaCpp

PACKAGE = "xllamacpp"
EVALUATED = ctypes.CFUNCTYPE(c_bool, c_void_p, c_bool, c_void_p)


class ContextParams(ctypes.Structure):
    """`struct mtmd_context_params`."""

    _fields_ = [
        ("use_gpu", c_bool),
        ("device", c_void_p),
        ("print_timings", c_bool),
        ("n_threads", c_int32),
        *((name, c_char_p) for name in ("image_marker", "media_marker")),
        ("flash_attn_type", c_int32),
        ("warmup", c_bool),
        *((name, c_int32) for name in ("image_min_tokens", "image_max_tokens")),
        *((name, c_void_p) for name in ("cb_eval", "cb_eval_data")),
        ("batch_max_tokens", c_int32),
        *((name, c_void_p) for name in ("progress_callback", "progress_data")),
    ]


class Text(ctypes.Structure):
    """`struct mtmd_input_text`."""

    _fields_ = [("text", c_char_p), ("length", c_size_t), ("add_special", c_bool), ("parse_special", c_bool)]


class Place(ctypes.Structure):
    """`struct mtmd_decoder_pos`."""

    _fields_ = [(name, c_uint32) for name in ("t", "x", "y", "z")]


class VideoParams(ctypes.Structure):
    """`struct mtmd_helper_video_init_params`."""

    _fields_ = [("fps", c_float), ("ffmpeg", c_char_p), ("interval", c_int64)]


class Opened(ctypes.Structure):
    """`struct mtmd_helper_bitmap_wrapper`."""

    _fields_ = [("bitmap", c_void_p), ("video", c_void_p)]


class Node(ctypes.Structure):
    """`struct ggml_tensor`, as far as a graph's inputs are read."""


Node._fields_ = [
    ("type", c_int32),
    ("buffer", c_void_p),
    ("sizes", c_int64 * 4),
    ("strides", c_size_t * 4),
    ("op", c_int32),
    ("op_params", c_int32 * 16),
    ("flags", c_int32),
    ("sources", POINTER(Node) * 10),
    ("view", c_void_p),
    ("view_offset", c_size_t),
    ("data", c_void_p),
    ("name", ctypes.c_char * 64),
]

FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "llama_model_n_embd_inp": (c_int32, [c_void_p]),
    "mtmd_helper_log_set": (None, [LOG_CALLBACK, c_void_p]),
    "mtmd_context_params_default": (ContextParams, []),
    "mtmd_init_from_file": (c_void_p, [c_char_p, c_void_p, ContextParams]),
    "mtmd_free": (None, [c_void_p]),
    "mtmd_decode_use_mrope": (c_bool, [c_void_p]),
    "mtmd_decode_use_non_causal": (c_bool, [c_void_p, c_void_p]),
    "mtmd_get_audio_sample_rate": (c_int32, [c_void_p]),
    "mtmd_bitmap_init": (c_void_p, [c_uint32, c_uint32, POINTER(c_ubyte)]),
    "mtmd_bitmap_init_from_audio": (c_void_p, [c_size_t, POINTER(c_float)]),
    "mtmd_bitmap_set_mergeable": (None, [c_void_p, c_bool]),
    "mtmd_bitmap_free": (None, [c_void_p]),
    "mtmd_bitmap_get_n_bytes": (c_size_t, [c_void_p]),
    "mtmd_bitmap_get_data": (c_void_p, [c_void_p]),
    "mtmd_helper_video_init_params_default": (VideoParams, []),
    "mtmd_helper_bitmap_init_from_file": (Opened, [c_void_p, c_char_p, c_bool, VideoParams]),
    "mtmd_input_chunks_init": (c_void_p, []),
    "mtmd_input_chunks_free": (None, [c_void_p]),
    "mtmd_input_chunks_size": (c_size_t, [c_void_p]),
    "mtmd_input_chunks_get": (c_void_p, [c_void_p, c_size_t]),
    "mtmd_tokenize": (c_int32, [c_void_p, c_void_p, POINTER(Text), POINTER(c_void_p), c_size_t]),
    "mtmd_input_chunk_get_type": (c_int32, [c_void_p]),
    "mtmd_input_chunk_get_n_tokens": (c_size_t, [c_void_p]),
    "mtmd_input_chunk_get_n_pos": (c_int32, [c_void_p]),
    "mtmd_input_chunk_get_tokens_text": (POINTER(c_int32), [c_void_p, POINTER(c_size_t)]),
    "mtmd_input_chunk_get_tokens_image": (c_void_p, [c_void_p]),
    "mtmd_image_tokens_get_nx": (c_size_t, [c_void_p]),
    "mtmd_image_tokens_get_ny": (c_size_t, [c_void_p]),
    "mtmd_helper_image_get_decoder_pos": (None, [c_void_p, c_int32, POINTER(Place)]),
    "mtmd_encode_chunk": (c_int32, [c_void_p, c_void_p]),
    "mtmd_get_output_embd": (POINTER(c_float), [c_void_p]),
    "mtmd_helper_eval_chunk_single": (
        c_int32,
        [*[c_void_p] * 3, *[c_int32] * 3, c_bool, POINTER(c_int32)],
    ),
    "mtmd_helper_decode_image_chunk": (
        c_int32,
        [*[c_void_p] * 3, POINTER(c_float), *[c_int32] * 3, POINTER(c_int32), *[c_void_p] * 2],
    ),
}


class MtmdLibrary:
    """The functions of pictures and sound of a loaded library."""

    def __init__(self, library: Library) -> None:
        if library.name != PACKAGE:
            raise NoLlamaCpp(f"Goldens of pictures and sound are made with {PACKAGE}: pass --library {PACKAGE}")
        self.api = library.llama
        for function, (result, arguments) in FUNCTIONS.items():
            called = getattr(self.api, function)
            called.restype, called.argtypes = result, arguments
        self.api.mtmd_helper_log_set(library.on_log, None)
        params = self.api.mtmd_context_params_default()
        found = [params.use_gpu, params.print_timings, params.n_threads, params.media_marker, params.warmup]
        found += [params.flash_attn_type, params.image_min_tokens, params.image_max_tokens, params.cb_eval]
        if found != [True, True, 4, b"<__media__>", True, -1, -1, -1, None]:
            raise NoLlamaCpp(f"{library.name} {library.version} has other structures than mtmd_api.py: {found}")
