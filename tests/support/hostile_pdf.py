"""PDF files that need much memory or time, or refer to themselves. Each is small. Source of the format: ISO 32000-1."""

import hashlib
import zlib
from collections.abc import Callable

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tests.support.pdf_file import assembled, stream_of

ROOT = b"/Root 1 0 R"
CONTENTS = (5).to_bytes(3, "little") + bytes(2)  # number and generation of the page's contents
TEXT = b"BT /F1 11 Tf 72 700 Td (The Lumo Lamp costs 12 euros.) Tj ET"


def page(contents: bytes = TEXT, *more: bytes, fonts: bytes = b"", objects: bytes = b"") -> bytes:
    """A file of one page. `more`: objects from number 6 on; `fonts` and `objects`: names and values of resources."""
    resources = b"<< /Font << /F1 3 0 R %b >> /XObject << %b >> >>" % (fonts, objects)
    return assembled(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 5 0 R /Resources %b >>" % resources,
            stream_of(contents),
            *more,
        ]
    )


def composite(unicode: bytes = b"", widths: bytes = b"") -> tuple[bytes, list[bytes]]:
    """A font of two bytes a character, and its objects from number 6 on: /ToUnicode is number 7."""
    kind = b"/Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H"
    font = b"<< %b /DescendantFonts [6 0 R] /ToUnicode 7 0 R >>" % kind
    below = b"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /X /CIDSystemInfo << /Registry (A) /Ordering (I) >> %b >>"
    return font, [below % widths, stream_of(unicode)]


def cmap(entries: bytes) -> bytes:
    return b"begincmap\n1 begincodespacerange <0000> <FFFF> endcodespacerange\n" + entries + b"\nendcmap"


def with_font(entries: bytes, text: bytes = b"<0041>", widths: bytes = b"") -> bytes:
    """A page with a font of two bytes a character."""
    font, objects = composite(cmap(entries), widths)
    return page(b"BT /F2 11 Tf 72 700 Td %b Tj ET" % text, *objects, font, fonts=b"/F2 8 0 R")


