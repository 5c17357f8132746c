"""Production randomness: its distribution, its independence, and what it refuses."""

from __future__ import annotations

import copy
import gc
import hashlib
import os
import pickle

import numpy as np
import pytest
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
        assert drawn.dtype == np.float64
        assert stats.kstest(drawn, "norm").pvalue > 1e-3

    def test_has_normal_tails(self):
        drawn = np.abs(NoiseSource.for_test(2).normal(1_000_000))
        for limit in (3.0, 4.0):
            expected = 2 * stats.norm.sf(limit)
            assert stats.binomtest(int((drawn > limit).sum()), len(drawn), expected).pvalue > 1e-3

    def test_reaches_beyond_what_24_bits_can_give(self):
        smallest = noise._unit_interval(np.array([0], dtype=np.uint64))[0]
        assert smallest > 0
        assert np.sqrt(-2 * np.log(smallest)) > 9

    def test_uniforms_are_never_zero_nor_above_one(self):
        words = np.array([0, 1, 2**63, 2**64 - 1], dtype=np.uint64)
        uniforms = noise._unit_interval(words)
        assert (uniforms > 0).all()
        assert (uniforms <= 1).all()

    def test_neighbouring_draws_are_uncorrelated(self):
        drawn = NoiseSource.for_test(3).normal(200_000)
        for lag in (1, 2, 3):
            assert abs(np.corrcoef(drawn[:-lag], drawn[lag:])[0, 1]) < 0.01

    def test_squares_of_a_pair_are_uncorrelated(self):
        pairs = NoiseSource.for_test(4).normal(200_000).reshape(-1, 2) ** 2
        assert abs(np.corrcoef(pairs.T)[0, 1]) < 0.01

    @given(st.integers(0, 200))
    def test_gives_as_many_as_asked(self, count):
        assert NoiseSource().normal(count).shape == (count,)

    def test_never_repeats_itself(self):
        source = NoiseSource()
        assert not np.isin(source.normal(1000), source.normal(1000)).any()


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
        np.testing.assert_array_equal(one.normal(10), two.normal(10))


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
        np.testing.assert_array_equal(one.normal(7), two.normal(7))

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

    @pytest.mark.parametrize("draw", ["normal", "poisson_sample"])
    def test_is_refused_in_a_forked_child(self, draw):
        source = NoiseSource()
        arguments = (3,) if draw == "normal" else (3, 0.5)
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
