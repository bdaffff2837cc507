"""Qwen 2 (biases of q, k and v) and Qwen 3 (an RMS norm of each query and key head instead), both told by tensors."""

from __future__ import annotations

from py_engine.models import decoder

NEOX = True
Config = decoder.Config
build = decoder.build
output = decoder.output
