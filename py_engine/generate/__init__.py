"""Which sequence runs next: prompts, batches of sequences, drafts, constraints, and what the KV cache holds.

May know: sequences, steps, a Runner.
Must not know: text, OpenAI's requests, devices.
"""
