"""What tells the architecture families apart: hyperparameters from the header, and the order of a layer's ops.

May know: GGUF metadata and tensor names, the ops of `plan/`.
Must not know: kernels, devices, sequences.
"""
