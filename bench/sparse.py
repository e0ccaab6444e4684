"""Three sparse indexes: FTS5, postings as SQL rows, and packed terms loaded into arrays.

    python -m bench.sparse [--sizes 10000 100000]

All three get the same texts and questions. ADR-005 quotes the results.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import numpy as np

from bench import report
from bench.speed import sentence
from memorist.index.arrays import Segment
from memorist.text import tokens

K1, B, LIMIT = 1.2, 0.9, 40


def median_ms(ask: Callable[[list[str]], object], asked: Sequence[list[str]]) -> float:
    times = []
    for stems in asked:
        started = time.perf_counter()
        ask(stems)
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e3


def fts(folder: Path, texts: Sequence[list[str]], asked: Sequence[list[str]]) -> dict[str, Any]:
    """Measure FTS5. Its statistics cover the whole table, so every scope would need its own."""
    db = apsw.Connection(str(folder / "fts.db"))
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute("CREATE VIRTUAL TABLE t USING fts5(body, content='', tokenize='unicode61')")
    started = time.perf_counter()
    with db:
        db.executemany(
            "INSERT INTO t(rowid, body) VALUES (?, ?)",
            ((i, " ".join(s)) for i, s in enumerate(texts, 1)),
        )
    written = time.perf_counter() - started
    sql = f"SELECT rowid, bm25(t) FROM t WHERE t MATCH ? ORDER BY bm25(t) LIMIT {LIMIT}"
    took = median_ms(
        lambda stems: db.execute(sql, (" OR ".join(f'"{s}"' for s in stems),)).fetchall(), asked
    )
    return {
        "index": "FTS5, best 40",
        "write µs/text": written / len(texts) * 1e6,
        "ask ms": took,
        "load ms": 0.0,
    }


def sql_rows(
    folder: Path, texts: Sequence[list[str]], asked: Sequence[list[str]]
) -> dict[str, Any]:
    """Measure one row per term and text, with BM25 in SQL."""
    db = apsw.Connection(str(folder / "rows.db"))
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute(
        "CREATE TABLE p (scope, term, doc, tf, len, PRIMARY KEY (scope, term, doc)) WITHOUT ROWID"
    )
    started = time.perf_counter()
    with db:
        db.executemany(
            "INSERT INTO p VALUES (1, ?, ?, ?, ?)",
            (
                (t, i, n, len(s))
                for i, s in enumerate(texts)
                for t, n in Counter(map(tokens.term_id, s)).items()
            ),
        )
    written = time.perf_counter() - started
    mean = statistics.mean(map(len, texts))

    def ask(stems: list[str]) -> list[Any]:
        ids = [tokens.term_id(stem) for stem in stems]
        marks = ", ".join("?" * len(ids))
        found = db.execute(
            f"SELECT term, count(*) FROM p WHERE scope = 1 AND term IN ({marks}) GROUP BY term", ids
        )
        idf = {t: float(np.log1p((len(texts) - n + 0.5) / (n + 0.5))) for t, n in found}
        cases = " ".join(f"WHEN {t} THEN {w}" for t, w in idf.items()) or "WHEN 0 THEN 0"
        return db.execute(
            f"SELECT doc, sum((CASE term {cases} END) * tf / (tf + {K1} * ({1 - B} + {B} * len / {mean}))) s FROM p "
            f"WHERE scope = 1 AND term IN ({marks}) GROUP BY doc ORDER BY s DESC LIMIT {LIMIT}",
            ids,
        ).fetchall()

    return {
        "index": "rows in SQL, best 40",
        "write µs/text": written / len(texts) * 1e6,
        "ask ms": median_ms(ask, asked),
        "load ms": 0.0,
    }


def packed(folder: Path, texts: Sequence[list[str]], asked: Sequence[list[str]]) -> dict[str, Any]:
    """Measure packed terms, loaded into sorted arrays once. Scores all texts, not only 40."""
    db = apsw.Connection(str(folder / "packed.db"))
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    db.execute("CREATE TABLE m (row INTEGER PRIMARY KEY, terms BLOB)")
    started = time.perf_counter()
    with db:
        db.executemany(
            "INSERT INTO m(terms) VALUES (?)",
            ((tokens.pack(map(tokens.term_id, s)),) for s in texts),
        )
    written = time.perf_counter() - started
    started = time.perf_counter()
    segment = Segment.of([row[0] for row in db.execute("SELECT terms FROM m ORDER BY row")], 0)
    load_seconds = time.perf_counter() - started
    length = np.array([len(s) for s in texts], np.float32)
    norm = K1 * (1 - B + B * length / length.mean())

    def ask(stems: list[str]) -> Any:
        scores = np.zeros(len(texts), np.float32)
        for stem in stems:
            term = tokens.term_id(stem)
            low, high = np.searchsorted(segment.terms, [term, term + 1])
            where = slice(int(low), int(high))
            at, tf = segment.positions[where], segment.counts[where].astype(np.float32)
            scores[at] += (
                np.log1p((len(texts) - len(at) + 0.5) / (len(at) + 0.5)) * tf / (tf + norm[at])
            )
        return scores

    row = {
        "index": "packed terms, all scores",
        "write µs/text": written / len(texts) * 1e6,
        "ask ms": median_ms(ask, asked),
    }
    return {**row, "load ms": load_seconds * 1e3}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    rows: list[dict[str, Any]] = []
    for size in parser.parse_args().sizes:
        rng = random.Random(size)
        texts = [tokens.analyze(sentence(rng)) for _ in range(size)]
        asked = [tokens.analyze(sentence(rng))[:6] for _ in range(40)]
        with tempfile.TemporaryDirectory() as folder:
            rows += [
                {"texts": size, **way(Path(folder), texts, asked)}
                for way in (fts, sql_rows, packed)
            ]
    report.table("sparse", rows)
    print(report.save("sparse", {"rows": rows}))


if __name__ == "__main__":
    main()
