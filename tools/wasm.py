"""Compile wasm/ to the CPU engine's modules, with the compiler that pyproject.toml pins.

Modules are cached outside the checkout by the hash of their sources and flags, so that only changes need the compiler.

.venv/bin/python -m tools.wasm writes wasm/media/ as JavaScript: a module of a kilobyte, which any page can import.
"""

import base64
import hashlib
import os
import re
import tempfile
from pathlib import Path

from tools import python_zip
from tools.environment import compiler, ensure_compiler, venv_python
from tools.failure import Failure, run
from tools.paths import ROOT, cache_dir

SOURCES = ROOT / "wasm"
MEDIA = SOURCES / "media"
MEDIA_JS = ROOT / "py_engine" / "media" / "resize_module.js"
MAX_PAGES = 65535  # of 64 KiB: the linker rejects 65,536
MAX_PAGES_64 = 1 << 18  # 16 GiB
COMMON = [
    "-std=c17", "-O2", "-fno-unroll-loops", "-nostdlib", "-fno-builtin",
    "-ffp-contract=off", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-msimd128",
]  # fmt: skip
FLAGS = [
    *COMMON, "-matomics", "-mbulk-memory", "-mmutable-globals",
    f"-Wl,--no-entry,--import-memory,--shared-memory,--max-memory={MAX_PAGES << 16},--export=__stack_pointer,"
    "--export=__heap_base,--strip-all,-z,stack-size=65536",
]  # fmt: skip
MEDIA_FLAGS = [
    "-target", "wasm32-freestanding", *COMMON, "-Wl,--no-entry,--import-memory,--strip-all,-z,stack-size=0",
]  # fmt: skip
# Runs with the page's own archive on the path: the command that builds may lack its packages.
HEADER = "from py_engine.cpu.call_layouts import header; print(header(), end='')"
# Instructions -> further flags: without relaxed SIMD, with it on x86, with it on ARM.
INSTRUCTIONS: dict[str, list[str]] = {"simd": [], "pairs": ["-mrelaxed-simd", "-DPAIRS"], "dots": ["-mrelaxed-simd"]}
# Module -> its flags. Those of 64 bits are for models that need more than 4 GiB.
VARIANTS = {
    f"{name}{suffix}": ["-target", f"wasm{bits}-freestanding", *FLAGS, *flags]
    for bits, suffix in ((32, ""), (64, "64"))
    for name, flags in INSTRUCTIONS.items()
}
# The end of a 64-bit module's import of its memory, as the linker writes it: its smallest and largest number of pages.
# The linker's option has 32 bits, so the largest is replaced; both numbers take three bytes.
MEMORY_64 = re.compile(rb"(?<=\x06memory\x02\x07.)\xff\xff\x03", re.DOTALL)
MEMORY_64_LARGER = b"\x80\x80\x10"


def modules(archive: bytes) -> dict[str, bytes]:
    """The modules by name, compiled if the cache lacks them. `archive`: the zip with the page's Python."""
    header = python_zip.run_with(archive, HEADER, [], "Cannot write the header of wasm/")
    return {name: _module(name, header) for name in VARIANTS}


def media_module() -> str:
    """MEDIA_JS, as the module compiled from wasm/media/ has it."""
    code = base64.b64encode(_compiled("media", MEDIA, MEDIA_FLAGS)).decode()
    return f'/** wasm/media/, compiled by tools/wasm.py and in base64. */\nexport const RESIZE_MODULE =\n  "{code}";\n'


def _module(name: str, header: str) -> bytes:
    module = _compiled(name, SOURCES, VARIANTS[name], header)
    return _with_larger_memory(module) if name.endswith("64") else module


def _compiled(name: str, folder: Path, flags: list[str], header: str = "") -> bytes:
    """A folder's sources as one module. `header`: the text of calls.h."""
    files = {path.name: path.read_bytes() for path in sorted(folder.glob("*.[ch]"))}
    key = hashlib.sha256(repr((compiler(), flags, header, files)).encode()).hexdigest()[:24]
    cached = cache_dir("wasm") / f"{name}-{key}.wasm"
    if not cached.exists():
        _compile(folder, flags, header, cached)
    return cached.read_bytes()


def _with_larger_memory(module: bytes) -> bytes:
    """A 64-bit module that takes a memory of MAX_PAGES_64."""
    changed, count = MEMORY_64.subn(MEMORY_64_LARGER, module)
    if count != 1:
        raise Failure(f"A 64-bit module imports its memory {count} times in the form that is known")
    return changed


def _compile(sources: Path, flags: list[str], header: str, to: Path) -> None:
    ensure_compiler()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "calls.h").write_text(header, encoding="utf-8")
        part = to.with_suffix(f".{os.getpid()}.part")
        files = [path.relative_to(ROOT) for path in sorted(sources.glob("*.c"))]
        command: list[str | Path] = [venv_python(), "-m", "ziglang", "cc", *flags, f"-I{folder}", *files, "-o", part]
        run(command, "Cannot compile wasm/", cwd=ROOT)
        part.replace(to)


if __name__ == "__main__":
    MEDIA_JS.write_text(media_module(), encoding="utf-8")
