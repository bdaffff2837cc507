"""The OpenAI API: checks requests field by field, and builds answers, chunks and events.

May know: JSON, sampling parameters, and the bytes of tokens for logprobs.
Must not know: models, prompts and templates, the transport, GPU, tensors, DOM.
"""
