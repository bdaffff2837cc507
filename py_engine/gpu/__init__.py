"""The only users of WebGPU: adapter and device, memory, pipelines, weight upload, replay of a plan's lists.

May know: `navigator.gpu`, plans, records of weights.
Must not know: architectures, token text, who asked for the tokens.
"""
