"""The numpy executor of a plan: the fallback without WebGPU, and the oracle of the kernel tests.

May know: plans and numpy.
Must not know: WebGPU, architectures, text.
"""
