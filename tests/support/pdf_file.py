"""Small PDF files, written by hand. Source of the format: ISO 32000-1."""

import re
import zlib
from collections.abc import Iterable

from tools.paths import ROOT

Line = tuple[str, int, int]  # text, points of its letters, points from the page's top


def pdf(pages: Iterable[list[Line]]) -> bytes:
    """A PDF file with these lines on its pages, in Helvetica."""
    pages = list(pages)
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for i, lines in enumerate(pages):
        text = "".join(
            f"BT /F1 {size} Tf 72 {792 - top} Td ({_escaped(line)}) Tj ET\n" for line, size, top in lines
        ).encode("cp1252")
        font = "/Resources << /Font << /F1 3 0 R >> >>"
        page = f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] {font} /Contents {5 + 2 * i} 0 R >>"
        objects += [page.encode(), stream_of(text)]
    return assembled(objects)


def assembled(objects: list[bytes]) -> bytes:
    """A file of these objects. The first is the catalog."""
    out, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    count = len(objects) + 1
    head = b"xref\n0 %d\n0000000000 65535 f \n" % count
    tail = b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (count, len(out))
    return out + head + table + tail


def stream_of(data: bytes, entries: bytes = b"") -> bytes:
    """A stream, with more entries of its dictionary."""
    return b"<< %b /Length %d >>\nstream\n%b\nendstream" % (entries, len(data), data)


def unpacking(megabytes: int) -> bytes:
    """A small PDF file whose page unpacks to so many megabytes of blanks."""
    blanks, packer = b" " * 1_000_000, zlib.compressobj(9, wbits=-15)
    block = packer.compress(blanks) + packer.flush(zlib.Z_FULL_FLUSH)  # packed once: it refers to nothing before it
    checksum = 1
    for _ in range(megabytes):
        checksum = zlib.adler32(blanks, checksum)
    packed = b"\x78\xda" + block * megabytes + packer.flush() + checksum.to_bytes(4, "big")
    return assembled(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R >>",
            b"<< /Filter /FlateDecode /Length %d >>\nstream\n%b\nendstream" % (len(packed), packed),
        ]
    )


def repeated(times: int) -> bytes:
    """A PDF file whose page tree lists one page so many times."""
    return assembled(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [%b] /Count %d >>" % (b"3 0 R " * times, times),
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] >>",
        ]
    )


def without_time_limit() -> str:
    """An init script of a page that goes on to read a PDF file until it is told to stop (app/retrieval/pdf.js)."""
    found = re.search(r"LIMIT_MS = (\d[\d_]*);", (ROOT / "app" / "retrieval" / "pdf.js").read_text(encoding="utf-8"))
    assert found
    return f"""{{
      const {{ setTimeout }} = globalThis;
      globalThis.setTimeout = (run, ms, ...rest) => (ms === {found[1]} ? 0 : setTimeout(run, ms, ...rest));
    }}"""


def endless(doublings: int = 40) -> bytes:
    """A PDF file whose page shows a form twice, which shows another one twice, and so on: 2 ** doublings texts."""
    font = "/Resources << /Font << /F1 3 0 R >> /XObject << /X %d 0 R >> >>"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] {font % 6} /Contents 5 0 R >>".encode(),
        b"<< /Length 11 >>\nstream\n/X Do /X Do\nendstream",
    ]
    for number in range(6, 6 + doublings):
        text = b"/X Do /X Do" if number < 5 + doublings else b"BT /F1 11 Tf (x) Tj ET"
        head = f"<< /Type /XObject /Subtype /Form /BBox [0 0 9 9] {font % (number + 1)} /Length {len(text)} >>"
        objects.append(b"%b\nstream\n%b\nendstream" % (head.encode(), text))
    return assembled(objects)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
