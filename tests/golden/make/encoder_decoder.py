"""Record an encoder-decoder model: logits of tokens of its decoder, which attends to a prompt that the encoder read.

llama.cpp's command line runs such a model so: llama_encode() with the prompt, then llama_decode() from the decoder's
start token on. The arrays (V: vocabulary, a: tokens of the answer):

    prompt (n) int32                  the encoder's tokens; no EOS is added
    answer (a) int32                  the decoder's, after its start token
    logits (1 + a, V)                 after the start token and each of them, one causal batch
    greedy (g) int32                  llama.cpp's argmax answer; EOS does not stop it
    long_prompt, long_answer, long_logits    the same for a longer prompt and answer; only the last 16 tokens' logits
    *_ref                             from the reference, as record.py has them
"""

from pathlib import Path

import numpy as np

from tests.golden.make.llama_cpp import Model
from tests.golden.make.llama_cpp_api import Library
from tests.golden.make.record import LONG_ROWS, TEXTS, About, Arrays, describe, noise, random_prompt, read_reference
from tests.golden.make.reference_t5 import decoder_logits

ANSWER = 20  # tokens
LONG_ANSWER = 140  # farther from the start than the positions that have buckets


def start_token(model: Model) -> int:
    """The token that an answer begins with: the metadata's, or BOS."""
    start: int = model.api.llama_model_decoder_start_token(model.model)
    return start if start >= 0 else model.api.llama_vocab_bos(model.vocab)


def record_answers(
    library: Library, path: Path, n: int, n_gen: int, seed: int, n_long: int, n_ctx: int
) -> tuple[Arrays, About]:
    """Logits of an answer, the greedy one, and the logits of a long answer to a long prompt."""
    about = describe(path, seed)
    reference = read_reference(path, n_ctx, about)
    assert reference
    model = Model(library, path, n_ctx)
    start = start_token(model)
    arrays: Arrays = {"prompt": random_prompt(n, model.n_vocab, seed)}
    arrays["answer"] = random_prompt(ANSWER, model.n_vocab, seed + 500)
    prompt = arrays["prompt"].tolist()

    def answer(prompt: list[int], ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
        model.read(prompt)
        return model.logits([start, *ids]), decoder_logits(reference, prompt, [start, *ids]).astype(np.float32)

    arrays["logits"], arrays["logits_ref"] = answer(prompt, arrays["answer"].tolist())
    model.read(prompt)
    ids, row = [start], model.logits([start])[0]
    margins = []
    for k in range(n_gen):
        ids.append(int(row.argmax()))
        second, first = np.sort(row)[-2:]
        margins.append(round(float(first - second), 4))
        row = model.logits(ids[-1:], k + 1)[0]
    arrays["greedy"] = np.array(ids[1:], np.int32)
    arrays["greedy_logits_ref"] = decoder_logits(reference, prompt, ids[:-1]).astype(np.float32)
    arrays["long_prompt"] = random_prompt(n_long, model.n_vocab, seed + 1000)
    arrays["long_answer"] = random_prompt(LONG_ANSWER, model.n_vocab, seed + 1500)
    long = answer(arrays["long_prompt"].tolist(), arrays["long_answer"].tolist())
    arrays["long_logits"], arrays["long_logits_ref"] = (rows[-LONG_ROWS:] for rows in long)
    about |= {"greedy_margin": margins, "start": start, "settings": model.settings}
    about["texts"] = [{"text": t, "ids": model.encode(t, add_special=True, parse_special=True)} for t in TEXTS]
    about["llama_cpp_vs_reference"] = noise(arrays["logits_ref"], arrays["logits"])
    about["llama_cpp_vs_reference_long"] = noise(arrays["long_logits_ref"], arrays["long_logits"])
    model.close()
    return arrays, about
