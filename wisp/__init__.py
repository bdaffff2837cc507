"""GGUF language models in any Pyodide: `from wisp import Engine`.

    engine = await Engine.load("https://.../model.gguf")
    async for text in engine.chat("Why is the sky blue?"):
        print(text, end="")

Computes on the GPU with WebGPU, else on the CPU in WebAssembly. Outside a browser, models load without their weights.
Lives here: the package's interface. It knows the app and the engine; neither knows it.
"""

from py_engine.errors import WispError
from py_engine.models.families import register_architecture
from py_engine.user_kernels import register_kernel
from wisp.answer import Answer
from wisp.engine import Engine
from wisp.hooks import LogitsProcessor, StopWhen, WgslProcessor
from wisp.packages import install
from wisp.parameters import LoadParameters, Messages, Parameters

__all__ = [
    "Answer",
    "Engine",
    "LoadParameters",
    "LogitsProcessor",
    "Messages",
    "Parameters",
    "StopWhen",
    "WgslProcessor",
    "WispError",
    "install",
    "register_architecture",
    "register_kernel",
]
