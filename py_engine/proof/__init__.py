"""Proof that this device computes the kernels right: each is run once on small random data, against numpy's result.

May know: plans, the CPU's kernels and numpy, the GPU.
Must not know: architectures, requests, sequences, text. The loader asks for the proof before the first token.
"""
