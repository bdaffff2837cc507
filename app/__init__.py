"""What runs in the worker above the engine: messages, OpenAI shapes, text."""
