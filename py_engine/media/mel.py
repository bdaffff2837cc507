"""Sound as log-mel spectra, as each type of encoder takes it. Differs from llama.cpp by its float32 rounding only."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from py_engine.media.encoders import Audio
from py_engine.media.kinds import D1OMNI_SECONDS, LFM2_SOUND, POOLED, RATE, RATES, WHISPER

FRAME_RATE = 100  # frames a second
HOP = RATE // FRAME_RATE  # samples between two frames
FLOOR = 2.0**-24  # the least energy before the logarithm; Whisper's own is 1e-10, which shows in quiet clips
GRANITE_FLOOR = 1e-10
MIMO_FLOOR = 1e-7
WHISPER_FRAMES = 3000  # of a chunk: 30 s
MINUTE = 60 * RATE  # samples
AT_ONCE = 1000  # frames transformed in one call: the view of all windows of 42 s would exceed wasm32's 2 GiB

Array = np.ndarray[Any, np.dtype[np.float64]]
Mel = np.ndarray[Any, np.dtype[np.float32]]  # (n_mel, n_frames)


def log_mels(audio: Audio, samples: np.ndarray[Any, Any]) -> list[Mel]:
    """The spectra of a clip at the encoder's rate: one of each audio chunk, in order."""
    return [np.ascontiguousarray(mel, np.float32) for mel in _MELS[audio.type](samples.astype(np.float64), audio.n_mel)]


def n_tokens(audio: Audio, n_frames: int) -> int:
    """The number of tokens that a spectrum of so many frames becomes."""
    if audio.type == "qwen3a":  # each hundred frames is convolved on its own, three times with stride 2
        return n_frames // 100 * 13
    if audio.type == "gemma4ua":
        return n_frames
    if audio.coded is not None:
        return -(-((n_frames + 1) // 2 // 2) // audio.stack)
    if audio.type == "gemma4a":
        return (n_frames + 3) // 4
    if audio.type in (*LFM2_SOUND, "parakeet", "dots3note_a"):
        return (n_frames + 7) // 8
    if audio.speech is not None:
        return -(-n_frames // audio.speech.window) * audio.speech.queries
    encoded = n_frames // 2
    if audio.type in POOLED:
        encoded //= 2
    return encoded // audio.stack + (2 if audio.type == "glma" else 0)  # its rows before and after


@cache
def _bank(n_mel: int, n_fft: int, htk: bool, rate: int) -> Array:
    """Triangles over the frequencies (n_mel, n_fft / 2 + 1): on Slaney's scale with equal areas, or on HTK's."""
    if htk:
        edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + rate / 2 / 700), n_mel + 2) / 2595) - 1)
    else:
        steps = np.log(6.4) / 27  # of the logarithmic part, above 1000 Hz
        mels = np.linspace(0, 15 + np.log(rate / 2 / 1000) / steps, n_mel + 2)
        edges = np.where(mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) * steps))
    frequencies = np.arange(n_fft // 2 + 1) * rate / n_fft
    rising = (frequencies - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - frequencies) / np.diff(edges)[1:, None]
    triangles: Array = np.maximum(0, np.minimum(rising, falling))
    return triangles if htk else triangles * (2 / (edges[2:] - edges[:-2]))[:, None]


@cache
def _triangles(n_mel: int, n_fft: int, htk: bool, rate: int) -> list[tuple[slice, Array]]:
    """The frequencies of each triangle, and their weights: one in sixty of the bank's, which are 0 elsewhere."""
    found = []
    for row in _bank(n_mel, n_fft, htk, rate):
        inside = np.flatnonzero(row)
        where = slice(int(inside[0]), int(inside[-1]) + 1) if len(inside) else slice(0, 0)
        found.append((where, row[where]))
    return found


def _hann(count: int, n_fft: int, at: int = 0, *, symmetric: bool = False) -> Array:
    """A Hann window of `count` samples from `at` on, among n_fft: periodic, or symmetric, ending as it begins."""
    window = np.zeros(n_fft)
    window[at : at + count] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(count) / (count - symmetric))
    return window


