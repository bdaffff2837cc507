"""llama.cpp's architectures that no family here computes, and what each would need. families.py names it in its error.

An entry goes when a family takes the name: tests/unit/test_style.py compares it with families.py and docs/models.md.
"""

from __future__ import annotations

SOUND = "a decoder of sound: it makes sound, not text"
DRAFTS = "the model that it drafts for: load that model, with this file as its draft model"

NEEDS: dict[str, str] = {
    **dict.fromkeys(("wavtokenizer-dec", "qwen3tts", "pockettts"), SOUND),
    **dict.fromkeys(("dflash", "eagle3"), DRAFTS),
    "gemma4-assistant": "the model that it drafts for: load a Gemma 4 model, with this file as its draft model",
    "clef": "a head that scores the options of questions: it writes no text",
    "gptj": "an implementation to compare with: llama.cpp has none",
}
