"""What is wrong with how a page looks and with what its elements say to assistive technology."""

import time
from typing import Any

from playwright.sync_api import Page

from tools.paths import NODE_MODULES, ROOT

FAULTS = (ROOT / "tests" / "support" / "page_faults.js").read_text(encoding="utf-8")
AXE = NODE_MODULES / "axe-core" / "axe.min.js"
LATE_S = 10.0  # the latest that a page is drawn after a change
# A change of theme or of a state fades from one colour to the next: colours on the way are nobody's choice.
SETTLED = """() => Promise.all(document.getAnimations()
    .filter((animation) => animation instanceof CSSTransition)
    .map(({ finished }) => finished.catch(() => {})))"""
# All rules, in the page as it is now. Frames are previews of what a model wrote.
RUN = """async () => {
    const { violations } = await axe.run(document, { resultTypes: ["violations"], iframes: false });
    return violations.flatMap(({ id, nodes }) =>
        nodes.map(({ html, any }) => `${id}: ${html.slice(0, 150)} ${any[0]?.message ?? ""}`));
}"""


def faults(page: Page) -> list[Any]:
    """Elements that overflow the window, buttons that are too small, and axe-core's violations.

    Only those that stay: what a busy machine draws late has time.
    """
    if not page.evaluate("'axe' in globalThis"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    end = time.monotonic() + LATE_S
    while (found := faults_now(page)) and time.monotonic() < end:
        page.wait_for_timeout(100)
    return found


def faults_now(page: Page) -> list[Any]:
    page.evaluate(SETTLED)
    return [*page.evaluate(FAULTS), *page.evaluate(RUN)]
