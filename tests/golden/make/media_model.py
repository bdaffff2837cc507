"""A text model with its projector, as llama.cpp's `mtmd` runs them."""

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.make.llama_cpp import Model
from tests.golden.make.llama_cpp_api import Library
from tests.golden.make.mtmd_api import EVALUATED, MtmdLibrary, Node, Place, Text

N_CTX = 4096
KINDS = ("text", "image", "audio")
INPUT = b"inp_raw"  # the encoder's input: a picture after mean and deviation, or a log-mel


@dataclass
class Chunk:
    """A part of a prompt. `about`: what a golden's .json says of it."""

    pointer: int
    about: dict[str, Any]
    places: np.ndarray | None = None  # (n, 3) time, row, column, of models with positions of several dimensions
    rows: np.ndarray | None = None  # (n, n_embd_inp) of media
    given: np.ndarray | None = None  # the encoder's input

    @property
    def is_text(self) -> bool:
        return bool(self.about["kind"] == "text")


class MediaModel(Model):
    """On the CPU, with 2 threads, float32 cache, without flash attention, repacked weights or warm-up."""

    def __init__(self, library: Library, text: Path, projector: Path) -> None:
        super().__init__(library, text, N_CTX)
        MtmdLibrary(library)
        params = self.api.mtmd_context_params_default()
        params.use_gpu = params.print_timings = params.warmup = False
        params.n_threads, params.flash_attn_type = 2, 0
        self._on_node = EVALUATED(self._seen)
        params.cb_eval = ctypes.cast(self._on_node, ctypes.c_void_p)
        self._given: np.ndarray | None = None
        self.projector = self.api.mtmd_init_from_file(os.fsencode(projector), self.model, params)
        if not self.projector:
            raise RuntimeError(f"llama.cpp does not load {projector}: {'; '.join(library.errors)}")
        self.mrope = bool(self.api.mtmd_decode_use_mrope(self.projector))
        self.width = int(self.api.llama_model_n_embd_inp(self.model))
        self.rate = int(self.api.mtmd_get_audio_sample_rate(self.projector))

    def close(self) -> None:
        self.api.mtmd_free(self.projector)
        super().close()

    def _seen(self, node: int, ask: bool, _data: Any) -> bool:
        """Called before each node of the encoder's graph: keep the input, before its memory is used again."""
        if ask and self._given is None:
            for source in Node.from_address(node).sources:
                if not source:
                    break
                tensor = source.contents
                if tensor.name == INPUT:
                    shape = tuple(tensor.sizes)[::-1]
                    data = ctypes.cast(tensor.data, ctypes.POINTER(ctypes.c_float))
                    self._given = np.ctypeslib.as_array(data, (int(np.prod(shape)),)).reshape(shape).copy()
        return False

    def open(self, path: Path) -> tuple[int, np.ndarray]:
        """A file as llama.cpp reads it: its handle, and its bytes."""
        video = self.api.mtmd_helper_video_init_params_default()
        opened = self.api.mtmd_helper_bitmap_init_from_file(self.projector, os.fsencode(path), False, video)
        if not opened.bitmap:
            raise RuntimeError(f"llama.cpp does not read {path}")
        size = self.api.mtmd_bitmap_get_n_bytes(opened.bitmap)
        raw = ctypes.string_at(self.api.mtmd_bitmap_get_data(opened.bitmap), size)
        return opened.bitmap, np.frombuffer(raw, np.uint8)

    def picture(self, pixels: np.ndarray) -> int:
        """The handle of a picture, uint8 (height, width, 3)."""
        flat = np.ascontiguousarray(pixels)
        data = flat.ctypes.data_as(ctypes.POINTER(ctypes.c_ubyte))
        handle: int = self.api.mtmd_bitmap_init(pixels.shape[1], pixels.shape[0], data)
        return handle

    def clip(self, samples: np.ndarray) -> int:
        """The handle of a clip, float32 samples at the encoder's rate."""
        flat = np.ascontiguousarray(samples, np.float32)
        data = flat.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        handle: int = self.api.mtmd_bitmap_init_from_audio(len(flat), data)
        return handle

    def forget(self, handle: int) -> None:
        self.api.mtmd_bitmap_free(handle)

    def chunks(self, prompt: str, media: Sequence[int]) -> list[Chunk]:
        """The chunks of a prompt with a marker for each medium."""
        made, data = self.api.mtmd_input_chunks_init(), prompt.encode()
        text = Text(data, len(data), True, True)
        handles = (ctypes.c_void_p * max(1, len(media)))(*media)
        code = self.api.mtmd_tokenize(self.projector, made, ctypes.byref(text), handles, len(media))
        if code:
            raise RuntimeError(f"mtmd_tokenize: {code}")
        count = self.api.mtmd_input_chunks_size(made)
        return [self._chunk(self.api.mtmd_input_chunks_get(made, i)) for i in range(count)]

    def _chunk(self, pointer: int) -> Chunk:
        api, n = self.api, int(self.api.mtmd_input_chunk_get_n_tokens(pointer))
        kind = KINDS[api.mtmd_input_chunk_get_type(pointer)]
        about: dict[str, Any] = {"kind": kind, "n_tokens": n, "n_pos": api.mtmd_input_chunk_get_n_pos(pointer)}
        if kind == "text":
            size = ctypes.c_size_t()
            about["ids"] = api.mtmd_input_chunk_get_tokens_text(pointer, ctypes.byref(size))[:n]
            return Chunk(pointer, about)
        places = None
        if kind == "image":
            tokens = api.mtmd_input_chunk_get_tokens_image(pointer)
            about["nx"], about["ny"] = api.mtmd_image_tokens_get_nx(tokens), api.mtmd_image_tokens_get_ny(tokens)
            if self.mrope:
                found = (Place * n)()
                api.mtmd_helper_image_get_decoder_pos(tokens, 0, found)
                places = np.array([[p.t, p.y, p.x] for p in found], np.int32)
        about["non_causal"] = bool(api.mtmd_decode_use_non_causal(self.projector, pointer))
        return Chunk(pointer, about, places)

    def compute(self, chunk: Chunk) -> bool:
        """Compute the embeddings of a medium; whether all are numbers."""
        self._given = None
        code = self.api.mtmd_encode_chunk(self.projector, chunk.pointer)
        if code:
            raise RuntimeError(f"mtmd_encode_chunk: {code}")
        shape = chunk.about["n_tokens"], self.width
        chunk.rows = np.ctypeslib.as_array(self.api.mtmd_get_output_embd(self.projector), shape).copy()
        chunk.given = self._given
        return bool(np.isfinite(chunk.rows).all())

    def read_prompt(self, chunks: Sequence[Chunk]) -> int:
        """Evaluate all chunks but the last; note where each begins. Return where the last one does."""
        self.clear_cache()
        past = ctypes.c_int32(0)
        for chunk in chunks[:-1]:
            chunk.about["start"] = past.value
            first = self.projector, self.context, chunk.pointer
            if chunk.is_text:
                code = self.api.mtmd_helper_eval_chunk_single(*first, past.value, 0, N_CTX, False, ctypes.byref(past))
            else:
                assert chunk.rows is not None
                rows = np.ascontiguousarray(chunk.rows).ctypes.data_as(ctypes.POINTER(ctypes.c_float))
                code = self.api.mtmd_helper_decode_image_chunk(
                    *first, rows, past.value, 0, N_CTX, ctypes.byref(past), None, None
                )
            if code:
                raise RuntimeError(f"mtmd_helper: {code}")
        chunks[-1].about["start"] = past.value
        return past.value
