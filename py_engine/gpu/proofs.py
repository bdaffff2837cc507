"""What a GPU needs of the proof of its kernels (py_engine/proof/), which it must not know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from py_engine.gpu.pipelines import DoesNotCompile, PipelineCache
from py_engine.plan.kernels import Shader


class Proof(Protocol):
    """The proof of lists' kernels. It begins while they are compiled."""

    def run(self) -> None:
        """Run the kernels, which are compiled now."""

    async def end(self) -> None:
        """Wait for the results of run(). WispError if a kernel is wrong."""

    def close(self) -> None:
        """Stop what is not finished, and free the device's memory for it."""


class Prover(Protocol):
    """Proves the kernels of lists before these run."""

    def begin(self, names: Iterable[str]) -> Proof:
        """Begin to prove the kernels of lists that are compiled meanwhile."""

    def unproven(self, names: Iterable[str]) -> bool:
        """Whether a kernel of lists has not been run on this device."""

    def reject(self, shader: Shader, why: str, *, by_text: bool) -> None:
        """Note that a kernel does not compile. `by_text`: the browser refuses its text. Raises WispError."""


async def compiled(
    shader: Shader,
    pipelines: PipelineCache,
    prover: Prover | None,
    cause_of: Callable[[BaseException], Awaitable[BaseException]],
) -> Any:
    """The pipeline of a shader. One of ours that does not compile is a wrong kernel, where kernels are proven.

    `cause_of`: what has caused an error, such as the loss of the device.
    """
    try:
        return await pipelines.get(shader)
    except DoesNotCompile as error:
        cause = await cause_of(error)
        if prover is None or shader.registered or cause is not error:
            raise cause from None
        prover.reject(shader, error.why, by_text=error.by_text)
