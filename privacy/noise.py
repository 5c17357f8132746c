"""Randomness for production: a fresh, operating-system seeded keystream for every attempt.

What is guaranteed. A `NoiseSource` draws 32 bytes from the operating system, derives one AES-256 key
for each purpose (noise, sampling, whole numbers), and turns the counter-mode keystreams into normals,
Poisson samples and uniform integers. Both uniforms of Box–Muller start from 64-bit words. The radius,
which alone decides how far the tail reaches, is computed in float64 from a 63-bit uniform that is
never 0, so |z| reaches 9.3 (a 24-bit uniform stops at 5.77, which leaves the support for one
coordinate and costs δ). The angle and the result are rounded to float32, a relative 2⁻²⁴: the sums
that noise is added to are float32 as well. Two sources never share a key; a source refuses to be used
in a forked child, since parent and child would then repeat each other.

When it stops holding. `NoiseSource.for_test` takes a seed and `NoiseSource.replayed` a sealed one:
what they make is reproducible, hence NOT PRIVATE, and `is_private` says so; releases check it. A
source made with `seal` hands its seed out once: its noise is not private against whoever can open
that. Normal noise is floating point: the usual caveat about the low-order bits of floating-point
Gaussians (Mironov 2012) is documented, not solved, here; counts use the exact integer samplers of
`privacy.mechanisms`.

The seed is not kept by this object. `commitment` is SHA-256(domain ‖ seed ‖ nonce), fit for the
evidence: it binds the seed without revealing it.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import os
import secrets
from collections.abc import Callable

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from privacy.errors import PrivacyError, check_whole

_DOMAIN = b"dpmix noise commitment v1"
_SEED_BYTES = 32
# Pairs made at a time: their keystream and the work arrays fit the second-level cache.
_CHUNK = 1 << 16

Seal = Callable[[bytes, bytes], None]
"""Takes the seed and the commitment's nonce, once, before anything is drawn."""


class NoiseSource:
    """One attempt's randomness. Make one for each attempt and drop it afterwards.

    Attributes:
        commitment: Hex SHA-256 over domain, seed and nonce; reveals nothing of the seed.
        is_private: False if the seed was supplied by a test or by a replay.
    """

    def __init__(self, *, seal: Seal | None = None) -> None:
        """Seed a source from the operating system.

        Args:
            seal: Where an auditor's replay is asked for: puts the seed and the nonce away under the
                auditor's key. What it raises ends the construction; nothing has been drawn then.
        """
        seed, nonce = secrets.token_bytes(_SEED_BYTES), secrets.token_bytes(_SEED_BYTES)
        if seal is not None:
            seal(seed, nonce)
        self._setup(seed, nonce, private=True)

    @classmethod
    def for_test(cls, seed: int) -> NoiseSource:
        """A reproducible source. Whatever it touches is NOT PRIVATE and cannot be released."""
        source = cls.__new__(cls)
        digest = hashlib.sha256(b"dpmix test seed %d" % seed).digest()
        source._setup(digest, secrets.token_bytes(_SEED_BYTES), private=False)  # noqa: SLF001
        return source

    @classmethod
    def replayed(cls, seed: bytes, nonce: bytes) -> NoiseSource:
        """The source that was sealed with `seed` and `nonce`: same streams, same commitment.

        For the auditor who opened the seal. NOT PRIVATE, and cannot be released.

        Raises:
            PrivacyError: The seed or the nonce is not 32 bytes.
        """
        for name, value in (("seed", seed), ("nonce", nonce)):
            if len(value) != _SEED_BYTES:
                raise PrivacyError(
                    f"{name} must be {_SEED_BYTES} bytes; got {len(value)}. Open the seal again."
                )
        source = cls.__new__(cls)
        source._setup(seed, nonce, private=False)  # noqa: SLF001 - its own class
        return source

    def _setup(self, seed: bytes, nonce: bytes, *, private: bool) -> None:
        self.commitment = hashlib.sha256(_DOMAIN + seed + nonce).hexdigest()
        self.is_private = private
        self._process = os.getpid()
        self._noise = _keystream(seed, b"noise")
        self._sampling = _keystream(seed, b"sampling")
        self._whole = _keystream(seed, b"whole numbers")

    def normal(self, count: int) -> torch.Tensor:
        """`count` independent standard normals, float32 on the CPU, shape (count,)."""
        self._check_process()
        check_whole("count", count, at_least=0, remedy="Ask for as many draws as coordinates.")
        out = torch.empty(count, dtype=torch.float32)
        size = min(_CHUNK, (count + 1) // 2)
        if size == 0:
            return out
        zeros = memoryview(bytes(16 * size))
        buffer = bytearray(16 * size + 15)  # the cipher asks for a block less one to spare
        words = torch.frombuffer(buffer, dtype=torch.int64, count=2 * size)
        work = torch.empty(size, dtype=torch.float64), *torch.empty(3, size, dtype=torch.float32)
        for start in range(0, count, 2 * size):
            chunk = out[start : start + 2 * size]
            pairs = (len(chunk) + 1) // 2
            rest = len(chunk) - pairs
            exact, radius, angle, turned = (array[:pairs] for array in work)
            self._noise.update_into(zeros[: 16 * pairs], buffer)
            _unit_interval(words[:pairs], exact)
            # NumPy's logarithm, sine and cosine take half the time of torch's.
            np.log(exact.numpy(), out=exact.numpy())
            radius.copy_(exact.mul_(-2.0)).sqrt_()
            # Signed words over [−2⁶³, 2⁶³): angles over a full turn, evenly.
            angle.copy_(words[pairs : 2 * pairs]).mul_(math.pi * 2.0**-63)
            np.cos(angle.numpy(), out=turned.numpy())
            torch.mul(radius, turned, out=chunk[:pairs])
            np.sin(angle.numpy(), out=turned.numpy())
            torch.mul(radius[:rest], turned[:rest], out=chunk[pairs:])
        return out

    def randbelow(self, bound: int) -> int:
        """A uniform whole number in [0, bound), exactly, from a keystream of its own.

        By rejection from the next power of two: fewer than two tries are needed on average.

        Args:
            bound: Any whole number ≥ 1; it may have more than 64 bits.
        """
        self._check_process()
        check_whole("bound", bound, at_least=1, remedy="Nothing lies below 0.")
        bits = (bound - 1).bit_length()
        size = (bits + 7) // 8
        while True:
            drawn = int.from_bytes(self._whole.update(bytes(size)), "big") >> (8 * size - bits)
            if drawn < bound:
                return drawn

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


def _unit_interval(words: torch.Tensor, out: torch.Tensor) -> None:
    """63-bit uniforms in (0, 1] into `out`: (k + ½)·2⁻⁶³, smallest value 2⁻⁶⁴. Spoils `words`."""
    words.bitwise_and_(2**63 - 1)
    out.copy_(words).add_(0.5).mul_(2.0**-63)
