"""Production randomness: its distribution, its independence, and what it refuses."""

from __future__ import annotations

import copy
import gc
import hashlib
import math
import os
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from privacy import noise
from privacy.errors import PrivacyError
from privacy.noise import NoiseSource


class TestNormal:
    # The streams are seeded, so that these tests give one answer for good.
    def test_is_standard_normal(self):
        drawn = NoiseSource.for_test(1).normal(200_001)
        assert drawn.shape == (200_001,)
        assert drawn.dtype == torch.float32
        assert stats.kstest(drawn, "norm").pvalue > 1e-3

    def test_has_normal_tails(self):
        drawn = NoiseSource.for_test(2).normal(1_000_000).abs()
        for limit in (3.0, 4.0):
            expected = 2 * stats.norm.sf(limit)
            assert stats.binomtest(int((drawn > limit).sum()), len(drawn), expected).pvalue > 1e-3

    def test_has_the_moments_of_a_normal(self):
        drawn, count = NoiseSource.for_test(10).normal(4_000_000).double(), 4_000_000
        for power, expected, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
            off = float((drawn**power).mean()) - expected
            assert abs(off) < 4 * math.sqrt(variance / count)

    @pytest.mark.system
    def test_variance_and_tails_hold_over_a_hundred_million_draws(self):
        source, total, beyond = NoiseSource.for_test(11), 0.0, {4.5: 0, 5.5: 0, 6.0: 0}
        for _ in range(50):
            drawn = source.normal(2_000_000)
            total += float(drawn.double().square().sum())
            for limit in beyond:
                beyond[limit] += int((drawn.abs() > limit).sum())
        assert abs(total / 1e8 - 1) < 4 * math.sqrt(2 / 1e8)
        for limit, seen in beyond.items():
            assert stats.binomtest(seen, 10**8, 2 * stats.norm.sf(limit)).pvalue > 1e-4

    def test_radii_beyond_six_sigma_come_with_the_exact_frequency(self):
        # P(radius > r) = exp(−r²/2): so many of the 2⁶³ words lie beyond r, to a word or 1e-6.
        for limit in (6.0, 7.0, 8.0, 9.0):
            share = math.exp(-(limit**2) / 2)
            edge = int(share * 2**63)
            slack = max(1, edge // 10**6)
            words = torch.tensor([edge - slack, edge + slack])
            uniforms = torch.empty(2, dtype=torch.float64)
            noise._unit_interval(words, uniforms)
            radii = (-2 * uniforms.log()).sqrt()
            assert radii[0] > limit > radii[1]

    def test_reaches_beyond_what_24_bits_can_give(self):
        smallest = torch.empty(1, dtype=torch.float64)
        noise._unit_interval(torch.tensor([0]), smallest)
        assert smallest > 0
        assert math.sqrt(-2 * math.log(smallest)) > 9.3

    def test_uniforms_are_never_zero_nor_above_one(self):
        words = torch.tensor([0, 1, -1, 2**63 - 1, -(2**63)])
        uniforms = torch.empty(5, dtype=torch.float64)
        noise._unit_interval(words, uniforms)
        assert (uniforms > 0).all()
        assert (uniforms <= 1).all()

    def test_the_two_of_a_pair_are_independent(self):
        cosines, sines = NoiseSource.for_test(12).normal(100_000).numpy().reshape(2, -1)
        edges = stats.norm.ppf(np.linspace(0, 1, 9))
        table = np.histogram2d(cosines, sines, bins=[edges, edges])[0]
        assert stats.chi2_contingency(table).pvalue > 1e-3
        angle = np.arctan2(sines, cosines) / (2 * np.pi) + 0.5
        assert stats.kstest(angle, "uniform").pvalue > 1e-3

    def test_neighbouring_draws_are_uncorrelated(self):
        drawn = NoiseSource.for_test(3).normal(200_000).numpy()
        for lag in (1, 2, 3):
            assert abs(np.corrcoef(drawn[:-lag], drawn[lag:])[0, 1]) < 0.01

    def test_squares_of_a_pair_are_uncorrelated(self):
        pairs = NoiseSource.for_test(4).normal(100_000).numpy().reshape(2, -1) ** 2
        assert abs(np.corrcoef(pairs)[0, 1]) < 0.01

    @pytest.mark.parametrize("size", [1, 2, 7, 64])
    def test_a_chunk_boundary_loses_nothing(self, monkeypatch, size):
        monkeypatch.setattr(noise, "_CHUNK", size)
        drawn = NoiseSource.for_test(13).normal(20_001)
        assert len(drawn.unique()) > 19_900
        assert stats.kstest(drawn, "norm").pvalue > 1e-3

    @given(st.integers(0, 200))
    def test_gives_as_many_as_asked(self, count):
        assert NoiseSource().normal(count).shape == (count,)

    def test_never_repeats_itself(self):
        source = NoiseSource()
        assert not np.isin(source.normal(1000), source.normal(1000)).any()


class TestRandbelow:
    @pytest.mark.parametrize("bound", [2, 3, 10, 256, 257])
    def test_is_uniform(self, bound):
        source = NoiseSource.for_test(14)
        seen = np.bincount([source.randbelow(bound) for _ in range(20 * bound)], minlength=bound)
        assert len(seen) == bound
        assert stats.chisquare(seen).pvalue > 1e-3

    @given(st.integers(1, 2**200))
    def test_lies_below_its_bound(self, bound):
        assert 0 <= NoiseSource.for_test(15).randbelow(bound) < bound

    def test_fills_a_bound_of_many_words(self):
        source = NoiseSource.for_test(16)
        drawn = [source.randbelow(3**100) / 3**100 for _ in range(2000)]
        assert stats.kstest(drawn, "uniform").pvalue > 1e-3

    @pytest.mark.parametrize("bound", [0, -1, 2.0, True])
    def test_refuses_a_bound_that_leaves_nothing(self, bound):
        with pytest.raises(PrivacyError, match=r"bound must be >= 1.*got"):
            NoiseSource().randbelow(bound)

    def test_does_not_disturb_noise_or_sampling(self):
        one, two = NoiseSource.for_test(7), NoiseSource.for_test(7)
        one.randbelow(1000)
        assert torch.equal(one.normal(10), two.normal(10))
        np.testing.assert_array_equal(one.poisson_sample(99, 0.5), two.poisson_sample(99, 0.5))


class TestReplay:
    def _sealed(self):
        sealed = []
        source = NoiseSource(seal=lambda *pair: sealed.append(pair))
        return source, sealed

    def test_repeats_the_sealed_source_bit_for_bit(self):
        source, sealed = self._sealed()
        again = NoiseSource.replayed(*sealed[0])
        for count in (1, 10, 300_001):
            assert torch.equal(source.normal(count), again.normal(count))
            np.testing.assert_array_equal(
                source.poisson_sample(count, 0.3), again.poisson_sample(count, 0.3)
            )
            assert source.randbelow(10**30) == again.randbelow(10**30)
        assert again.commitment == source.commitment

    def test_is_not_private(self):
        source, sealed = self._sealed()
        assert source.is_private
        assert not NoiseSource.replayed(*sealed[0]).is_private

    def test_seals_once_and_anew_for_each_source(self):
        one, two = self._sealed()[1], self._sealed()[1]
        assert len(one) == len(two) == 1
        assert len({*one[0], *two[0]}) == 4

    def test_a_seal_that_fails_leaves_no_source(self):
        def fail(_seed, _nonce):
            raise OSError("no room")

        with pytest.raises(OSError, match="no room"):
            NoiseSource(seal=fail)

    @pytest.mark.parametrize("pair", [(b"", bytes(32)), (bytes(32), bytes(31))])
    def test_refuses_what_was_never_sealed(self, pair):
        with pytest.raises(PrivacyError, match=r"must be 32 bytes; got"):
            NoiseSource.replayed(*pair)

    def test_the_commitment_and_the_object_show_nothing_of_the_seed(self):
        source, sealed = self._sealed()
        seed, _nonce = sealed[0]
        shown = source.commitment + repr(source) + repr(vars(source))
        pieces = [seed[k : k + 8] for k in range(25)]
        assert not any(piece.hex() in shown or repr(piece)[2:-1] in shown for piece in pieces)
        assert not any(piece in bytes.fromhex(source.commitment) for piece in pieces)


class TestPoissonSample:
    @pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
    def test_takes_each_unit_with_the_declared_rate(self, rate):
        source = NoiseSource.for_test(5)
        counts = np.zeros(50, dtype=int)
        for _ in range(2000):
            counts[source.poisson_sample(50, rate)] += 1
        pvalues = [stats.binomtest(int(c), 2000, rate).pvalue for c in counts]
        assert min(pvalues) > 1e-3 / 50

    def test_sizes_are_binomial(self):
        source = NoiseSource.for_test(6)
        sizes = np.array([len(source.poisson_sample(40, 0.2)) for _ in range(3000)])
        assert sizes.var() == pytest.approx(40 * 0.2 * 0.8, rel=0.1)

    def test_takes_everybody_at_rate_one(self):
        assert list(NoiseSource().poisson_sample(5, 1.0)) == [0, 1, 2, 3, 4]

    def test_of_nobody_is_empty(self):
        assert NoiseSource().poisson_sample(0, 0.5).shape == (0,)

    def test_does_not_disturb_the_noise(self):
        one, two = NoiseSource.for_test(7), NoiseSource.for_test(7)
        one.poisson_sample(1000, 0.5)
        assert torch.equal(one.normal(10), two.normal(10))


class TestSecrecy:
    def test_two_sources_differ(self):
        one, two = NoiseSource(), NoiseSource()
        assert not np.isin(one.normal(1000), two.normal(1000)).any()
        assert one.commitment != two.commitment

    def test_noise_and_sampling_use_different_streams(self):
        source = NoiseSource.for_test(8)
        first = noise._words(source._noise, 100)
        second = noise._words(source._sampling, 100)
        assert not np.isin(first, second).any()

    def test_a_caller_cannot_seed_production(self):
        with pytest.raises(TypeError):
            NoiseSource(seed=1)

    def test_a_seeded_source_is_not_private(self):
        assert not NoiseSource.for_test(1).is_private
        assert NoiseSource().is_private

    def test_a_seeded_source_repeats(self):
        one, two = NoiseSource.for_test(9), NoiseSource.for_test(9)
        assert torch.equal(one.normal(7), two.normal(7))

    def test_the_commitment_is_blinded(self):
        # The same seed commits to something else each time: nobody can test a guess of it.
        assert NoiseSource.for_test(1).commitment != NoiseSource.for_test(1).commitment

    def test_the_seed_is_not_kept(self, monkeypatch):
        seed = bytes(range(32))
        monkeypatch.setattr(noise.secrets, "token_bytes", lambda _n: seed)
        source = NoiseSource()
        kept = vars(source).values()
        assert seed not in kept
        assert seed.hex() not in map(str, kept)
        assert hashlib.sha256(seed).hexdigest() != source.commitment

    @pytest.mark.parametrize("copying", [copy.copy, copy.deepcopy, pickle.dumps])
    def test_cannot_be_copied_or_stored(self, copying):
        with pytest.raises(PrivacyError, match="cannot be pickled or copied"):
            copying(NoiseSource())

    @pytest.mark.parametrize("draw", ["normal", "poisson_sample", "randbelow"])
    def test_is_refused_in_a_forked_child(self, draw):
        source = NoiseSource()
        arguments = (3, 0.5) if draw == "poisson_sample" else (3,)
        gc.collect()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                getattr(source, draw)(*arguments)
            except PrivacyError:
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert len(source.normal(3)) == 3
