"""The golden LoRA adapters and control vectors, and their models."""

import json
from pathlib import Path

from tools.goldens import GOLDEN

LLAMA = "lora-llama.Q4_K_M"
MIXTURE = "lora-qwen3moe.F16"


def files(case: str) -> tuple[Path, list[Path]]:
    """A golden's model and adapters."""
    about = json.loads((GOLDEN / "lora" / f"{case}.json").read_text())
    return GOLDEN / f"{about['base']}.gguf", [GOLDEN / "lora" / f"{case}.{part}.gguf" for part in "abc"]
