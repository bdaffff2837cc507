"""The CPU engine: a plan's ops as calls of the WebAssembly module (wasm/), and the numpy executor, the tests' oracle.

May know: plans, the worker that runs the module; numpy in the executor's files alone.
Must not know: WebGPU, architectures, text.
"""
