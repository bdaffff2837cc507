"""Phi-3: llama with q, k and v in one tensor and gate and up in another, and LongRoPE, whose divisors are tensors.

Its metadata's sliding window is left unused, as llama.cpp leaves it.
"""

from __future__ import annotations

from py_engine.models import config, decoder

NEOX = True
Config = config.Config
build = decoder.build
output = decoder.output
