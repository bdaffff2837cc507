"""T5's metadata and random tensors: the encoder, and a decoder beside it."""

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
    if "pooling" in c:
        file.add("%s.pooling_type", c["pooling"])
    if "decoder_layers" in c:  # else as many as the encoder's
        file.add("%s.decoder_block_count", c["decoder_layers"])
    if "start" in c:
        file.add("%s.decoder_start_token_id", c["start"])


def add_tensors(file: GgufFile, c: Settings) -> None:
    width = c["n_embd"]
    # the head's deviation where the two are one matrix
    file.matrix("token_embd.weight", c["vocab"], width, std=c["logit_std"] * width**-0.5 if c["tied"] else 1.0)
    file.norm("enc.output_norm", width)
    for i in range(c["n_layer"]):
        prefix = f"enc.blk.{i}."
        add_attention(file, c, prefix + "attn_", biases=i == 0)  # the other layers share the first one's
        add_feed_forward(file, c, prefix, gain=c.get("loud", 1.5) if i == c["n_layer"] - 1 else 1.5)
    if c["arch"] == "t5encoder":
        return
    file.norm("dec.output_norm", width)
    if not c["tied"]:
        file.matrix("output.weight", c["vocab"], width, gain=c["logit_std"])
    for i in range(int(c.get("decoder_layers") or c["n_layer"])):
        prefix = f"dec.blk.{i}."
        add_attention(file, c, prefix + "attn_", biases=i == 0 or c.get("own_biases", False))
        add_attention(file, c, prefix + "cross_attn_", biases=False)
        add_feed_forward(file, c, prefix)


def add_attention(file: GgufFile, c: Settings, prefix: str, *, biases: bool) -> None:
    width, heads = c["n_embd"], c["n_head"] * c["head_dim"]
    file.norm(prefix + "norm", width)
    if biases:
        file.matrix(prefix + "rel_b.weight", c["buckets"], c["n_head"], std=1.5)
    for name in "qkv":  # scores are not divided
        gain = 1.0 if name == "v" else 1.2 * c["head_dim"] ** -0.25
        file.matrix(f"{prefix}{name}.weight", heads, width, gain=gain)
    file.matrix(prefix + "o.weight", width, heads)


def add_feed_forward(file: GgufFile, c: Settings, prefix: str, gain: float = 1.5) -> None:
    width = c["n_embd"]
    file.norm(prefix + "ffn_norm", width)
    for name in ("gate", "up") if c.get("gated") else ("up",):
        file.matrix(f"{prefix}ffn_{name}.weight", c["n_ff"], width)
    file.matrix(prefix + "ffn_down.weight", width, c["n_ff"], gain=gain)
