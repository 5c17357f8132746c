"""Using a released model: `Predictor(folder)(["a text"])`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from privacy.classifier import build_classifier
from storage.models import ModelError, load_model
from tasks.cleaning.stages import clean_private
from tasks.embedding import EncoderOptions, encoder_of


@dataclass(frozen=True)
class Prediction:
    """One text's outcome.

    Attributes:
        label: The most probable class; empty if nothing of the text was left after cleaning.
        confidence: Its probability, in [0, 1], rounded to two digits.
    """

    label: str
    confidence: float


class Predictor:
    """A released model, ready to use.

    Args:
        folder: The model's folder, as the report names it.

    Raises:
        ModelError: It is no released model, or the encoder here is not the one it was trained on.
    """

    def __init__(self, folder: Path | str) -> None:
        stored = load_model(Path(folder))
        card = stored.card
        self.classes: list[str] = card["classes"]
        self._steps: list[str] = card["cleaning_steps"]
        options = {k: v for k, v in card["encoder"].items() if k != "digest"}
        self._encoder = encoder_of(EncoderOptions(**options))
        if self._encoder.digest != card["encoder"]["digest"]:
            raise ModelError(
                f"the model was trained on encoder {card['encoder']['digest'][:16]}, this one is "
                f"{self._encoder.digest[:16]}. Install the encoder it was trained on."
            )
        self._classifier = build_classifier(
            card["head"],
            feature_dimension=card["feature_dimension"],
            classes=len(self.classes),
            feature_scale=card["feature_scale"],
            preconditioned=card["preconditioned"],
        )
        self._classifier.load_state_dict(dict(stored.state))
        self._classifier.eval()

    def __call__(self, texts: Sequence[str]) -> list[Prediction]:
        """Predict a label for each text, in order."""
        cleaned = clean_private(texts, self._steps)
        vectors = torch.from_numpy(self._encoder.encode(cleaned))
        with torch.inference_mode():
            chances = torch.softmax(self._classifier(vectors), dim=-1)
        best = chances.max(dim=-1)
        return [
            Prediction(self.classes[int(i)], round(float(p), 2)) if text else Prediction("", 0.0)
            for text, p, i in zip(cleaned, best.values, best.indices, strict=True)
        ]
