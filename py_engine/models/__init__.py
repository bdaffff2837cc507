"""The architecture families: hyperparameters from the header, and the ops of a layer in order.

One module per family defines NEOX, Config, build and, if it generates text, output: architecture.py has the Protocol.
families.py maps the architectures' GGUF names to these modules. decoder.py holds the layers that most of them share.

May know: GGUF metadata and tensor names, the ops of `plan/`.
Must not know: kernels, devices, sequences.
"""
