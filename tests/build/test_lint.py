"""The commands `lint` and `format`, and the WGSL validator on a checkout with a broken kernel."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from py_engine.plan.kernels import Shader
from tools import checks, selection, shader_cache, shader_choice, shaders
from tools.paths import ROOT, venv_python

MODEL = "tests/golden/llama/llama.F16.gguf"


@pytest.fixture(autouse=True)
def _selecting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shaders are selected, also in a run of all tests."""
    monkeypatch.delenv(selection.ALL, raising=False)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """run(arguments) -> the environment's Python in a copy of the engine, the kernels, bench/ and tools/."""
    for name in ("tools", "bench", "py_engine", "wgsl"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "node_modules").symlink_to(ROOT / "node_modules")

    def in_copy(*arguments: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            [str(venv_python()), *arguments], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )

    return in_copy


def test_a_broken_kernel_is_found(run: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    model = str(ROOT / MODEL)
    done = run("-m", "tools.shaders", model)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(" shaders are valid\n")
    (kernel,) = tmp_path.glob("wgsl/**/norm.wgsl")
    text = kernel.read_text()
    kernel.write_text(text.replace("@compute", "fn broken() -> u32 { return 1.5; }\n@compute"))
    done = run("-m", "tools.shaders", model)
    assert done.returncode == 1
    assert "norm.wgsl: invalid" in done.stdout
    assert "fn broken() -> u32 { return 1.5; }" in done.stdout
    assert "cannot" in done.stdout


def test_a_run_that_reads_what_the_last_one_read_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a change, only new shaders are validated, and all of them for another Dawn."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first, second = (Shader("norm", code, {}, {}) for code in ("fn a() {}", "fn b() {}"))
    assert not shader_cache.LastRun().is_current
    shader_cache.LastRun().replace([first])
    last_run = shader_cache.LastRun()
    assert last_run.is_current
    assert (first in last_run, second in last_run) == (True, False)
    monkeypatch.setattr(shaders, "expanded", lambda *_: pytest.fail("nothing has changed"))
    assert shaders.main([]) == 0
    assert capsys.readouterr().out == "1 shaders are valid\n"
    (stored,) = tmp_path.glob("wisp/shaders/*.json")
    run = json.loads(stored.read_text())
    assert {"py_engine/planner.py", "py_engine/plan/kernels.py", "tools/shaders.py"} <= run["modules"].keys()
    assert not [name for name in run["modules"] if name.startswith(".venv")]
    for changed in (
        {"modules": run["modules"] | {"py_engine/planner.py": "another"}},
        {"modules": run["modules"] | {"py_engine/is_gone.py": "removed"}},
        {"inputs": "other kernels"},
    ):
        stored.write_text(json.dumps(run | changed))
        last_run = shader_cache.LastRun()
        assert not last_run.is_current
        assert first in last_run
    monkeypatch.setattr(shader_cache, "VALIDATOR", ROOT / "build.py")  # validates in another way
    assert first not in shader_cache.LastRun()


def test_another_checkout_begins_with_the_last_run_of_any(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Continuous integration has a new checkout each time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first, second = (Shader("norm", code, {}, {}) for code in ("fn a() {}", "fn b() {}"))
    shader_cache.LastRun().replace([first])
    with monkeypatch.context() as patch:
        (tmp_path / "another").symlink_to(ROOT)
        patch.setattr(shader_cache, "ROOT", tmp_path / "another")
        last_run = shader_cache.LastRun()
        assert last_run.is_current
        assert (first in last_run, second in last_run) == (True, False)
        last_run.add([second])
        assert second in shader_cache.LastRun()
    assert second not in shader_cache.LastRun()  # this checkout has a run of its own
    assert first not in shader_cache.LastRun(everything=True)


def test_a_quick_run_takes_two_devices_and_is_no_whole_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first, second = (Shader("norm", code, {}, {}) for code in ("fn a() {}", "fn b() {}"))
    shader_cache.LastRun().replace([first])
    (stored,) = tmp_path.glob("wisp/shaders/*.json")
    stored.write_text(json.dumps(json.loads(stored.read_text()) | {"inputs": "other kernels"}))
    devices: list[shaders.Setup] = []

    def expanded(_: object, setups: tuple[shaders.Setup, ...]) -> list[Shader]:
        devices.extend(setups)
        return [second]

    monkeypatch.setattr(shaders, "expanded", expanded)
    monkeypatch.setattr(shaders, "validate", lambda found: [] if list(found) == [second] else ["all"])
    assert shaders.main(["--quick"]) == 0
    assert len(devices) == 2
    last_run = shader_cache.LastRun()
    assert not last_run.is_current
    assert first in last_run
    assert second in last_run


def test_every_text_and_every_number_of_a_param_is_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shaders that differ in numbers alone are validated until every number of their kernel has been."""

    def shader(kernel: str, a: int, b: int, code: str = "fn f() {}") -> Shader:
        return Shader(f"{kernel} A={a}", f"const A: u32 = {a};\nconst B: u32 = {b};\n{code}", {}, {})

    first, *left_out = shader("norm", 1, 1), shader("norm", 2, 1), shader("norm", 1, 2)
    new = [
        shader("norm", 2, 2),
        shader("norm", 1, 1, "fn f() { A; }"),
        shader("sample", 1, 1, "fn f() { A + B; }"),
        shader("norm", 1, 3),
        shader("sample", 3, 1, "fn f() { A + B; }"),
        shader("sample", 1, 1, "const C = 1;"),
        shader("sample", 1, 1, "const C = 2;"),  # written in the kernel's text
    ]
    every = [first, *new, *left_out]
    assert list(shader_choice.chosen(every)) == [first, *new]
    assert list(shader_choice.chosen([*left_out, *every])) == [*left_out, *new[1:]]
    monkeypatch.setenv(selection.ALL, "1")
    assert list(shader_choice.chosen(every)) == every


def test_runs_of_all_shaders_and_of_chosen_ones_are_stored_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code = "const A: u32 = {};\nconst B: u32 = {};\nfn f() {{}}"
    every = [Shader("norm", code.format(a, b), {}, {}) for a in (1, 2) for b in (1, 2)]
    asked: list[Shader] = []

    def validate(found: Iterable[Shader]) -> list[shaders.Invalid]:
        asked.extend(found)
        return []

    monkeypatch.setattr(shaders, "expanded", lambda *_: every)
    monkeypatch.setattr(shaders, "of_encoder_tiles", lambda: iter(()))
    monkeypatch.setattr(shaders, "unreached", lambda _: [])
    monkeypatch.setattr(shaders, "validate", validate)
    assert shaders.main([]) == 0
    assert asked == every[:3]
    monkeypatch.setenv(selection.ALL, "1")
    assert shaders.main([]) == 0
    assert asked[3:] == every


def test_lint_prints_a_line_for_each_checker(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = {"good": [sys.executable, "-c", "print('quiet')"], "bad": [sys.executable, "-c", "exit('its output')"]}
    monkeypatch.setattr(checks, "CHECKS", commands)
    assert checks.lint() == 1
    out = capsys.readouterr().out
    assert sorted(line.split(" (")[0] for line in out.splitlines()[:2]) == ["FAILED bad", "ok     good"]
    assert "its output" in out
    assert "quiet" not in out
    monkeypatch.setattr(checks, "CHECKS", {"good": commands["good"]})
    assert checks.lint() == 0


def test_format_rewrites_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("import sys\nx = [1,2]\n")
    (tmp_path / "two.js").write_text("let a = {b:1}")
    monkeypatch.setattr(checks, "ROOT", tmp_path)
    assert checks.format_sources() == 0
    assert (tmp_path / "one.py").read_text().endswith("x = [1, 2]\n")
    assert (tmp_path / "two.js").read_text() == "let a = { b: 1 };\n"
