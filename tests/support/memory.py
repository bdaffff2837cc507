"""The memory of the browser that a test drives, from Linux's /proc."""

import os
from contextlib import suppress
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE")


def renderers_mb() -> float:
    """The most memory that one of this process's renderers has."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            pid = int(entry.name)
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(pid)
    most, waiting = 0.0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        with suppress(OSError):
            folder = Path(f"/proc/{pid}")
            if b"--type=renderer" in (folder / "cmdline").read_bytes():
                most = max(most, int((folder / "statm").read_text().split()[1]) * PAGE / 1e6)
    return most
