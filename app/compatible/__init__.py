"""The APIs of other servers that clients already speak: Anthropic's, Ollama's, and those of llama.cpp's own.

Their requests become OpenAI's, their answers are made of OpenAI's chunks.
May know: app.openai. Must not know: models, prompts, the engine, the transport.
"""
