"""The goldens' makers, without llama.cpp: presets, the table of goldens, and the numpy reference against it."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.golden.make.cases import FETCHED, GOLDEN, all_cases, model_cases
from tests.golden.make.compare import compare
from tests.golden.make.gguf_file import Layout
from tests.golden.make.presets import PRESETS
from tests.golden.make.quantize import GGUF_PY
from tests.golden.make.random_models import write
from tests.golden.make.reference import Reference
from tests.golden.make.reference_model import KNOWN
from tests.support.tolerances import assert_close, assert_same_direction

MODELS = {case.name: case for case in model_cases()}
# One model per family with arithmetic of its own.
DECODERS = [
    "llama.Q4_K",
    "mixtral.F16",
    "qwen3.F16",
    "gemma2.F16",
    "gemma4.F16",
    "phi3-longrope-long.F16",
    "falcon.F16",
]
DECODERS += ["gpt2.F16", "gpt-oss.F16", "lfm2.F16", "cohere2.F16", "olmo3.F16", "glm4.F16"]
ENCODERS = ["bert-rank.F16", "jina-bert-v2.F16", "modern-bert.F16", "nomic-bert-moe.F16", "gemma-embedding.F16"]


def test_every_golden_can_be_made_again() -> None:
    """Every golden file belongs to a case that makes it, but what is drawn or recorded, and the first ones of media."""
    made = [path for case in all_cases() for path in case.files()]
    assert len(made) == len(set(made))
    others = ("make", "sees", "video", "vision", "__init__.py", "__pycache__")
    files = (path.relative_to(GOLDEN) for path in GOLDEN.rglob("*") if path.is_file())
    present = {path for path in files if path.parts[0] not in others or path in made}
    assert set(made) | set(FETCHED) == present


def test_every_architecture_has_a_preset_and_a_reference() -> None:
    recorded = {
        json.loads((GOLDEN / case.folder / f"{case.name}.json").read_text())["arch"] for case in MODELS.values()
    }
    assert recorded == {preset["arch"] for preset in PRESETS.values()} == KNOWN
    assert {case.preset for case in MODELS.values()} == set(PRESETS)


def test_the_readme_s_table_has_a_row_for_every_golden() -> None:
    text = (GOLDEN / "make" / "README.md").read_text().partition("<!-- goldens -->")[2].partition("<!-- end -->")[0]
    rows = [line.split("|")[1].strip() for line in text.splitlines()[3:]]
    assert sorted(rows) == sorted(case.name for case in all_cases())


def test_every_golden_says_what_its_case_says() -> None:
    for case in MODELS.values():
        about = json.loads((GOLDEN / case.folder / f"{case.name}.json").read_text())
        said = {key: about[key] for key in ("name", "preset", "type", "seed")}
        assert said == {"name": case.name, "preset": case.preset, "type": case.type, "seed": case.seed}
        assert about["config"].items() >= case.set.items()


@pytest.mark.parametrize("name", DECODERS)
def test_reference_of_decoders(name: str) -> None:
    case = MODELS[name]
    golden = np.load(GOLDEN / case.folder / f"{name}.npz")
    reference = Reference(GOLDEN / case.path(), case.n_ctx)
    assert_close(golden["logits_ref"], reference.logits(golden["prompt"]).astype(np.float32), "f32")
    if case.long:
        rows = reference.logits(golden["long_prompt"])[-16:]
        assert_close(golden["long_logits_ref"], rows.astype(np.float32), "f32")


@pytest.mark.parametrize("name", ENCODERS)
def test_reference_of_embedding_models(name: str) -> None:
    case = MODELS[name]
    golden = np.load(GOLDEN / case.folder / f"{name}.npz")
    reference = Reference(GOLDEN / case.path(), case.n_ctx)
    for pooling in case.poolings:
        got = reference.embedding(golden["prompt"], pooling)
        assert_same_direction(golden[f"embd_{pooling}_ref"], got, "f32")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, case in MODELS.items() if case.type in GGUF_PY])
def test_seed_gives_the_model_s_bytes_again(name: str, tmp_path: Path) -> None:
    """For the types that gguf-py quantizes. Only ggml can make the others."""
    case = MODELS[name]
    write(tmp_path / f"{name}.gguf", case.preset, case.type, case.seed, Layout(**case.layout), None, **case.set)
    files = sorted(tmp_path.glob("*.gguf"))
    assert files
    for file in files:
        assert file.read_bytes() == (GOLDEN / case.folder / file.name).read_bytes()


def test_a_changed_golden_is_noticed(tmp_path: Path) -> None:
    case = MODELS["llama.F16"]
    folder = tmp_path / case.folder
    folder.mkdir()
    for path in case.files():
        (tmp_path / path).write_bytes((GOLDEN / path).read_bytes())
    assert compare(case, tmp_path).agrees
    arrays = dict(np.load(folder / "llama.F16.npz"))
    for value in (arrays["logits"][0, 0] + 1, np.nan):
        arrays["logits"][0, 0] = value
        np.savez_compressed(folder / "llama.F16.npz", **arrays)
        assert not compare(case, tmp_path).agrees
    (folder / "llama.F16.json").unlink()
    assert len(compare(case, tmp_path).wrong) == 2
