"""Qwen 4's residual streams in float64: a block reads a gated mean of them, and its result is added to each.

One layer adds embeddings of n-grams, whose rows hashes of the last few tokens choose. Streams are (n, streams, width).
"""

import numpy as np

from tests.golden.make.reference_attention import attention
from tests.golden.make.reference_feed_forward import feed_forward
from tests.golden.make.reference_index import raw_hidden_positions
from tests.golden.make.reference_model import ReferenceModel, silu
from tests.golden.make.reference_recurrent import mix


def hidden(model: ReferenceModel, ids: np.ndarray, x: np.ndarray) -> np.ndarray:
    """All layers on the embeddings x (n, width) of tokens, and the mean that the output reads."""
    streams = np.repeat(x[:, None], model.key("hyper_connection.count"), axis=1)
    for layer in range(model.n_layer):
        prefix = f"blk.{layer}."
        if layer in model.key("ple.layers", []):
            streams = streams + ngrams(model, ids, streams, prefix)
        h, added = mixed(model, streams, prefix + "hc_attn")
        if model.kv_heads[layer]:
            out = attention(model, h, layer, {}, raw_hidden_positions(model, h, layer))
        else:
            out = mix(model, h, layer)
        streams = streams + added[..., None] * out[:, None]
        h, added = mixed(model, streams, prefix + "hc_ffn")
        streams = streams + added[..., None] * feed_forward(model, h, layer)[:, None]
    return mixed(model, streams, "output_hc")[0]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def normed(model: ReferenceModel, streams: np.ndarray, name: str) -> np.ndarray:
    """Each stream's norm, with weights of its own."""
    return model.normalize(streams) * model.tensors[name + ".weight"].reshape(streams.shape[1:])


def mixed(model: ReferenceModel, streams: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    """(the mean of the gated streams, the weights of what the block adds to each)."""
    n, count, _ = streams.shape
    own = normed(model, streams, name + "_norm")
    joined = own.reshape(n, -1)
    low = silu(model.linear(joined, name + "_down") / count)
    gates = sigmoid(model.linear(low, name + "_up")).reshape(own.shape)
    inject = name + "_inject"
    added = 2 * sigmoid(model.linear(joined, inject) / count) if inject + ".weight" in model.tensors else own[..., 0]
    return (own * gates).mean(1), added


def ngrams(model: ReferenceModel, ids: np.ndarray, streams: np.ndarray, prefix: str) -> np.ndarray:
    """What the embeddings of n-grams add to the streams."""
    n, _, width = streams.shape
    found = model.tensors["per_layer_token_embd.weight"][rows(model, ids)].reshape(n, -1)
    key = normed(model, model.linear(found, prefix + "ple_key").reshape(streams.shape), prefix + "ple_norm_key")
    scores = (key * normed(model, streams, prefix + "ple_norm_query")).sum(-1) / np.sqrt(width)
    gates = sigmoid(np.sign(scores) * np.sqrt(np.maximum(np.abs(scores), 1e-6)))
    values = gates[..., None] * model.linear(found, prefix + "ple_value")[:, None]
    x = normed(model, values, prefix + "ple_norm_conv").reshape(n, -1)
    kernel, apart = model.tensors[prefix + "ple_conv1d.weight"], model.key("ple.ngram_size")
    before = (kernel.shape[1] - 1) * apart
    padded = np.concatenate([np.zeros((before, x.shape[1])), x])
    y = sum(padded[j * apart : j * apart + n] * kernel[:, j] for j in range(kernel.shape[1]))
    return values + silu(np.asarray(y)).reshape(streams.shape)


def rows(model: ReferenceModel, ids: np.ndarray) -> np.ndarray:
    """The rows of the table that each token has: one for every head. A text's end hides what is before it."""
    end, longest, heads = (model.key(f"ple.{name}") for name in ("eos_token_id", "ngram_size", "heads_per_ngram"))
    factors = model.key("ple.layer_multipliers")
    sizes, firsts = model.key("ple.head_vocab_sizes"), model.key("ple.head_offsets")
    out = []
    for m in range(len(ids)):
        last = [int(ids[m])]
        for back in range(1, longest):
            before = int(ids[m - back]) if back <= m else end
            last.append(end if back > 1 and last[-1] == end else before)
        hashes = [(last[0] * factors[0]) % (1 << 64)]
        for token, factor in zip(last[1:], factors[1:], strict=False):
            hashes.append(hashes[-1] ^ token * factor % (1 << 64))
        out.append([firsts[h] + hashes[1 + h // heads] % sizes[h] for h in range(len(sizes))])
    return np.array(out)
