"""Failures that the user can fix, and subprocesses that raise them."""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


class Failure(Exception):
    """One line that says what went wrong and what to do; `build.py` prints it and exits with 1."""


def plain(text: str) -> str:
    """The text without control characters, which could forge other lines or change the terminal."""
    return CONTROLS.sub("", text)


def say(text: str) -> None:
    """Print progress to stderr; stdout carries answers and the address that `serve` prints."""
    print(text, file=sys.stderr, flush=True)


def run(
    command: Sequence[str | Path],
    otherwise: str,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    timeout: float | None = None,
) -> str:
    """Run a command and return its stdout; if it fails, raise Failure with `otherwise` and the command's error."""
    try:
        done = subprocess.run(
            [str(part) for part in command],
            cwd=cwd,
            env=env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError:
        raise Failure(f"{otherwise} ({command[0]} is not installed)") from None
    except subprocess.TimeoutExpired:
        raise Failure(f"{otherwise} (no answer after {timeout:.0f} s)") from None
    if done.returncode:
        raise Failure(f"{otherwise} ({_reason(done.stderr) or _reason(done.stdout) or f'exit {done.returncode}'})")
    return done.stdout


def _reason(output: str) -> str:
    """Return the most telling line of a failed command's output: the first error, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines[-1:] or [""])[0][:300]
