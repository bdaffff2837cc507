"""The networks of Wisp Mini Sees in PyTorch: a vision transformer as LLaVA has it, and Wisp Mini's decoder.

The arithmetic is llama.cpp's for the projector type "mlp": the class token comes last, the first patch's result is not
used, GELU is the sigmoid form in the transformer and the tanh form in the projector.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

SIDE, PATCH = 128, 16
TOKENS = (SIDE // PATCH) ** 2  # of a picture
WIDTH, BLOCKS, HEADS, HIDDEN = 192, 6, 6, 768  # of the vision transformer
TEXT = {"vocab": 4096, "dim": 256, "layers": 10, "heads": 4, "kv_heads": 2, "ffn": 768, "eps": 1e-5, "base": 10000.0}
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
EPS = 1e-5

Tensor = Any


class Block(nn.Module):
    """A block of the vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH, EPS), nn.LayerNorm(WIDTH, EPS)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        n, t, _ = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(n, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, WIDTH))
        hidden = self.up(self.ln2(x))
        return x + self.down(hidden * torch.sigmoid(1.702 * hidden))


class Encoder(nn.Module):
    """Pictures (n, SIDE, SIDE, 3), bytes, to embeddings (n, TOKENS, text width)."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Linear(3 * PATCH * PATCH, WIDTH, bias=False)
        self.cls = nn.Parameter(torch.randn(WIDTH) * 0.02)
        self.position = nn.Parameter(torch.randn(TOKENS + 1, WIDTH) * 0.02)
        self.pre_ln = nn.LayerNorm(WIDTH, EPS)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.fc1, self.fc2 = nn.Linear(WIDTH, TEXT["dim"]), nn.Linear(TEXT["dim"], TEXT["dim"])
        nn.init.normal_(self.fc2.weight, std=0.002)
        self.register_buffer("mean", torch.tensor(MEAN))
        self.register_buffer("std", torch.tensor(STD))

    def forward(self, pictures: Tensor) -> Tensor:
        n, side = len(pictures), SIDE // PATCH
        x = (pictures.float() / 255 - self.mean) / self.std
        x = x.view(n, side, PATCH, side, PATCH, 3).permute(0, 1, 3, 5, 2, 4).reshape(n, TOKENS, -1)
        x = torch.cat([self.patch(x), self.cls.expand(n, 1, WIDTH)], 1) + self.position
        x = self.pre_ln(x)
        for block in self.blocks:
            x = block(x)
        return self.fc2(F.gelu(self.fc1(x[:, 1:]), approximate="tanh"))


class Decoder(nn.Module):
    """Wisp Mini. Its weights have the names and the row order of GGUF's llama architecture."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.w = nn.ParameterDict({name.replace(".", "/"): nn.Parameter(values) for name, values in weights.items()})
        half = TEXT["dim"] // TEXT["heads"] // 2
        self.register_buffer("freqs", TEXT["base"] ** (-torch.arange(half).float() / half))

    def named(self) -> dict[str, Tensor]:
        """The weights by their names in the file."""
        return {name.replace("/", "."): values for name, values in self.w.items()}

    def embed(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.w["token_embd/weight"])

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Logits of embedded tokens (n, t, width)."""
        n, t, width = x.shape
        heads, kv_heads, size = TEXT["heads"], TEXT["kv_heads"], width // TEXT["heads"]
        angle = torch.arange(t, device=x.device).float()[:, None] * self.freqs
        cos, sin = angle.cos(), angle.sin()

        def rms(x: Tensor, name: str) -> Tensor:
            return F.rms_norm(x.float(), (width,), self.w[name], TEXT["eps"])

        def rotated(x: Tensor) -> Tensor:  # neighbours are pairs
            even, odd = x[..., ::2], x[..., 1::2]
            return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)

        for i in range(TEXT["layers"]):
            b = f"blk/{i}/"
            h = rms(x, f"{b}attn_norm/weight")
            q, k, v = (
                F.linear(h, self.w[f"{b}attn_{name}/weight"]).view(n, t, count, size).transpose(1, 2)
                for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
            )
            q, k = rotated(q).to(v.dtype), rotated(k).to(v.dtype)
            k, v = (part.repeat_interleave(heads // kv_heads, 1) for part in (k, v))
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
            x = x + F.linear(mixed.transpose(1, 2).reshape(n, t, width), self.w[f"{b}attn_output/weight"])
            h = rms(x, f"{b}ffn_norm/weight")
            gate, up = (F.linear(h, self.w[f"{b}ffn_{name}/weight"]) for name in ("gate", "up"))
            x = x + F.linear(F.silu(gate) * up, self.w[f"{b}ffn_down/weight"])
        return F.linear(rms(x, "output_norm/weight"), self.w["token_embd/weight"])


def q4_0(values: Tensor) -> Tensor:
    """The nearest values that Q4_0 can hold: blocks of 32, the largest / -8 as the scale."""
    blocks = values.reshape(-1, 32).float()
    top = blocks.gather(1, blocks.abs().argmax(1, keepdim=True))
    scale = (top / -8).half().float()
    inverse = torch.where(scale == 0, torch.zeros_like(scale), 1 / scale)
    levels = (blocks * inverse + 8.5).floor().clamp(0, 15) - 8
    return (levels * scale).reshape(values.shape).to(values.dtype)
