"""llama.cpp's architectures that no family here computes, and what each would need. families.py names it in its error.

An entry goes when a family takes the name: tests/unit/test_style.py compares it with families.py and docs/models.md.
"""

from __future__ import annotations

VISION = "a language model with parts for pictures within its layers"

NEEDS: dict[str, str] = {
    **dict.fromkeys(("chameleon", "cogvlm", "deepseek2-ocr"), VISION),
    "gptj": "an implementation to compare with: llama.cpp has none",
    "wavtokenizer-dec": "convolutions: it makes sound, not text",
}
