"""What failures of micropip mean. Knows neither the engine nor the browser: the page's sandbox has this module, too."""

import re
from collections.abc import Mapping


def explain_install_error(error: Exception, unreachable: Mapping[str, Exception], *, asked: bool) -> str:
    """Say what a failed install means.

    `unreachable`: addresses whose fetch raised it; `asked`: an index could be asked.
    """
    text = str(error).strip()
    missing = re.search(r"Can't fetch metadata for '([^']+)'", text)
    if missing and not asked:
        what = f"{missing[1]} is neither installed nor among the packages"
        return f"{what}. Give its wheel, too, or allow PyPI: pypi=True"
    if url := _unreachable(error, missing[1] if missing else "", unreachable):
        return f"{url} cannot be reached, and is not stored from before. Check the network"
    if missing:
        return f"No index has {missing[1]}"
    if compiled := re.search(r"Can't find a pure Python 3 wheel for:? '([^']+)'", text):
        return f"The index has no wheel of {compiled[1]} that runs here: pure Python, or built for Pyodide"
    return f"The packages cannot be installed: {text.splitlines()[0] if text else type(error).__name__}"


def _unreachable(error: Exception, missing: str, unreachable: Mapping[str, Exception]) -> str:
    """The address whose failed fetch led to the error, or ""; `missing`: the package that no index gave."""
    if missing:  # micropip goes on to the next index, and its error has no cause
        return next((url for url in unreachable if f"/{missing}/" in url), "")
    causes = (error, error.__cause__)
    return next((url for url, failed in unreachable.items() if failed in causes), "")
