"""The T5 encoder's metadata and random tensors."""

from tests.golden.make.gguf_file import GgufFile
from tests.golden.make.presets import Settings


def add_metadata(file: GgufFile, c: Settings) -> None:
    file.add("%s.vocab_size", c["vocab"])
    file.add("%s.context_length", c["ctx"])
    file.add("%s.embedding_length", c["n_embd"])
    file.add("%s.block_count", c["n_layer"])
    file.add("%s.feed_forward_length", c["n_ff"])
    file.add("%s.attention.head_count", c["n_head"])
    file.add("%s.attention.key_length", c["head_dim"])
    file.add("%s.attention.value_length", c["head_dim"])
    file.add("%s.attention.layer_norm_epsilon", float(c["eps"]))  # as converters write it, beside the next one
    file.add("%s.attention.layer_norm_rms_epsilon", float(c["eps"]))
    file.add("%s.attention.relative_buckets_count", c["buckets"])
    file.add("%s.pooling_type", c["pooling"])


def add_tensors(file: GgufFile, c: Settings) -> None:
    width, heads = c["n_embd"], c["n_head"] * c["head_dim"]
    file.matrix("token_embd.weight", c["vocab"], width, std=1.0)
    file.norm("enc.output_norm", width)
    for i in range(c["n_layer"]):
        prefix = f"enc.blk.{i}."
        file.norm(prefix + "attn_norm", width)
        if i == 0:  # the other layers share it
            file.matrix(prefix + "attn_rel_b.weight", c["buckets"], c["n_head"], std=1.5)
        for name in "qkv":  # scores are not divided
            gain = 1.0 if name == "v" else 1.2 * c["head_dim"] ** -0.25
            file.matrix(f"{prefix}attn_{name}.weight", heads, width, gain=gain)
        file.matrix(prefix + "attn_o.weight", width, heads)
        file.norm(prefix + "ffn_norm", width)
        for name in ("gate", "up") if c.get("gated") else ("up",):
            file.matrix(f"{prefix}ffn_{name}.weight", c["n_ff"], width)
        file.matrix(prefix + "ffn_down.weight", width, c["n_ff"], gain=1.5)
