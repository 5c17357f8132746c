"""Where everything that outlasts a process is kept.

One object, read from the environment (``DPMIX_HOME``, ``DPMIX_DATA``, ``DPMIX_RUNS``,
``DPMIX_SEALED``, ``DPMIX_LEDGER_URL``); the defaults suit a laptop: folders beside the working directory
and a SQLite ledger inside the home. Secrets (a PostgreSQL password) therefore never enter a profile.
"""

from __future__ import annotations

from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Locations, resolved to absolute paths at construction.

    Attributes:
        home: State of the installation: ledger, corpora, embeddings, private store, models.
        data: Carriers of the demo's data and of the encoder, filled by ``make setup``.
        runs: One folder a run: report, summary, evidence.
        sealed: Seeds sealed to an auditor, apart from everything else; by default in ``home``.
        ledger_url: SQLAlchemy URL of the ledger; empty means SQLite in ``home``.
    """

    model_config = SettingsConfigDict(env_prefix="DPMIX_", extra="ignore")

    home: Path = Path("var")
    data: Path = Path("data")
    runs: Path = Path("runs")
    sealed: Path = Path()
    ledger_url: str = ""

    def model_post_init(self, _context: object, /) -> None:
        """Make the paths absolute: a worker may run in another folder than its client."""
        if self.sealed == Path():
            object.__setattr__(self, "sealed", Path(self.home) / "sealed")
        for name in ("home", "data", "runs", "sealed"):
            object.__setattr__(self, name, Path(getattr(self, name)).expanduser().absolute())

    @property
    def ledger(self) -> str:
        """SQLAlchemy URL of the ledger."""
        return self.ledger_url or f"sqlite:///{self.home / 'ledger.db'}"

    @property
    def corpora(self) -> Path:
        """Cleaned public corpora, one folder each."""
        return self.home / "corpora"

    @property
    def embeddings(self) -> Path:
        """Public embeddings, one folder an encoder."""
        return self.home / "embeddings"

    @property
    def private(self) -> Path:
        """The trust zone: private rows and what is derived from them."""
        return self.home / "private"

    @property
    def models(self) -> Path:
        """Released models."""
        return self.home / "models"
