"""Llama: RMS norm, grouped-query attention with rotary embedding, SwiGLU. Source: llama.cpp's `llama` architecture,
which Mistral's models use, too.
"""

from __future__ import annotations

from py_engine.models import decoder

NEOX = False  # GGUF's llama converter interleaves the rotated pairs
Config = decoder.Config
build = decoder.build
output = decoder.output
