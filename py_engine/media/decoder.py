"""Files of pictures and sound, prepared for a projector. The browser decodes them; media.js resizes and resamples.

`globalThis` has (app/worker.js)
  wispMedia()         media.js
  wispDecodeSound     (bytes, rate) => Promise<Float32Array>: mono, so many samples a second, decoded by a page
  wispLoadPackage     (name) => Promise: numpy, for spectra
"""

import json
import math
from dataclasses import asdict
from typing import Any

import js
from pyodide.ffi import JsException, to_js

from py_engine.errors import WispError
from py_engine.media.encoders import Audio, Vision
from py_engine.media.formats import MAX_SECONDS, Format, bad_media, format_of, upright
from py_engine.media.pieces import pieces
from py_engine.media.prepared import Medium, Picture, Sound, Spectrum
from py_engine.media.projector import Projector
from py_engine.media.recipe import recipe


async def prepare(projector: Projector, data: bytes) -> Medium:
    """Decode a file and prepare it. WispError bad_media, media_too_large, no_projector."""
    found = format_of(data)
    if found.is_picture:
        return await _picture(projector.need_vision(), data, found)
    return await _sound(projector.need_audio(), data, found)


async def _picture(vision: Vision, data: bytes, found: Format) -> Picture:
    media = await js.wispMedia()
    try:
        picture = await media.decode(to_js(upright(data, found)), found.mime)
    except JsException as error:
        raise _undecodable(found, error) from None
    plan = recipe(vision, (picture.width, picture.height))
    cuts = media.follow(picture, js.JSON.parse(json.dumps(asdict(plan))))
    hashing = media.hashes(to_js([part.pixels for part in cuts]))
    contents = [part.pixels.to_bytes() for part in cuts]  # meanwhile
    hashes = [found and found.to_bytes() for found in await hashing]
    return Picture(pieces(vision, plan, contents, hashes), plan.grid, plan.overview_first)


async def _sound(audio: Audio, data: bytes, found: Format) -> Sound:
    samples = await _samples(data, found, audio.max_seconds or MAX_SECONDS, audio.rate)
    if samples.length == 0:
        raise bad_media(f"the {found.name} file has no sound")
    await js.wispLoadPackage("numpy")
    import numpy as np

    from py_engine.media import mel

    mels = mel.log_mels(audio, np.frombuffer(samples.to_bytes(), np.float32))
    media = await js.wispMedia()
    hashes = await media.hashes(to_js([spectrum.data.cast("B") for spectrum in mels]))
    spectra = tuple(
        Spectrum(spectrum, mel.n_tokens(audio, spectrum.shape[1]), found and found.to_bytes())
        for spectrum, found in zip(mels, hashes, strict=True)
    )
    return Sound(spectra, samples.length / audio.rate)


async def _samples(data: bytes, found: Format, most: int, rate: int) -> Any:
    """The samples of a file as a Float32Array, mono at a rate. `most`: seconds."""
    media = await js.wispMedia()
    if found.name == "WAV":
        clip = media.readWav(to_js(data))
        if clip:
            _check_length(clip.samples.length / clip.channels / clip.rate, most)
            return media.toMono(clip, rate)
    try:
        samples = await js.wispDecodeSound(to_js(data), rate)
    except JsException as error:
        raise _undecodable(found, error) from None
    _check_length(samples.length / rate, most)
    return samples


def _check_length(seconds: float, most: int) -> None:
    if seconds > most:
        raise WispError(
            f"The sound lasts {math.ceil(seconds)} s; at most {most} s are allowed. Send a part of it.",
            "media_too_large",
        )


def _undecodable(found: Format, error: JsException) -> WispError:
    return bad_media(f"this browser cannot decode the {found.name} file ({str(error).splitlines()[0]:.200})")
