"""EuroBERT: llama as an encoder, with the other pairs of RoPE. Source: llama.cpp's `eurobert` architecture."""

from __future__ import annotations

from py_engine.models import decoder, llama_embed

NEOX = True
Config = llama_embed.Config
build = decoder.build
