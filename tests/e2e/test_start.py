"""Python starts from its snapshot, or without one if the snapshot fails."""

from playwright.sync_api import Page

from tests.support.browser import run_python

FROM_NOTHING = """async () => {
  const { startPython } = await import("/repo/app/boot.js");
  const stages = [];
  const assets = { ...wispAssets, snapshot: wispAssets.catalog };
  const { pyodide, fromSnapshot } = await startPython(assets, (stage) => stages.push(stage), ["regex"]);
  const found = pyodide.runPython("import regex, app.models.catalog; regex.match(r'\\\\p{Lu}', 'Ä').group()");
  return { fromSnapshot, stages, found };
}"""


def test_python_starts_from_its_snapshot(engine_page: Page) -> None:
    """The snapshot's modules are imported already; random state differs at each start."""
    assert engine_page.evaluate("fromSnapshot") is True
    code = "import sys, random; ['jinja2.sandbox' in sys.modules, random.random()]"
    there, number = run_python(engine_page, code)
    assert there
    again = engine_page.evaluate(
        """async () => {
          const { startPython } = await import("/repo/app/boot.js");
          const { pyodide } = await startPython(wispAssets, () => undefined, []);
          return pyodide.runPython("import random; random.random()");
        }"""
    )
    assert again != number


def test_python_starts_without_a_snapshot(engine_page: Page) -> None:
    got = engine_page.evaluate(FROM_NOTHING)
    assert got == {"fromSnapshot": False, "stages": ["pyodide", "packages", "python"], "found": "Ä"}


def test_the_build_has_compiled_the_methods_of_dataclasses(engine_page: Page) -> None:
    """Those of Wisp's modules are not compiled in the page; a user's class is."""
    run, made = engine_page.evaluate(
        """async () => {
          const { startPython } = await import("/repo/app/boot.js");
          const { pyodide } = await startPython(wispAssets, () => undefined, []);
          return JSON.parse(pyodide.runPython(`
            import builtins, dataclasses, json
            run, execute = [], builtins.exec

            def watch(code, *namespaces):
                if isinstance(code, str) or code.co_filename == "<dataclass>":
                    run.append(type(code).__name__)
                execute(code, *namespaces)

            builtins.exec = watch
            import app.handlers, py_engine.options
            import py_engine.models.llama, py_engine.models.qwen, py_engine.models.gemma  # equal sources of Config
            dataclasses.dataclass(type("Point", (), {"__annotations__": {"x": int}}))
            json.dumps([run, repr(py_engine.options.LoadOptions(context_length=7).context_length)])
          `));
        }"""
    )
    assert len(run) > 50
    assert set(run[:-1]) == {"code"}
    assert run[-1] == "str"
    assert made == "7"
