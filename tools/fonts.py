"""Publish the fonts that a bundled style sheet refers to."""

import re
from collections.abc import Callable
from pathlib import Path

FACE = re.compile(r'src:url\("?fonts/([\w-]+\.woff2)"?\) ?format\("woff2"\)[^;}]*')


def with_fonts(style: str, folder: Path, publish: Callable[[str, bytes], str]) -> str:
    """Return the style sheet with the addresses of its fonts; only woff2, which every supported browser reads.

    `folder` has fonts/; `publish(name, data)` returns a font's address relative to the style sheet.
    """

    def address(face: re.Match[str]) -> str:
        return f'src:url({publish(face[1], (folder / "fonts" / face[1]).read_bytes())})format("woff2")'

    return FACE.sub(address, style)
