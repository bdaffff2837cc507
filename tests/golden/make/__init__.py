"""Make the goldens: random models, llama.cpp's answers on them, a numpy reference. README.md says how.

Knows llama.cpp, gguf-py and numpy. Must not know the engine that the goldens judge.
"""
