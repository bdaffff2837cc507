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
