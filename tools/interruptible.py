"""Run a module, as `python -m` does. SIGTERM interrupts it as Ctrl-C does, so that it ends its browser and programs."""

import runpy
import signal
import sys


def _interrupt(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # a second one would interrupt what ends the browser
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _interrupt)
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
