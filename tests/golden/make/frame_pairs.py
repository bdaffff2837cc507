"""What llama.cpp makes of three frames of a video, for the projectors that read two frames as one picture.

A row has the golden's name, the chunks, and of each picture the places of its tokens, the root mean square of its
embeddings, their mean and the first ROWS of them. The weights are widened to float32, as in record_media.py.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.make.gguf_file import Layout
from tests.golden.make.llama_cpp_api import Library
from tests.golden.make.media_changes import read
from tests.golden.make.media_model import MediaModel
from tests.golden.make.record_media import widened
from tests.support.media import VISION, golden, video_frames

NAMES = ("qwen2vl", "qwen2.5vl", "qwen3vl", "ling3vl")
PROMPT = "Look: <__media__><__media__><__media__>\nwhat moves?"
ROWS = 4  # of a picture's embeddings


def write_pairs(out: Path, library: Library) -> None:
    """Write a row for every projector."""
    out.parent.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(_row(name, library)) for name in NAMES)
    out.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def _row(name: str, library: Library) -> dict[str, Any]:
    about = golden(name).about
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / file for file in ("text.gguf", "projector.gguf")]
        for source, path in zip((about["text_model"], about["mmproj"]), paths, strict=True):
            widened(read(VISION / source)).write(path, "F32", Layout(), library)
        model = MediaModel(library, *paths)
        handles = [model.picture(frame) for frame in video_frames()]
        for handle in handles:
            model.api.mtmd_bitmap_set_mergeable(handle, True)
        chunks = model.chunks(PROMPT, handles)
        for chunk in chunks:
            if not chunk.is_text:
                assert model.compute(chunk)
                assert chunk.rows is not None
                assert chunk.places is not None
                chunk.about |= _embeddings(chunk.rows) | {"places": chunk.places.tolist()}
        model.close()
    return {"name": name, "prompt": PROMPT, "chunks": [chunk.about for chunk in chunks]}


def _embeddings(rows: np.ndarray) -> dict[str, Any]:
    """What is recorded of a picture's embeddings (n, width)."""
    rms = float(np.sqrt((rows.astype(np.float64) ** 2).mean()))
    return {"rms": _rounded(rms), "embd": [list(map(_rounded, row)) for row in rows[:ROWS].tolist()]} | {
        "mean": list(map(_rounded, rows.mean(0).tolist()))
    }


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
