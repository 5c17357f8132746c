from __future__ import annotations

import subprocess
import sys

import pytest

from tasks.cleaning.base import Document, Drop, OptionError, apply, build
from tasks.cleaning.language import MIXED, UNDETERMINED, identify

SAMPLES = {
    "en": "Nobody in the village believed that the old projector would ever run again.",
    "de": "Der Regisseur lässt sich viel Zeit, aber das Ende überrascht dann doch alle.",
    "fr": "Le réalisateur prend son temps, mais la fin surprend tout de même le spectateur.",
    "es": "El director se toma su tiempo, pero el final sorprende a todos los espectadores.",
    "ru": "Режиссёр не торопится, но финал всё-таки удивляет зрителей.",
    "uk": "Режисер не поспішає, але фінал все одно дивує глядачів своєю щирістю.",
    "zh": "导演不慌不忙，但结局还是让所有观众感到意外。",
    "ja": "監督は急がないが、結末は観客を驚かせる。",
    "ko": "감독은 서두르지 않지만 결말은 관객을 놀라게 한다.",
    "el": "Ο σκηνοθέτης δεν βιάζεται, αλλά το τέλος εκπλήσσει.",
    "ar": "المخرج لا يستعجل ولكن النهاية تفاجئ جميع المشاهدين في القاعة.",
    "hi": "निर्देशक जल्दी में नहीं है, लेकिन अंत सभी दर्शकों को चौंका देता है।",
    "th": "ผู้กำกับไม่รีบร้อน แต่ตอนจบทำให้ผู้ชมประหลาดใจ",
}


@pytest.mark.parametrize("language", SAMPLES)
def test_a_full_sentence_is_recognised(language):
    assert identify(SAMPLES[language]) == language


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("这片很好看", "zh"),
        ("用 PyTorch 和 Transformer 训练 LoRA 模型时，显存占用很高。", "zh"),
        ("NOBODY IN THE HALL LIKED IT AND I AM NOT SURPRISED BY THAT.", "en"),
        (SAMPLES["en"] + " https://example.org/película/año", "en"),
    ],
    ids=["short-chinese", "chinese-with-product-names", "upper-case", "foreign-url"],
)
def test_the_bulk_of_the_evidence_decides(text, language):
    assert identify(text) == language


@pytest.mark.parametrize("text", ["", "!!! ...", "😀😀", "404 error", "12345", "ok", "\u0301", "ꙮ"])
def test_too_little_evidence_is_undetermined(text):
    assert identify(text) == UNDETERMINED


def test_a_short_text_in_doubt_is_taken_for_what_the_profile_asks_for():
    assert identify("a puzzling experience .", likely=("en",)) == "en"


def test_workers_agree_whatever_their_hash_seed():
    texts = [*SAMPLES.values(), "hard disk players", "poignant and funny", "hope is lost here"]
    program = (
        "import sys; from tasks.cleaning.language import identify;"
        "sys.stdout.write(','.join(map(identify, sys.argv[1:])))"
    )
    answers = {
        subprocess.run(
            [sys.executable, "-c", program, *texts],
            capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert answers == {",".join(map(identify, texts))}


class TestTheStep:
    def clean(self, text, languages=("en",)):
        return apply(
            build(["language"], {"language": {"languages": list(languages)}}), Document.of(text)
        )

    def test_wanted_languages_are_labelled(self):
        assert self.clean(SAMPLES["de"], ["de", "en"]).language == "de"

    def test_other_languages_are_dropped(self):
        assert self.clean(SAMPLES["de"]).reason == "other_language"

    def test_nothing_to_go_by_is_its_own_reason(self):
        assert self.clean("404 error").reason == "language_undetermined"

    def test_two_languages_are_flagged(self):
        kept = self.clean(SAMPLES["en"] + " " + SAMPLES["de"], ["en", "de"])
        assert kept.flags == (MIXED,)

    def test_one_foreign_title_is_no_second_language(self):
        kept = self.clean(
            "I saw Der Himmel über Berlin twice and it was better than the first time."
        )
        assert kept.flags == ()

    def test_an_empty_list_keeps_every_language(self):
        assert not isinstance(self.clean(SAMPLES["th"], []), Drop)

    def test_a_string_instead_of_a_list_is_refused(self):
        with pytest.raises(OptionError, match="must be a list"):
            build(["language"], {"language": {"languages": "en"}})


def test_the_lead_of_a_wanted_language_does_not_outweigh_a_sentence():
    assert identify(SAMPLES["de"], likely=("en",)) == "de"
