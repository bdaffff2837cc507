"""Write archives whose bytes depend on their files alone."""

import gzip
import io
import tarfile
from calendar import timegm
from collections.abc import Mapping

from tools.python_zip import EPOCH


def tarball(files: Mapping[str, bytes]) -> bytes:
    """Return a .tar.gz of these files in their order, with a fixed time and owner."""
    out = io.BytesIO()
    time = timegm((*EPOCH, 0, 0, 0))
    with (
        gzip.GzipFile(fileobj=out, mode="wb", compresslevel=6, mtime=time, filename="") as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(data), time, 0o644
            tar.addfile(entry, io.BytesIO(data))
    return out.getvalue()
