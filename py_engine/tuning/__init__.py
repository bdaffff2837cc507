"""Choosing kernels by measuring them on this device. Optional: without it the engine uses defaults.

May know: plans, kernel variants, the GPU.
Must not know: requests, sequences, text. Nothing outside depends on a measurement having been made.
"""
