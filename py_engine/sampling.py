"""How the next token is chosen."""

import random
import struct
from dataclasses import dataclass


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters of one request, applied in llama.cpp's order: top_k, top_p, min_p, then temperature.

    temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 switch those filters off; seed None draws one at random.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None

    def pack(self) -> bytes:
        """The Sampling struct of sample.wgsl."""
        seed = random.getrandbits(32) if self.seed is None else self.seed & 0xFFFFFFFF
        return struct.pack("<fIffI", self.temperature, self.top_k, self.top_p, self.min_p, seed)
