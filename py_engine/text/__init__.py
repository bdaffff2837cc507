"""Text to token ids and back: tokenizers, pre-tokenizers, chat templates.

May know: the vocabulary and metadata of a GGUF header.
Must not know: plans, devices, sequences.
"""
