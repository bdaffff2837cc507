"""Run in an engine page: media files, prepared for a golden's projector as the engine does it."""

import base64
import hashlib
from typing import Any

import js

from py_engine.errors import WispError
from py_engine.files.gguf_header import parse
from py_engine.media.decoder import prepare
from py_engine.media.prepared import Picture
from py_engine.media.projector import Projector

FOLDER = "/repo/tests/golden/vision"


async def _read(url: str) -> bytes:
    buffer = await (await js.fetch(url)).arrayBuffer()
    data: bytes = buffer.to_bytes()
    return data


async def prepared(mmproj: str, files: list[str]) -> list[list[Any]]:
    """What is made of each file: [width, height, tokens, SHA-256] of each piece, or [frames, tokens, mel].

    The browser's hashes must be Python's.
    """
    data = await _read(f"{FOLDER}/{mmproj}")
    projector = Projector.from_gguf(parse(data, len(data)))
    found: list[list[Any]] = []
    for file in files:
        medium = await prepare(projector, await _read(f"{FOLDER}/media/{file}"))
        if isinstance(medium, Picture):
            assert all(p.sha256 == hashlib.sha256(p.pixels).digest() for p in medium.pieces)
            found.append([[*p.size, p.n_tokens, hashlib.sha256(p.pixels).hexdigest()] for p in medium.pieces])
        else:
            assert all(s.sha256 == hashlib.sha256(s.mel.tobytes()).digest() for s in medium.spectra)
            encoded = [base64.b64encode(s.mel.tobytes()).decode() for s in medium.spectra]
            shapes = [[s.mel.shape[1], s.n_tokens] for s in medium.spectra]
            found.append([[*shape, mel] for shape, mel in zip(shapes, encoded, strict=True)])
    return found


async def refused(mmproj: str, data: str) -> str:
    """The code of the error for a file, in Base64; "" if it is accepted."""
    header = await _read(f"{FOLDER}/{mmproj}")
    try:
        await prepare(Projector.from_gguf(parse(header, len(header))), base64.b64decode(data))
    except WispError as error:
        return error.code
    return ""