def wide(part: bytes, times: int, begin: bytes = b"[", end: bytes = b"] 0 d") -> bytes:
    """A small file whose page's contents have many parts in one object, and a text after it."""
    packer = zlib.compressobj(9)
    data = packer.compress(begin) + b"".join(packer.compress(part * 1000) for _ in range(times // 1000))
    data += packer.compress(end + b"\n" + TEXT) + packer.flush()
    return page().replace(stream_of(TEXT), stream_of(data, b"/Filter /FlateDecode"))


def many_ranges(fonts: int = 20) -> bytes:
    """Fonts whose CMaps map 16 million codes each."""
    ranges = b" ".join(b"<%08X> <%08X> <0041>" % (top << 16, (top << 16) + 65535) for top in range(250))
    entries = b"250 beginbfrange %b endbfrange" % ranges
    objects: list[bytes] = []
    for number in range(6, 6 + 3 * fonts, 3):
        font, below = composite(cmap(entries))
        font = font.replace(b"6 0 R", b"%d 0 R" % (number + 1)).replace(b"7 0 R", b"%d 0 R" % (number + 2))
        objects += [font, *below]
    names = b"".join(b"/G%d %d 0 R " % (n, 6 + 3 * n) for n in range(fonts))
    text = b" ".join(b"BT /G%d 11 Tf 72 700 Td <0041> Tj ET" % n for n in range(fonts))
    return page(text, *objects, fonts=names)


def long_text() -> bytes:
    """A code that stands for 50,000 characters, shown 100,000 times in one string."""
    return with_font(b"1 beginbfchar <0041> <%b> endbfchar" % (b"0041" * 50_000), b"<" + b"0041" * 100_000 + b">")


def many_names(count: int = 3_000_000) -> bytes:
    """Names that differ."""
    data = zlib.compress(b"[" + b" ".join(b"/N%d" % n for n in range(count)) + b"] 0 d " + TEXT)
    return page().replace(stream_of(TEXT), stream_of(data, b"/Filter /FlateDecode"))


def many_fonts(count: int = 60_000) -> bytes:
    """Fonts that differ, each for one character."""
    fonts = b"".join(
        b"/G%d << /Type /Font /Subtype /Type1 /BaseFont /Helvetica /N %d >>" % (n, n) for n in range(count)
    )
    return page(b"BT 72 700 Td " + b" ".join(b"/G%d 11 Tf (x) Tj" % n for n in range(count)) + b" ET", fonts=fonts)


def changed(before: bytes, after: bytes) -> bytes:
    """A file of one page with something else in one place."""
    made = page()
    assert before in made
    return made.replace(before, after)


PAD = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")
IDENTITY = b"0123456789abcdef"
PERMISSIONS = (-4 & 0xFFFFFFFF).to_bytes(4, "little")


def encrypted(password: bytes) -> bytes:
    """A file encrypted with RC4 and a key of 40 bits. Algorithms 1 to 4 of the standard."""
    user = (password + PAD)[:32]
    owner = rc4(md5(b"owner" + PAD[:27])[:5], user)
    key = md5(user + owner + PERMISSIONS + IDENTITY)[:5]
    contents = rc4(md5(key + CONTENTS)[:10], TEXT)
    return protected(page(contents), b"/V 1 /R 2 /O <%b> /U <%b>" % (hexed(owner), hexed(rc4(key, PAD))))


def encrypted_with_aes(password: bytes) -> bytes:
    """A file encrypted with AES and a key of 128 bits. Algorithms 1 to 5 of the standard."""
    user, key = (password + PAD)[:32], b"owner" + PAD[:27]
    for _ in range(51):
        key = md5(key)
    owner = rounds(key, user)
    key = md5(user + owner + PERMISSIONS + IDENTITY)
    for _ in range(50):
        key = md5(key)
    check = rounds(key, md5(PAD + IDENTITY)) + bytes(16)
    start, fill = b"fedcba9876543210", 16 - len(TEXT) % 16
    encryptor = Cipher(algorithms.AES(md5(key + CONTENTS + b"sAlT")), modes.CBC(start)).encryptor()
    contents = start + encryptor.update(TEXT + bytes([fill] * fill)) + encryptor.finalize()
    filters = b"/CF << /StdCF << /CFM /AESV2 /Length 16 >> >> /StmF /StdCF /StrF /StdCF"
    entries = b"/V 4 /R 4 /Length 128 /O <%b> /U <%b> %b" % (hexed(owner), hexed(check), filters)
    return protected(page(contents), entries)


def protected(file: bytes, entries: bytes) -> bytes:
    """A file with an entry that says how it is encrypted."""
    more = b"/Encrypt << /Filter /Standard /P -4 %b >> /ID [<%b> <%b>]" % (entries, *[hexed(IDENTITY)] * 2)
    return file.replace(ROOT, ROOT + b" " + more)


def rounds(key: bytes, data: bytes) -> bytes:
    """RC4 with 20 keys."""
    for number in range(20):
        data = rc4(bytes(byte ^ number for byte in key), data)
    return data


def md5(data: bytes) -> bytes:
    return hashlib.md5(data).digest()


def hexed(data: bytes) -> bytes:
    return data.hex().encode()


def in_stream(of_stream: tuple[int, int, int]) -> bytes:
    """A file whose font, object 7, is in the stream of object 6. `of_stream`: what its table says of that stream."""
    font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
    inside = stream_of(b"7 0 " + font, b"/Type /ObjStm /N 1 /First 4")
    text = b"BT /F2 11 Tf 72 700 Td (The Lumo Lamp costs 12 euros.) Tj ET"
    made = page(text, inside, fonts=b"/F2 7 0 R").partition(b"xref\n")[0]
    entries = [(0, 0, 255), *((1, made.index(b"%d 0 obj" % number), 0) for number in range(1, 6))]
    kind, offset, index = of_stream
    entries += [(kind, offset or made.index(b"6 0 obj"), index), (2, 6, 0), (1, len(made), 0)]
    table = b"".join(bytes([kind]) + offset.to_bytes(2, "big") + bytes([index]) for kind, offset, index in entries)
    stream = stream_of(table, b"/Type /XRef /Size 9 /W [1 2 1] /Root 1 0 R")
    return made + b"8 0 obj\n" + stream + b"\nendobj\nstartxref\n%d\n%%%%EOF\n" % len(made)


def rc4(key: bytes, data: bytes) -> bytes:
    """Encrypt or decrypt."""
    box = list(range(256))
    j = 0
    for i in range(256):
        j = (j + box[i] + key[i % len(key)]) % 256
        box[i], box[j] = box[j], box[i]
    out, i, j = bytearray(), 0, 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + box[i]) % 256
        box[i], box[j] = box[j], box[i]
        out.append(byte ^ box[(box[i] + box[j]) % 256])
    return bytes(out)


LARGE = "unpacks to more"
ITS_TEXT = "The Lumo Lamp costs 12 euros."
NO_PAGE = "Its list of pages is damaged."
INLINE = b"<< /Type /Page /Parent 2 0 R /Contents 5 0 R /Resources << /Font << /F1 3 0 R >> >> >>"
ANY = ""  # a text or an error
FORM = stream_of(b"/X Do", b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X 6 0 R >> >>")
SHOW = b"/X Do " + TEXT
LENGTH = b"/Length %d" % len(TEXT)


def image(coding: bytes) -> bytes:
    """A page that shows an image of 3.6 billion pixels."""
    size = b"/Width 60000 /Height 60000 /BitsPerComponent 8 /ColorSpace /DeviceRGB"
    return page(SHOW, stream_of(b"abcd", b"/Type /XObject /Subtype /Image %b /Filter /%b" % (size, coding)), objects=X)


X = b"/X 6 0 R"
TREE = b"/Kids [4 0 R] /Count 1"
# name -> (how it is made, the text that it has or what the error says)
CASES: dict[str, tuple[Callable[[], bytes], str]] = {
    "RC4 without a password": (lambda: encrypted(b""), ITS_TEXT),
    "RC4 with a password": (lambda: encrypted(b"secret"), "protected with a password"),
    "AES without a password": (lambda: encrypted_with_aes(b""), ITS_TEXT),
    "AES with a password": (lambda: encrypted_with_aes(b"secret"), "protected with a password"),
    "an object in a stream": (lambda: in_stream((1, 0, 0)), ITS_TEXT),
    "a stream of objects that is in itself": (lambda: in_stream((2, 6, 0)), ANY),
    "a stream of objects in one that is in it": (lambda: in_stream((2, 7, 0)), ANY),
    "CMaps of 300 million codes": (many_ranges, LARGE),
    "a text of 5 billion characters": (long_text, ANY),
    "a width for a billion characters": (lambda: with_font(b"", widths=b"/W [0 1000000000 500]"), LARGE),
    "3 million names": (many_names, ANY),
    "60,000 fonts": (many_fonts, LARGE),
    "an array of 40 million arrays": (lambda: wide(b"[]", 40_000_000), LARGE),
    "an array of 40 million dictionaries": (lambda: wide(b"<<>>", 40_000_000), LARGE),
    "a string of 200 MB": (lambda: wide(b"x" * 100, 2_000_000, b"(", b") Tj"), LARGE),
    "arrays in arrays": (lambda: page(b"[" * 1_000_000 + TEXT), ANY),
    "dictionaries in dictionaries": (lambda: page(b"/A " + b"<< /A " * 500_000 + TEXT), ANY),
    "tables in a circle": (lambda: changed(ROOT, ROOT + b" /Prev 9"), ITS_TEXT),
    "a negative table": (lambda: changed(ROOT, ROOT + b" /Prev -5"), ITS_TEXT),
    "a page tree that has itself": (lambda: changed(TREE, b"/Kids [2 0 R 4 0 R] /Count 2"), NO_PAGE),
    "a page tree that has itself alone": (lambda: changed(TREE, b"/Kids [2 0 R] /Count 1"), "damaged ("),
    "a page tree that has itself after a page": (lambda: changed(TREE, b"/Kids [4 0 R 2 0 R] /Count 2"), "damaged ("),
    "a page tree whose page is missing": (lambda: changed(TREE, b"/Kids [9 0 R] /Count 1"), "damaged ("),
    "a page in its page tree": (lambda: changed(TREE, b"/Kids [%b] /Count 1" % INLINE), ITS_TEXT),
    "a count of billions": (lambda: changed(TREE, b"/Kids [4 0 R] /Count 4000000000"), ANY),
    "a negative count": (lambda: changed(TREE, b"/Kids [4 0 R] /Count -7"), "damaged (-7 pages)"),
    "a form that shows itself": (lambda: page(SHOW, FORM, objects=X), ITS_TEXT),
    "a negative length": (lambda: changed(LENGTH, b"/Length -9"), ITS_TEXT),
    "a length that is its stream": (lambda: changed(LENGTH, b"/Length 5 0 R"), ITS_TEXT),
    "a large JBIG2 image": (lambda: image(b"JBIG2Decode"), ITS_TEXT),
    "a large JPEG 2000 image": (lambda: image(b"JPXDecode"), ITS_TEXT),
}
