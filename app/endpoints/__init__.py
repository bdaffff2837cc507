"""The handlers of HTTP endpoints: each takes the message of a request and returns its answer, or emits its chunks.

May know: requests, answers, the registry of models. Must not know: HTTP, tensors, the GPU, the DOM.
"""
