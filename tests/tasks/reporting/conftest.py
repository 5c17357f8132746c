"""A summary as a run would leave it."""

import copy
import math

import pytest

SUMMARY = {
    "schema": 1,
    "run_id": "20261129-imdb-7f3a",
    "flow_run_id": "6b1f7c0e-52b4-4e0d-9a55-0f6de1a3c2b9",
    "dataset": "imdb",
    "created_at": "2026-11-29T20:00:00Z",
    "mode": "production",
    "released": True,
    "model": "var/models/imdb/20261129-7f3a.safetensors",
    "refusal": None,
    "privacy_unit": "record",
    "relation": "add/remove one record, Poisson sampling",
    "claim": "record",
    "epsilon": 0.5,
    "delta": 1e-5,
    "noise_multiplier": 5.1,
    "sample_rate": 0.1,
    "steps": 120,
    "max_grad_norm": 1.0,
    "expected_batch_size": 400,
    "declared_records": 4000,
    "accounting": {"pld": 0.49981, "rdp": 0.5604, "filter_cost_epsilon": 0.7102, "filter": "renyi"},
    "ledger": {
        "imdb/2026-11": {
            "role": "train",
            "cap": 3.0,
            "spent": 1.1204,
            "reserved": 0.25,
            "remaining": 1.7713,
            "delta": 1e-5,
            "shows": "ε of the Rényi filter at δ = 10⁻⁵",
        },
        "imdb/2026-11/holdout": {
            "role": "evaluation",
            "cap": 2.0,
            "spent": 0.2907,
            "reserved": 0.0,
            "remaining": 1.7093,
            "delta": 1e-5,
            "shows": "ε of the Rényi filter at δ = 10⁻⁵",
        },
    },
    "charges": [
        {
            "row": row,
            "purpose": purpose,
            "blocks": [block],
            "epsilon_pld": pld,
            "epsilon_filter": cost,
            "state": "COMMITTED",
        }
        for row, purpose, block, pld, cost in (
            (12, "mixed model", "imdb/2026-11", 0.49981, 0.7102),
            (13, "private-only arm", "imdb/2026-11", 0.49981, 0.7102),
            (
                14,
                "evaluation (noised confusion matrices)",
                "imdb/2026-11/holdout",
                0.1996,
                0.2907,
            ),
        )
    ],
    "trajectory": {
        "steps": list(range(0, 121, 12)),
        "epsilon": [round(0.49981 * math.sqrt(i / 10), 5) for i in range(11)],
    },
    "cleaning": {
        "seen": 24000,
        "kept": 8000,
        "dropped": {
            "other_language": 3012,
            "out_of_domain": 11740,
            "pii_email": 431,
            "pii_phone_number": 208,
            "too_short": 544,
            "pii_credit_card": 65,
        },
        "by_level": {"text": 3556, "domain": 11740, "pii": 704},
        "by_source": {
            "rotten_tomatoes": {"seen": 9000, "kept": 7100},
            "vader_amazon": {"seen": 4200, "kept": 700},
            "vader_nyt": {"seen": 4800, "kept": 150},
            "eld_languages": {"seen": 6000, "kept": 50},
        },
    },
    "utility": {
        "classes": ["negative", "positive"],
        "macro_f1": 0.7531,
        "interval": [0.7312, 0.7748],
        "level": 0.95,
        "arms": {
            "mixed": {"macro_f1": 0.7531, "interval": [0.7312, 0.7748], "accuracy": 0.7533},
            "public_only": {"macro_f1": 0.7304, "interval": [0.7079, 0.7525], "accuracy": 0.7311},
            "dp_private_only": {
                "macro_f1": 0.7012,
                "interval": [0.6781, 0.7244],
                "accuracy": 0.7018,
            },
        },
        "public_only": 0.7304,
        "dp_private_only": 0.7012,
        "confusion": [[561, 189], [181, 570]],
        "confusion_sigma": 6.5,
        "holdout_declared": 1500,
        "split": "private hold-out, noised",
    },
    "audit": {
        "claimed": 0.5,
        "delta": 1e-5,
        "lower_bound": 0.0312,
        "ceiling": 3.61,
        "verdict": "pass",
        "confidence": 0.95,
        "bounds": [
            {
                "method": "Clopper–Pearson, repeated runs",
                "lower_bound": 0.0312,
                "ceiling": 3.61,
                "trials": 140,
            },
            {
                "method": "one run, 500 canaries",
                "lower_bound": 0.0,
                "ceiling": 5.11,
                "trials": 500,
            },
        ],
        "positive_control": {"lower_bound": 3.2, "ceiling": 3.61, "seen": True},
        "negative_control": {"lower_bound": 0.0, "ok": True},
        "member_audit": "in the restricted report",
    },
    "evidence": {
        "path": "runs/20261129-imdb-7f3a/evidence.jsonl",
        "head": "9f2c" * 16,
        "entries": 14,
        "public_key": "51ab" * 16,
        "verify": "dpmix evidence verify runs/20261129-imdb-7f3a/evidence.jsonl --head "
        + "9f2c" * 16,
    },
    "seconds": {"cleaning": 40.1, "embedding": 60.04, "index": 1.2},
    "use": "dpmix predict var/models/imdb/20261129-7f3a.safetensors reviews.txt",
    "versions": {"torch": "2.9.1", "opacus": "1.5.4", "dp-accounting": "0.6.0"},
    "provenance": {
        **dict.fromkeys(("cleaning", "audit", "seconds", "utility.level", "trajectory"), "public"),
        **dict.fromkeys(("ledger", "charges", "accounting", "evidence"), "ledger"),
        **dict.fromkeys(
            (
                "epsilon",
                "delta",
                "noise_multiplier",
                "sample_rate",
                "steps",
                "max_grad_norm",
                "expected_batch_size",
                "declared_records",
                "utility.holdout_declared",
                "utility.confusion_sigma",
            ),
            "declared",
        ),
        "utility": "dp(ε=0.1996, ledger row 14)",
        "utility.public_only": "dp(ε=0.1996, ledger row 14)",
    },
}


@pytest.fixture
def summary():
    return copy.deepcopy(SUMMARY)


@pytest.fixture
def refused(summary):
    """The same run, had its audit found more than is claimed."""
    summary |= {"released": False, "model": None, "use": None}
    summary["refusal"] = "the audit’s lower bound of 1.94 exceeds the claimed ε of 0.5"
    summary["audit"] |= {"lower_bound": 1.94, "verdict": "fail"}
    summary["audit"]["bounds"][0]["lower_bound"] = 1.94
    return summary


@pytest.fixture
def many_classes(summary):
    """A run over twenty classes, without a private-only arm."""
    names = [f"group.{chr(97 + i)}.a-rather-long-name" for i in range(20)]
    counts = [[58 + i if i == j else (i * 7 + j * 3) % 9 - 3 for j in range(20)] for i in range(20)]
    summary["utility"] |= {"classes": names, "confusion": counts, "dp_private_only": None}
    del summary["utility"]["arms"]["dp_private_only"]
    summary["dataset"] = "twenty-newsgroups-with-a-very-long-name-that-goes-on-for-" + "ever" * 12
    return summary


@pytest.fixture
def rehearsal(summary):
    """The same run in test mode."""
    return summary | {"mode": "test (NOT PRIVATE)", "released": False}
