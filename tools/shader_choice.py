"""Choose which shaders to validate, as many differ only in numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from py_engine.plan.kernels import Shader
from tools.selection import everything

PARAM = re.compile(r"^const (\w+: [uf]32) = ([-\w.]+);$", re.MULTILINE)  # what expand() writes for a number


def texts(shaders: Iterable[Shader]) -> Iterator[Shader]:
    """Yield shaders whose text is new apart from the numbers of params."""
    seen: set[int] = set()
    for shader in shaders:
        text = hash(PARAM.sub(r"\1", shader.code))
        if text not in seen:
            seen.add(text)
            yield shader


def chosen(shaders: Iterable[Shader]) -> Iterator[Shader]:
    """Yield shaders whose text is new apart from numbers, or that give a kernel's param a new number.

    A shader that is left out has the code of a chosen one, and each of its numbers is in a chosen one of its kernel.
    """
    texts: set[int] = set()
    numbers: set[tuple[str, str, str]] = set()  # kernel, param, value
    for shader in shaders:
        kernel = shader.label.partition(" ")[0]
        own = {(kernel, param, value) for param, value in PARAM.findall(shader.code)}
        text = hash(PARAM.sub(r"\1", shader.code))
        if everything() or text not in texts or not own <= numbers:
            texts.add(text)
            numbers |= own
            yield shader
