"""Phi-3: llama with q, k and v in one tensor, gate and up in another, and LongRoPE, whose divisors are tensors.

The metadata's sliding window is not used, as in llama.cpp.
"""

from __future__ import annotations

from py_engine.models import config, decoder

NEOX = True
Config = config.Config
build = decoder.build
output = decoder.output
