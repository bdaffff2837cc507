"""What the page and the worker run. The worker's Python starts at main.py, the page's JavaScript at page.js.

May know: the engine's public methods, OpenAI's API.
Must not know: tensors and kernels; only page.js and ui/ know the DOM.
"""
