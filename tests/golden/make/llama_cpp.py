"""Models and vocabularies that llama.cpp evaluates."""

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.make.llama_cpp_api import Batch, Library
from tests.golden.make.reference_model import BANNED

CONTROL, USER_DEFINED = 1 << 3, 1 << 4  # llama_token_attr
GGML_F32, GGML_F16 = 0, 1
POOLING = {"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}  # llama_pooling_type


class Vocabulary:
    """A tokenizer of llama.cpp."""

    def __init__(self, library: Library, path: Path, *, vocab_only: bool = True) -> None:
        self.api = library.llama
        parameters = self.api.llama_model_default_params()
        parameters.n_gpu_layers = 0
        parameters.use_extra_bufts = False  # repacked weights round differently
        parameters.vocab_only = vocab_only
        self.model = self.api.llama_model_load_from_file(os.fsencode(path), parameters)
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {path}: {'; '.join(library.errors)}")
        self.vocab = self.api.llama_model_get_vocab(self.model)
        self.n_vocab = self.api.llama_vocab_n_tokens(self.vocab)

    @property
    def adds(self) -> tuple[bool, bool]:
        """Does the tokenizer add (BOS, EOS)?"""
        return bool(self.api.llama_vocab_get_add_bos(self.vocab)), bool(self.api.llama_vocab_get_add_eos(self.vocab))

    def encode(self, text: str | bytes, *, add_special: bool = False, parse_special: bool = False) -> list[int]:
        data = text.encode() if isinstance(text, str) else text
        ids = (ctypes.c_int32 * (len(data) + 64))()
        n = self.api.llama_tokenize(self.vocab, data, len(data), ids, len(ids), add_special, parse_special)
        assert n >= 0
        return list(ids[:n])

    def piece(self, token: int, *, special: bool = True) -> bytes:
        """A token's bytes; those of control tokens only with `special`."""
        buffer = ctypes.create_string_buffer(1024)
        n = self.api.llama_token_to_piece(self.vocab, token, buffer, len(buffer), 0, special)
        return buffer.raw[: max(n, 0)]

    def decode(self, ids: Sequence[int]) -> bytes:
        array = (ctypes.c_int32 * len(ids))(*ids)
        buffer = ctypes.create_string_buffer(64 + 256 * len(ids))
        n = self.api.llama_detokenize(self.vocab, array, len(ids), buffer, len(buffer), False, True)
        assert n >= 0
        return buffer.raw[:n]

    def special(self) -> dict[str, int]:
        """Map the text of every control and user-defined token to its id."""
        out = {}
        for i in range(self.n_vocab):
            if self.api.llama_vocab_get_attr(self.vocab, i) & (CONTROL | USER_DEFINED):
                out[self.api.llama_vocab_get_text(self.vocab, i).decode(errors="replace")] = i
        return out


ALONE = {"chameleon"}  # llama.cpp bans the tokens of pictures in a batch's first row only


class Model(Vocabulary):
    """A model and its context, set for accuracy: CPU, float32 cache, no flash attention, no repacked weights."""

    threads = 2

    def __init__(
        self,
        library: Library,
        path: Path,
        n_ctx: int = 256,
        pooling: str | None = None,
        cache: int = GGML_F32,
        batch: int | None = None,
    ) -> None:
        """`batch`: tokens that it computes at once at most; the whole context if None."""
        super().__init__(library, path, vocab_only=False)
        self.alone = False  # compute every token in a batch of its own
        parameters = self.api.llama_context_default_params()
        parameters.n_ctx = n_ctx
        parameters.n_batch = parameters.n_ubatch = batch or max(n_ctx, 256)
        parameters.n_outputs_max = parameters.n_outputs_max_per_seq = parameters.n_batch  # logits of every position
        parameters.n_threads = parameters.n_threads_batch = self.threads
        parameters.flash_attn_type = 0
        parameters.type_k = parameters.type_v = cache
        parameters.offload_kqv = parameters.op_offload = False
        if pooling is not None:
            parameters.embeddings = True
            parameters.pooling_type = POOLING[pooling]
        self.pooling = pooling
        self.context = self.api.llama_init_from_model(self.model, parameters)
        if not self.context:
            raise RuntimeError(f"llama.cpp cannot create a context for {path}")
        self.settings: dict[str, Any] = {
            library.name.replace("-", "_"): library.version,
            "n_ctx": self.api.llama_n_ctx(self.context),
            "threads": self.threads,
            "flash_attn": False,
            "kv_cache": "F16" if cache == GGML_F16 else "F32",
            "repack": False,
            "backend": "CPU",
        }

    def close(self) -> None:
        self.api.llama_free(self.context)
        self.api.llama_model_free(self.model)

    def clear_cache(self) -> None:
        memory = self.api.llama_get_memory(self.context)
        if memory:
            self.api.llama_memory_clear(memory, True)

    def batch(self, ids: Sequence[int], start: int) -> Batch:
        """Tokens of sequence 0 at the positions from `start` on, each with an output."""
        batch: Batch = self.api.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = int(token), start + i, 1
            batch.seq_id[i][0], batch.logits[i] = 0, 1
        return batch

    def logits(self, ids: Sequence[int], start: int = 0) -> np.ndarray:
        """Logits (len(ids), n_vocab) after each token, which goes into the cache at `start` and on."""
        if self.alone and len(ids) > 1:
            return np.concatenate([self.logits([token], start + i) for i, token in enumerate(ids)])
        batch = self.batch(ids, start)
        code = self.api.llama_decode(self.context, batch)
        if code:
            raise RuntimeError(f"llama_decode: {code}")
        rows = [
            np.ctypeslib.as_array(self.api.llama_get_logits_ith(self.context, i), (self.n_vocab,)).copy()
            for i in range(len(ids))
        ]
        self.api.llama_batch_free(batch)
        return np.maximum(np.stack(rows).astype(np.float32), BANNED)

    def read(self, ids: Sequence[int]) -> None:
        """Encode an encoder-decoder model's prompt, which the decoder then attends to; empty the decoder's cache."""
        self.clear_cache()
        batch = self.batch(ids, 0)
        code = self.api.llama_encode(self.context, batch)
        if code:
            raise RuntimeError(f"llama_encode: {code}")
        self.api.llama_batch_free(batch)

    def greedy(self, prompt: Sequence[int], count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(prompt logits, greedy ids, the logits they came from); the ids pass through the cache one by one."""
        self.clear_cache()
        logits = self.logits(prompt)
        ids: list[int] = []
        rows: list[np.ndarray] = []
        row = logits[-1]
        for k in range(count):
            ids.append(int(row.argmax()))
            rows.append(row)
            if k + 1 < count:
                row = self.logits(ids[-1:], len(prompt) + k)[0]
        return logits, np.array(ids, np.int32), np.array(rows, np.float32).reshape(count, self.n_vocab)

    def embedding(self, ids: Sequence[int]) -> np.ndarray:
        """The pooled embedding, or with "none" one of each token (n, n_embd), before any normalisation."""
        self.clear_cache()
        batch = self.batch(ids, 0)
        # T5's encoder has a memory, too; as a decoder, its tokens would not see later ones
        encodes = self.api.llama_model_has_encoder(self.model) or not self.api.llama_get_memory(self.context)
        run = self.api.llama_encode if encodes else self.api.llama_decode
        code = run(self.context, batch)
        if code:
            raise RuntimeError(f"llama_encode: {code}")
        count = self.api.llama_model_n_cls_out if self.pooling == "rank" else self.api.llama_model_n_embd_out
        shape = (count(self.model),)
        if self.pooling == "none":
            rows = [self.api.llama_get_embeddings_ith(self.context, i) for i in range(len(ids))]
            out = np.stack([np.ctypeslib.as_array(row, shape).copy() for row in rows])
        else:
            out = np.ctypeslib.as_array(self.api.llama_get_embeddings_seq(self.context, 0), shape).copy()
        self.api.llama_batch_free(batch)
        return out.astype(np.float32)
