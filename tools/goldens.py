"""The golden files: which of them hold whole text models."""

from pathlib import Path

from tools.paths import ROOT

GOLDEN = ROOT / "tests" / "golden"
# Folders with vocabularies, with shards, with models for media, and with adapters
OTHERS = ("vocab", "split", "vision", "lora")


def text_models_with_media() -> list[Path]:
    """The golden files with text models that read pictures or sounds."""
    return sorted(p for p in GOLDEN.glob("vision/*.gguf") if not p.stem.endswith(".mmproj"))


def golden_models() -> list[Path]:
    """The golden files that hold a whole text model each."""
    return sorted(p for p in GOLDEN.glob("*/*.gguf") if p.parent.name not in OTHERS)


def adapters_of(model: Path) -> list[Path]:
    """The golden adapters for a golden model, in the order in which they are loaded; none if it has none."""
    return sorted((GOLDEN / "lora").glob(f"lora-{model.stem}.*.gguf"))


def golden_projectors() -> list[Path]:
    """The golden files that hold encoders of images or sound."""
    return sorted((GOLDEN / "vision").glob("*.mmproj.gguf"))
