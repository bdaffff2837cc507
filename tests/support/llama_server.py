"""llama.cpp's own OpenAI-compatible server (from the package xllamacpp) in a process of its own.

python -m tests.support.llama_server MODEL CONTEXT KEY [BATCH] prints its address, and serves until its input ends.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.paths import ROOT


@contextmanager
def llama_server(model: Path, context: int, key: str, batch: int = 2048) -> Iterator[str]:
    """Serve a model; yield the base URL for clients. `batch`: tokens of a prompt at once."""
    command = [sys.executable, "-m", __name__, str(model), str(context), key, str(batch)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout
            lines = (line for line in process.stdout if line.startswith("Serving "))
            yield f"{next(lines).split()[1]}/v1"
        finally:
            process.kill()


def _serve(model: str, context: str, key: str, batch: str = "2048") -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {Path(model).stem}
    params.n_ctx = int(context)
    params.n_batch = int(batch)
    params.n_parallel = 1
    params.port = 0
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.api_keys = [key]
    params.warmup = False
    params.endpoint_metrics = True
    server = xllamacpp.Server(params)
    print(f"Serving {server.listening_address}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
