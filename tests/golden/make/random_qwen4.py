"""The metadata and tensors of Qwen 4's residual streams (hyper-connections), and of its embeddings of n-grams.

`streams`: how many there are, and the low rank of what mixes them. `ngrams`: the layer that adds the embeddings, the
longest n-gram, heads for each length, the taps of the convolution, the token that ends texts, and that of pictures.
"""

import numpy as np

from tests.golden.make.gguf_file import GgufFile
from tests.golden.make.presets import Settings

FIRST_SIZE = 17  # rows of the first head of n-grams; each further head has 6 more
PADDING = 5  # rows behind those of all heads


def add_metadata(file: GgufFile, c: Settings) -> None:
    for name, value in zip(("count", "low_rank"), c["streams"], strict=True):
        file.add(f"%s.hyper_connection.{name}", value)
    for name, value in zip(("head_count", "key_length", "top_k"), c["index"], strict=True):
        file.add(f"%s.attention.indexer.{name}", value)
    file.add("%s.attention.compress_ratios", c.get("ratios"))
    if "ngrams" not in c:
        return
    layer, longest, heads, taps, end, picture = c["ngrams"]
    sizes = head_sizes(c)
    file.add("%s.ple.layers", [layer])
    file.add("%s.ple.ngram_size", longest)
    file.add("%s.ple.heads_per_ngram", heads)
    file.add("%s.ple.conv_kernel", taps)
    file.add("%s.ple.eos_token_id", end)
    file.add("%s.ple.image_token_id", picture)
    file.add("%s.embedding_length_per_layer_input", c["n_embd"] // len(sizes))
    file.add("%s.ple.layer_multipliers", file.random.integers(1 << 62, (1 << 64) - 1, longest, np.uint64))
    file.add("%s.ple.head_offsets", (np.cumsum(sizes) - sizes).astype(np.uint64))
    file.add("%s.ple.head_vocab_sizes", sizes.astype(np.uint64))


def head_sizes(c: Settings) -> np.ndarray:
    """Rows of the table that each head has."""
    _, longest, heads, *_ = c["ngrams"]
    return FIRST_SIZE + 6 * np.arange((longest - 1) * heads)


def add_tensors(file: GgufFile, c: Settings, norm_mean: float) -> None:
    """What is outside of layers. `norm_mean`: of the norm before the output."""
    if "ngrams" in c:
        sizes = head_sizes(c)
        file.matrix("per_layer_token_embd.weight", sizes.sum() + PADDING, c["n_embd"] // len(sizes), std=1.0)
    add_mixer(file, c, "output_hc", norm_mean)


def add_mixer(file: GgufFile, c: Settings, name: str, norm_mean: float = 1.0) -> None:
    """What makes one input of all streams."""
    count, rank = c["streams"]
    wide = count * c["n_embd"]
    file.norm(f"{name}_norm", wide, mean=norm_mean)
    file.matrix(f"{name}_down.weight", rank, wide, gain=2.0 * count / norm_mean)
    file.matrix(f"{name}_up.weight", wide, rank, gain=2.0)


def add_layer(file: GgufFile, c: Settings, i: int) -> None:
    prefix, wide = f"blk.{i}.", c["streams"][0] * c["n_embd"]
    for kind in ("attn", "ffn"):
        add_mixer(file, c, f"{prefix}hc_{kind}")
        file.matrix(f"{prefix}hc_{kind}_inject.weight", c["streams"][0], wide, gain=1.5 * c["streams"][0])
    if prefix + "attn_q.weight" in file.tensors:
        heads, size, _ = c["index"]
        file.matrix(prefix + "indexer.q_proj.weight", heads * size, c["n_embd"])
        file.matrix(prefix + "indexer.k_proj.weight", size, c["n_embd"])
        file.norm(prefix + "indexer.q_norm", size)
        file.norm(prefix + "indexer.k_norm", size)
    if "ngrams" in c and c["ngrams"][0] == i:
        file.matrix(prefix + "ple_key.weight", wide, c["n_embd"])
        file.matrix(prefix + "ple_value.weight", c["n_embd"], c["n_embd"])
        for part in ("key", "query", "conv"):
            file.norm(f"{prefix}ple_norm_{part}", wide)
        file.matrix(prefix + "ple_conv1d.weight", wide, c["ngrams"][3])
