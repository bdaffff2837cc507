"""Preview a document whose nested frame uses WebRTC, in a browser that a Playwright of this process drives.

    python -m tests.support.webrtc_frame SERVER PORT

Chromium ends the process of such a frame, which may be the page's, and Playwright's driver ends with it at times. Here
that fails no other test. SERVER: the address of the tests' server; PORT: where a STUN server would be. Prints SHOWN
once the preview has a frame, or has ended the page's process.
"""

import contextlib
import sys

from playwright.sync_api import Error, sync_playwright

from tests.support.answers import open_answers, preview
from tests.support.browser import launch, new_profile

SHOWN = "the preview is shown"
NESTED = """<!doctype html><iframe srcdoc="<script>
  const peer = new RTCPeerConnection({ iceServers: [{ urls: 'stun:127.0.0.1:%s' }] });
  peer.createDataChannel('x');
  peer.createOffer().then((offer) => peer.setLocalDescription(offer));
</script>"></iframe>"""


def main(server: str, port: str) -> None:
    """Show the document for a second, unless its process ends before."""
    with sync_playwright() as playwright:
        page = open_answers(new_profile(launch(playwright, None)), server)
        page.on("crash", lambda _: print(SHOWN, flush=True))
        with contextlib.suppress(Error):
            preview(page, "html", NESTED % port)
            page.locator(".artifact-frame").wait_for(state="attached")
            print(SHOWN, flush=True)
            page.frame_locator(".artifact-frame").frame_locator("iframe").locator("iframe").wait_for()
            page.wait_for_timeout(1_000)


if __name__ == "__main__":
    main(*sys.argv[1:])
