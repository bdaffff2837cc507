"""Qwen 2 (biases of q, k and v) and Qwen 3 (an RMS norm of each query and key head instead), with or without experts,
and OLMoE (an RMS norm of all queries and all keys): what they differ in, their tensors tell.
"""

from __future__ import annotations

from py_engine.models import decoder

NEOX = True
Config = decoder.Config
build = decoder.build
output = decoder.output
