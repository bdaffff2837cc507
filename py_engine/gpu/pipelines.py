"""The compiled compute pipelines of one device."""

from __future__ import annotations

import asyncio
from typing import Any

from py_engine.errors import SERVER_ERROR, WispError
from py_engine.gpu.memory import obj
from py_engine.plan.kernels import Shader

ACCESS = {"uniform": "uniform", "storage, read": "read-only-storage", "storage, read_write": "storage"}
COMPUTE = 4  # GPUShaderStage.COMPUTE


class DoesNotCompile(WispError):
    """A kernel does not compile: `why`. `by_text`: the browser's compiler refuses its text, so it never will."""

    def __init__(self, shader: Shader, error: Exception) -> None:
        super().__init__(
            f"The kernel {shader.label} does not compile on this device: {error}", "internal_error", SERVER_ERROR
        )
        self.why, self.by_text = str(error), isinstance(error, TextError)


class TextError(ValueError):
    """What the browser's compiler says about a kernel's text."""


async def first_error(module: Any) -> tuple[int, str] | None:
    """The compiler's first error in a GPUShaderModule: (line from 1 on, what is wrong)."""
    messages = (await module.getCompilationInfo()).messages
    return next(((int(m.lineNum), str(m.message)) for m in messages if m.type == "error"), None)


class PipelineCache:
    """Compiles each shader once; concurrent requests for one shader share the compilation."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._compiling: dict[str, asyncio.Future[Any]] = {}
        self._compiled: dict[str, Any] = {}
        self._layouts: dict[tuple[str, ...], Any] = {}

    def layout(self, shader: Shader) -> Any:
        """The GPUBindGroupLayout of a shader: bind groups can be made before it is compiled."""
        access = tuple(shader.bindings.values())
        if access not in self._layouts:
            entries = [
                {"binding": i, "visibility": COMPUTE, "buffer": {"type": ACCESS[kind]}} for i, kind in enumerate(access)
            ]
            self._layouts[access] = self._device.createBindGroupLayout(obj(entries=entries))
        return self._layouts[access]

    def __getitem__(self, shader: Shader) -> Any:
        """The GPUComputePipeline of a shader that get() has compiled. KeyError for any other."""
        return self._compiled[shader.label]

    async def get(self, shader: Shader) -> Any:
        """The GPUComputePipeline of a shader, compiled on first use. DoesNotCompile if that fails."""
        try:
            return await self.attempt(shader)
        except Exception as error:
            raise DoesNotCompile(shader, error) from None

    async def attempt(self, shader: Shader) -> Any:
        """As get(), with the device's own error."""
        if shader.label in self._compiled:
            return self._compiled[shader.label]
        if shader.label not in self._compiling:
            self._compiling[shader.label] = asyncio.ensure_future(self._compile(shader))
        try:
            self._compiled[shader.label] = await asyncio.shield(self._compiling[shader.label])
        finally:
            self._compiling.pop(shader.label, None)
        return self._compiled[shader.label]

    def forget(self, shader: Shader) -> None:
        """Drop a shader's pipeline; get() compiles it again."""
        self._compiled.pop(shader.label, None)

    async def _compile(self, shader: Shader) -> Any:
        module = self._device.createShaderModule(obj(code=shader.code, label=shader.label))
        descriptor = obj(
            label=shader.label,
            layout=self._device.createPipelineLayout(obj(bindGroupLayouts=[self.layout(shader)])),
            compute={"module": module, "entryPoint": "main"},
        )
        try:
            return await self._device.createComputePipelineAsync(descriptor)
        except Exception:
            if (found := await first_error(module)) is None:
                raise
            line, message = found
            raise TextError(f"{message}, in {shader.code.splitlines()[line - 1].strip()!r}") from None

    def clear(self) -> None:
        """Drop every pipeline."""
        self._compiling, self._compiled, self._layouts = {}, {}, {}
