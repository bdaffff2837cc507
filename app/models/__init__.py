"""Which models are there: the catalog, loading and evicting under a memory budget, the queue before each model.

May know: engines, tokenizers, the cache of model files.
Must not know: chat messages, tensors, the DOM.
"""
