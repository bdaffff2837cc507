"""wisp.install: packages of hooks from files and from an index."""

import base64
import hashlib

from tests.support.bare_pyodide import Python, Site
from tools.wheel import wheel

LISTS = {"word_lists/__init__.py": b"ANIMALS = ('cat', 'dog', 'fox')\n"}
RULES = b"""import numpy as np
import word_lists

def starts_with(engine, kind):
    words = getattr(word_lists, kind.upper())
    texts = [engine.detokenize([token]).strip().lower() for token in range(len(engine.tokenizer))]
    return np.array([text in words for text in texts])
"""


def test_packages_of_hooks(python: Python) -> None:
    """Wheels in the file system, where one requires the other; a File; errors say what is missing."""
    wheels = {
        "word_rules-2.1-py3-none-any.whl": wheel("word_rules", "2.1", {"word_rules.py": RULES}, {}, ("word-lists>=1",)),
        "word_lists-1.0-py3-none-any.whl": wheel("word_lists", "1.0", LISTS, {}),
        "lonely-1.0-py3-none-any.whl": wheel("lonely", "1.0", {"lonely.py": b""}, {}, ("not-to-be-found",)),
        "dropped_in-1.0-py3-none-any.whl": wheel("dropped_in", "1.0", {"dropped_in.py": b"X = 5"}, {}),
    }
    messages = python.run(
        """
import base64, js, wisp
from pathlib import Path
from pyodide.ffi import to_js
for name, data in wheels.items():
    Path(name).write_bytes(base64.b64decode(data))
messages, end = [], "-py3-none-any.whl"
for wrong in ("word_rules-2.1" + end, "lonely-1.0" + end, "surely-no-package", "x.whl", "a-1" + end):
    try:
        await wisp.install(wrong)
    except wisp.WispError as error:
        messages.append(error.message)
dropped = "dropped_in-1.0-py3-none-any.whl"
await wisp.install(js.File.new(to_js([Path(dropped).read_bytes()]), dropped))
import dropped_in
result = [messages, dropped_in.X]""",
        wheels={name: base64.b64encode(data).decode() for name, data in wheels.items()},
    )
    assert python.example("wisp.install").split()[0].lower().strip(".,") in ("cat", "dog", "fox")
    (rules, lonely, unknown, no_name, no_file), dropped = messages
    assert "word-lists" in rules
    assert "not-to-be-found" in lonely
    assert all("pypi=True" in message for message in (rules, lonely, unknown))
    assert "no name of a wheel" in no_name
    assert "There is no file" in no_file
    assert dropped == 5


def test_packages_of_an_index(python: Python, site: Site) -> None:
    """An index gives a package and what it requires, and what it has given installs again offline."""
    wheels = {
        "needing": wheel("needing", "1.2", {"needing.py": b"import needed\nX = needed.X + 1"}, {}, ("needed>=2",)),
        "needed": wheel("needed", "2.0", {"needed.py": b"X = 5"}, {}),
        "torn": wheel("torn", "1.0", {"torn.py": b""}, {}),
    }
    for name, data in wheels.items():
        file = f"{name}-{'1.2' if name == 'needing' else '2.0'}-py3-none-any.whl"
        site.add(f"files/{file}", data)
        digest = "0" * 64 if name == "torn" else hashlib.sha256(data).hexdigest()
        site.add(f"index/{name}/index.html", f'<a href="/files/{file}#sha256={digest}">{file}</a>'.encode())
    first = """
import sys, micropip, wisp
async def install(name, *urls):
    try:
        await wisp.install(name, index_urls=urls)
    except wisp.WispError as error:
        return error.message
async def value():
    failed = await install("needing", index)
    if failed:
        return failed
    import needing
    return needing.X
def forget():
    micropip.uninstall(["needing", "needed"])
    for name in ("needing", "needed"):
        sys.modules.pop(name, None)
"""
    nowhere = "http://127.0.0.1:1/simple"  # Chromium refuses this port
    index = f"{site.url}index"
    online = python.run(
        f"{first}result = [await value(), forget(), await install('surely-none', index), await install('torn', index),"
        " await install('surely-none', nowhere), await install('torn', nowhere, index),"
        " await install('surely-none', nowhere, index)]",
        index=index,
        nowhere=nowhere,
    )
    python.page.context.set_offline(True)
    try:
        offline = python.run(f"{first}result = [await value(), forget(), await install('torn2', index)]", index=index)
    finally:
        python.page.context.set_offline(False)
    assert online[0] == 6
    assert "No index has surely-none" in online[2]
    assert "cannot be installed" in online[3]
    assert f"{nowhere}/surely-none/ cannot be reached" in online[4]
    assert "cannot be installed" in online[5]  # the second index gave the wheel, whose hash is wrong
    assert f"{nowhere}/surely-none/ cannot be reached" in online[6]
    assert offline[0] == 6
    assert f"{index}/torn2/ cannot be reached" in offline[2]
