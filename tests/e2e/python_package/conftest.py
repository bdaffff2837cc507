"""A Python without Wisp's page, which the tests of the Python package share."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser

from tests.support.bare_pyodide import PLAMO, PYTHON_EXAMPLES, Python, Site


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site"), PLAMO) as made:
        yield made


@pytest.fixture(scope="package")
def python(site: Site, chromium: Callable[[str | None], Browser]) -> Iterator[Python]:
    """A Python on a page's main thread, without WebGPU. The first example's names are in its module `shared`."""
    made = Python(chromium(None), site)
    assert "Paris" in made.run_example(PYTHON_EXAMPLES[0])
    yield made
    made.page.context.close()
