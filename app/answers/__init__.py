"""Requests into text and text into answers: prompts, tool-call dialects, streams, grammars, embeddings.

May know: OpenAI's messages and chunks, text, the engine's token ids.
Must not know: tensors, the GPU, the DOM.
"""
