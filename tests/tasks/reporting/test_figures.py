"""How numbers are written and placed."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.reporting import figures

PAPER, INK = (255, 255, 255), (27, 37, 48)


def luminance(colour):
    parts = [c / 255 for c in colour]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


class TestNumbers:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (figures.upper(0.1 + 0.2), "0.3"),
            (figures.upper(0.49981), "0.4999"),
            (figures.lower(1.77139), "1.7713"),
            (figures.count(24000), "24,000"),
            (figures.count(-3), "−3"),
            (figures.count(-0.2), "0"),
            (figures.power(1e-5), "10⁻⁵"),
            (figures.power(2.5e-7), "2.5\u00a0×\u00a010⁻⁷"),
            (figures.real(3e-9), "3\u00a0×\u00a010⁻⁹"),
            (figures.real(1e30), "10³⁰"),
            (figures.percent(0.3333), "33.3\u00a0%"),
            (figures.odds(0.5), "1.65 : 1"),
        ],
    )
    def test_are_written_for_people(self, text, expected):
        assert text == expected

    @given(st.floats(0, 1e6))
    def test_what_is_spent_is_never_understated_nor_what_is_left_overstated(self, value):
        assert float(figures.upper(value).replace(",", "")) >= value - 1e-11 * value
        assert float(figures.lower(value).replace(",", "")) <= value + 1e-11 * value


class TestChance:
    @given(st.floats(0, 1e6), st.floats(0, 1))
    def test_is_between_a_coin_and_certainty(self, epsilon, delta):
        assert 0.5 <= figures.chance(epsilon, delta) <= 1.0

    @given(st.floats(0, 20), st.floats(0, 0.1))
    def test_is_what_the_best_test_allows(self, epsilon, delta):
        # The corner of the trade-off region where both errors are equal is the best for 50:50.
        error = (1 - delta) / (1 + pow(2.718281828459045, epsilon))
        assert figures.chance(epsilon, delta) == pytest.approx(1 - error)

    def test_of_no_loss_is_a_coin(self):
        assert figures.chance(0.0) == 0.5


class TestAxis:
    @given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8))
    def test_holds_its_values_between_round_marks(self, values):
        axis = figures.Axis.over(values)
        slack = 1e-6 * max(1.0, *map(abs, values))
        assert axis.low <= min(values) + slack
        assert axis.high >= max(values) - slack
        assert 2 <= len(axis.marks) <= 9
        assert all(0 <= axis.share(value) <= 100 for value in values)


class TestPictures:
    @given(st.floats(-2, 2))
    def test_every_cell_of_a_matrix_can_be_read(self, share):
        style = figures.shade(share)
        alpha = float(re.search(r"([\d.]+)\)", style)[1])
        tint = [round(255 + alpha * (c - 255)) for c in (31, 86, 115)]
        assert contrast(tint, PAPER if "#fff" in style else INK) >= 4.5

    def test_dots_never_show_fewer_than_the_bound(self):
        assert figures.hundred(0.6225).count('class="gain"') == 13
        assert figures.hundred(1.0).count('class="rest"') == 0

    def test_labels_are_escaped(self):
        assert "<b>" not in figures.stacked([("spent", 1.0)], 2.0, '"><b>')

    def test_bars_stay_inside(self):
        drawn = figures.stacked([("spent", 3.0), ("held", 2.0)], 4.0, "x")
        ends = [float(w) for w in re.findall(r'width="([\d.]+)%" height="12"', drawn)]
        assert ends == [100, 75, 25]
