"""The engine in real browsers against llama.cpp's answers."""
