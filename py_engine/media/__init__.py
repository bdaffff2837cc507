"""Images and sound on their way into a model: what a projector's file says, pixels, log-mels, chunks of a prompt.

May know: GGUF headers, errors. `decoder.py` alone asks JavaScript, for what a browser decodes.
Must not know: plans, devices, sequences, OpenAI's requests.
"""
