"""Randomness for production: a fresh, operating-system seeded keystream for every attempt.

What is guaranteed. A `NoiseSource` draws 32 bytes from the operating system, derives one AES-256 key
for each purpose (noise, sampling), and turns the counter-mode keystream into uniforms and normals.
Radii of Box–Muller use 63-bit uniforms that are never 0, so |z| reaches 9.3 (a 24-bit uniform stops
at 5.77, which leaves the support for one coordinate and costs δ). Two sources never share a key; a
source refuses to be used in a forked child, since parent and child would then repeat each other.

When it stops holding. `NoiseSource.for_test` takes a seed: what it makes is reproducible, hence NOT
PRIVATE, and `is_private` says so; releases check it. Noise is floating point: the usual caveat about
the low-order bits of floating-point Gaussians (Mironov 2012) is documented, not solved, here; counts
use `privacy.mechanisms.discrete_gaussian`.

The seed never leaves this object. `commitment` is SHA-256(domain ‖ seed ‖ nonce), fit for the
evidence: it binds the seed without revealing it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from privacy.errors import PrivacyError

_DOMAIN = b"dpmix noise commitment v1"
_CHUNK = 1 << 16


class NoiseSource:
    """One attempt's randomness. Make one for each attempt and drop it afterwards.

    Attributes:
        commitment: Hex SHA-256 over domain, seed and nonce; reveals nothing of the seed.
        is_private: False if the seed was supplied by a test.
    """

    def __init__(self) -> None:
        self._setup(secrets.token_bytes(32), private=True)

    @classmethod
    def for_test(cls, seed: int) -> NoiseSource:
        """A reproducible source. Whatever it touches is NOT PRIVATE and cannot be released."""
        source = cls.__new__(cls)
        source._setup(  # noqa: SLF001 - its own class
            hashlib.sha256(b"dpmix test seed %d" % seed).digest(), private=False
        )
        return source

    def _setup(self, seed: bytes, *, private: bool) -> None:
        nonce = secrets.token_bytes(32)
        self.commitment = hashlib.sha256(_DOMAIN + seed + nonce).hexdigest()
        self.is_private = private
        self._process = os.getpid()
        self._noise = _keystream(seed, b"noise")
        self._sampling = _keystream(seed, b"sampling")

    def normal(self, count: int) -> NDArray[np.float64]:
        """`count` independent standard normals, float64, shape (count,)."""
        self._check_process()
        pairs = (count + 1) // 2
        out = np.empty(2 * pairs, dtype=np.float64)
        for start in range(0, pairs, _CHUNK):
            stop = min(start + _CHUNK, pairs)
            words = _words(self._noise, 2 * (stop - start))
            half = stop - start
            radius = np.sqrt(-2.0 * np.log(_unit_interval(words[:half])))
            # 53 bits are plenty for the angle, which does not decide how far the tail reaches.
            angle = (2.0 * np.pi * 2.0**-53) * (words[half:] >> np.uint64(11)).astype(np.float64)
            out[2 * start : 2 * stop : 2] = radius * np.cos(angle)
            out[2 * start + 1 : 2 * stop : 2] = radius * np.sin(angle)
        return out[:count]

    def poisson_sample(self, population: int, sample_rate: float) -> NDArray[np.int64]:
        """Indices of an independent Bernoulli(q) draw over `population` units; may be empty.

        Sensitive: the indices and their number must not leave the training process.
        """
        self._check_process()
        if population == 0:
            return np.empty(0, dtype=np.int64)
        draws = (_words(self._sampling, population) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return np.flatnonzero(draws < sample_rate).astype(np.int64)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise PrivacyError(
                "a NoiseSource was carried into a forked process, where it would repeat its "
                "parent's noise. Make a new one in the child."
            )

    def __getstate__(self) -> object:
        """Refuse to be copied or stored: a stored generator state voids the guarantee."""
        raise PrivacyError("a NoiseSource cannot be pickled or copied; make a new one.")


def _keystream(seed: bytes, purpose: bytes) -> CipherContext:
    key = hmac.digest(seed, b"dpmix keystream v1 " + purpose, "sha256")
    # The key is used for this stream alone, so a constant initial counter is right.
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


def _words(stream: CipherContext, count: int) -> NDArray[np.uint64]:
    return np.frombuffer(stream.update(bytes(8 * count)), dtype=np.uint64)


def _unit_interval(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """63-bit uniforms in (0, 1]: (k + ½)·2⁻⁶³, smallest value 2⁻⁶⁴."""
    return ((words >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-63