def _energies(
    samples: Array, n_mel: int, window: Array, *, htk: bool = False, power: int = 2, rate: int = RATE
) -> Array:
    """Mel energies (n_mel, n_frames) under a window: magnitudes to the `power` 1 or 2. `htk`: by HTK's filters."""
    n_fft, hop = len(window), rate // FRAME_RATE
    n_frames = (len(samples) - n_fft) // hop + 1
    found = np.empty((n_mel, n_frames))
    for first in range(0, n_frames, AT_ONCE):
        part = samples[first * hop : (min(first + AT_ONCE, n_frames) - 1) * hop + n_fft]
        frames = np.lib.stride_tricks.sliding_window_view(part, n_fft)[::hop]
        magnitudes = np.abs(np.fft.rfft(frames * window, axis=1))
        energies = np.ascontiguousarray((magnitudes**power).T)
        for mel, (where, weights) in zip(found, _triangles(n_mel, n_fft, htk, rate), strict=True):
            mel[first : first + AT_ONCE] = weights @ energies[where]
    return found


def _whisper_scale(energies: Array, floor: float = FLOOR) -> Array:
    """Whisper's logarithm: eight decades below the clip's maximum, between -1 and 1 or so."""
    log = np.log10(np.maximum(energies, floor))
    scaled: Array = (np.maximum(log, log.max() - 8) + 4) / 4
    return scaled


def _reflected(samples: Array, count: int) -> Array:
    """The `count` samples after the first, in reverse: what comes before a clip. Zeros where the clip is shorter."""
    found = np.zeros(count)
    ahead = samples[1 : count + 1]
    found[count - len(ahead) :] = ahead[::-1]
    return found


def _whisper(samples: Array, n_mel: int) -> list[Array]:
    """Whisper's encoder: 30 s of silence at the end, then chunks of 30 s. An incomplete last one is dropped."""
    if len(samples) < 201:
        samples = np.pad(samples, (0, 201 - len(samples)))
    n_frames = (len(samples) + WHISPER_FRAMES * HOP) // HOP + 1
    heard = np.concatenate([_reflected(samples, 200), samples, np.zeros(400 + HOP)])
    energies = _energies(heard, n_mel, _hann(400, 400))
    scaled = _whisper_scale(np.pad(energies, ((0, 0), (0, 1))))  # and one frame of the silence
    mel = np.pad(scaled, ((0, 0), (0, n_frames - scaled.shape[1])), "edge")
    return [mel[:, at : at + WHISPER_FRAMES] for at in range(0, n_frames - WHISPER_FRAMES + 1, WHISPER_FRAMES)]


