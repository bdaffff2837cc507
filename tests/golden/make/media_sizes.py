"""What llama.cpp makes of pictures of many sizes, for the projectors of media_cases.json and an older idefics3.

A row has a projector's metadata, its last tensor, and for each size the pieces that the encoder gets: tokens, width,
height, and the beginning of the SHA-256 of the pixels, if these are bytes.
"""

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.make.changed_models import without_key
from tests.golden.make.gguf_file import GgufFile, Layout
from tests.golden.make.llama_cpp_api import Library
from tests.golden.make.media_cases import MediaCase, media_cases, text_model
from tests.golden.make.media_changes import read
from tests.golden.make.media_model import MediaModel
from tests.golden.make.random_projectors import OUTPUTS
from tests.golden.make.record_media import Recorder
from tests.support.drawn_pictures import drawn
from tests.support.media import VISION

SIZES = (
    *((157, 93), (12, 4), (21, 11), (109, 6), (17, 32), (1, 1), (3, 500), (57, 55), (56, 56), (224, 113)),
    *((320, 240), (99, 400), (601, 33), (168, 169)),
)
DIGITS = 16  # of a SHA-256


def write_sizes(out: Path, library: Library) -> None:
    """Write a row for every projector of pictures."""
    cases = [case for case in media_cases() if isinstance(case, MediaCase) and not case.sound]
    rows = [row(case.projector(), text_model(case.text), OUTPUTS[case.kind], library) for case in cases]
    rows.append(row(older_idefics3(), read(VISION / "idefics3.gguf"), "mm.model.fc.weight", library))
    lines = ",\n".join(map(json.dumps, rows))
    out.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def older_idefics3() -> GgufFile:
    """The golden's projector without the longest side, which older files lack."""
    file = read(VISION / "idefics3.mmproj.gguf")
    without_key("clip.vision.preproc_image_size")(file)
    return file


def row(projector: GgufFile, text: GgufFile, name: str, library: Library) -> dict[str, Any]:
    """The row of one projector. `name`: its last tensor."""
    metadata = dict(projector.metadata)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("text.gguf", "projector.gguf")]
        for file, path in zip((text, projector), paths, strict=True):
            file.write(path, "F32", Layout(), library)
        model = MediaModel(library, *paths)
        recorder = Recorder(model, {}, metadata)
        pictures = [{"size": size, "pieces": pieces(recorder, size)} for size in SIZES]
        model.close()
    shape = [int(n) for n in reversed(projector.tensors[name].shape)]
    known = metadata | {"general.architecture": "clip"}
    return {"metadata": known, "output": [name, shape], "img_break": False, "pictures": pictures}


def pieces(recorder: Recorder, size: tuple[int, int]) -> list[list[int | str]]:
    """The pieces of the picture of a size."""
    handle, found = recorder.model.picture(drawn(*size)), list[list[int | str]]()
    for chunk in recorder.model.chunks("<__media__>", [handle]):
        if not chunk.is_text:
            assert recorder.model.compute(chunk)
            assert chunk.given is not None
            pixels = recorder.pixels(chunk.given)
            row: list[int | str] = [chunk.about["n_tokens"], pixels.shape[1], pixels.shape[0]]
            if pixels.dtype == np.uint8:
                row.append(hashlib.sha256(pixels.tobytes()).hexdigest()[:DIGITS])
            found.append(row)
    recorder.model.forget(handle)
    return found
