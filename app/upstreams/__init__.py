"""Other OpenAI-compatible servers that the user has configured.

May know: HTTP, server-sent events, OpenAI's errors.
Must not know: engines, tensors, the DOM.
"""
