from __future__ import annotations

import json
from pathlib import Path

import pytest

FILMS = ("The film", "This movie", "The actor", "Her performance", "The director", "The screenplay")
GOODS = ("The battery", "This phone", "The senate", "The router", "The tax bill", "The player")
ENDS = (
    "moved everyone who saw it", "was far too long for its own good", "kept its promise to the end",
    "disappointed from the first minute", "is better than the last one was", "will not be forgotten",
)  # fmt: skip


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Domain examples: films inside, goods and politics outside."""
    path = tmp_path_factory.mktemp("domain") / "examples.jsonl"
    rows = [
        {"text": f"{subject} {end}.", "in_domain": subjects is FILMS}
        for subjects in (FILMS, GOODS)
        for subject in subjects
        for end in ENDS
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
