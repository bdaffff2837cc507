"""Parts of a model file's address. Python refuses some addresses that browsers accept, and the other way round."""

from urllib.parse import SplitResult, unquote, urlsplit

from py_engine.errors import WispError


def parts_of(url: str) -> SplitResult:
    """The parts of an address. WispError invalid_value if it is none."""
    try:
        return urlsplit(url)
    except ValueError as error:
        raise WispError(f"{url!r} is not an address: {error}.", "invalid_value", param="model") from error


def name_of(url: str) -> str:
    """The name of the file that an address leads to; the address itself if it has no name."""
    return unquote(parts_of(url).path).rsplit("/", 1)[-1] or url


def shown_name(url: str) -> str:
    """The name of a stored file, for messages: stored addresses may be damaged."""
    try:
        return name_of(url)
    except WispError:
        return url


def host_of(url: str) -> str:
    """The server's name and port."""
    return parts_of(url).netloc
