"""The engine: GGUF in, token ids out. Read engine.py first."""