def _qwen3a(samples: Array, n_mel: int) -> list[Array]:
    """Reflected at both ends; windows of 800 frames, padded with 0 to whole hundreds."""
    padded = np.concatenate([_reflected(samples, 200), samples, _reflected(samples[::-1], 200)[::-1]])
    mel = _whisper_scale(_energies(padded, n_mel, _hann(400, 400)))[:, : len(samples) // HOP + 1]
    windows = [mel[:, at : at + 800] for at in range(0, mel.shape[1], 800)]
    return [np.pad(window, ((0, 0), (0, -window.shape[1] % 100))) for window in windows]


def _dots3note_a(samples: Array, n_mel: int) -> list[Array]:
    """Pieces of a minute, each on Whisper's scale by itself; reflected at both ends.

    Silence follows a last piece that is shorter than a minute. One that is shorter than a frame is dropped.
    """
    samples, found = np.pad(samples, (0, max(0, HOP - len(samples)))), []
    for first in range(0, len(samples), MINUTE):
        piece = samples[first : first + MINUTE]
        n_frames = len(piece) // HOP
        if n_frames:
            after = _reflected(piece[::-1], 200)[::-1] if len(piece) == MINUTE else np.zeros(200)
            heard = np.concatenate([_reflected(piece, 200), piece, after])
            found.append(_whisper_scale(_energies(heard, n_mel, _hann(400, 400))[:, :n_frames]))
    return found


def _mimo_audio(samples: Array, n_mel: int) -> list[Array]:
    """At 24 kHz, reflected at both ends: natural logarithms of magnitudes. Silence fills up three frames."""
    rate = RATES["mimo_audio"]
    window = _hann(rate // 25, rate // 25)
    samples, around = np.pad(samples, (0, max(0, 2 * rate // FRAME_RATE - len(samples)))), len(window) // 2
    heard = np.concatenate([_reflected(samples, around), samples, _reflected(samples[::-1], around)[::-1]])
    energies = _energies(heard, n_mel, window, htk=True, power=1, rate=rate)
    return [np.log(np.maximum(energies, MIMO_FLOOR))]


def _gemma4a(samples: Array, n_mel: int) -> list[Array]:
    """Pieces of 30 s with 160 zeros in front of each; the natural logarithm of magnitudes."""
    found = []
    for first in range(0, len(samples), 30 * RATE):
        piece = samples[first : first + 30 * RATE]
        n_frames = max((len(piece) + HOP - 321) // HOP + 1, 1)
        padded = np.zeros(max((n_frames - 1) * HOP + 512, len(piece) + HOP))
        padded[HOP : HOP + len(piece)] = piece
        found.append(
            np.log(np.maximum(_energies(padded, n_mel, _hann(320, 512), htk=True, power=1), 0.001))[:, :n_frames]
        )
    return found


def _gemma4ua(samples: Array, n_mel: int) -> list[Array]:
    """No spectrum: so many samples for each token, the last ones filled up with zeros."""
    return [np.pad(samples, (0, -len(samples) % n_mel)).reshape(-1, n_mel).T]


def _granite_speech(samples: Array, n_mel: int) -> list[Array]:
    """Whisper's scale with HTK's filters; two frames beside each other are one, an odd last one is dropped.

    The clip is reflected at both ends; where it is too short for that, its other end goes on.
    """
    samples = np.pad(samples, (0, max(0, HOP - len(samples))))
    last, around = len(samples) - 1, np.arange(256)
    before, after = samples[np.minimum(256 - around, last)], samples[np.maximum(last - 1 - around, 0)]
    energies = _energies(np.concatenate([before, samples, after]), n_mel // 2, _hann(400, 512, at=56), htk=True)
    mel = _whisper_scale(energies, GRANITE_FLOOR)
    pairs = mel.shape[1] // 2
    return [mel[:, : 2 * pairs].reshape(n_mel // 2, pairs, 2).transpose(2, 0, 1).reshape(n_mel, pairs)]


def _lfm2a(samples: Array, n_mel: int) -> list[Array]:
    """NeMo's features, with zeros after the clip's end."""
    (log,) = _nemo(samples, n_mel)
    log[:, max(len(samples), 2 * HOP) // HOP :] = 0
    return [log]


def _d1omni_a(samples: Array, n_mel: int) -> list[Array]:
    """NeMo's features of the first half minute. Silence fills up half a second."""
    samples = samples[: D1OMNI_SECONDS * RATE]
    samples = np.pad(samples, (0, max(0, RATE // 2 - len(samples))))
    (log,) = _nemo(samples, n_mel)
    return [log[:, : len(samples) // HOP]]


def _nemo(samples: Array, n_mel: int) -> list[Array]:
    """High frequencies raised; each mel's logarithm with mean 0 and deviation 1 over the clip's whole frames.

    The features of NVIDIA's NeMo. llama.cpp aborts for clips shorter than two frames; here silence follows them.
    """
    samples = np.pad(samples, (0, max(0, 2 * HOP - len(samples))))
    raised = np.concatenate([samples[:1], samples[1:] - np.float64(np.float32(0.97)) * samples[:-1]])
    window = _hann(400, 512, at=56, symmetric=True)
    log = np.log(_energies(np.pad(raised, 256), n_mel, window) + FLOOR)
    clip = log[:, : len(samples) // HOP]
    return [(log - clip.mean(1, keepdims=True)) / (clip.std(1, ddof=1, keepdims=True) + 1e-5)]


_MELS: dict[str, Callable[[Array, int], list[Array]]] = {
    **dict.fromkeys(WHISPER, _whisper),
    "qwen3a": _qwen3a,
    "dots3note_a": _dots3note_a,
    "mimo_audio": _mimo_audio,
    "gemma4a": _gemma4a,
    "gemma4ua": _gemma4ua,
    "lfm2a": _lfm2a,
    "d1omni_a": _d1omni_a,
    "parakeet": _nemo,
    "granite_speech": _granite_speech,
}
