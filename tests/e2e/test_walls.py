"""Twenty people do everything that can be done, each also with what belongs to others: nobody learns or changes it."""

from __future__ import annotations

import asyncio
import inspect
import json
import random
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import apsw
import psycopg
import pytest

from memorist import aio
from memorist.client import Client
from memorist.errors import MemoristError
from memorist.manage.checkpoints import Checkpoints
from memorist.manage.privacy import FIELDS, Consent, Privacy
from memorist.scoped import ScopedClient
from memorist.types import Draft, Filter, Labels

UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
POOLS = {
    "operation": rf"'operation': '({UUID})'",
    "proposal": rf"Proposal\(id='({UUID})'",
    "id": rf"({UUID})",
}
AT_ONCE, EACH = 4, 5  # of one round: who acts at the same time, and how often
OFTEN = {
    "remember": 8,
    "remember_drafts": 4,
    "recall": 4,
    "history": 3,
    "consent.propose": 3,
    "list": 2,
}
CITIES, COLOURS = ("Lisbon", "Porto", "Osaka"), ("red", "blue", "green")
COMMANDS = (
    "Forget that.",
    "Pin this.",
    "Forget all of them.",
    "Show me your memories about the {} thing.",
)


class Person:
    """One scope, a word that is in all it says, and what the others have seen of its ids."""

    def __init__(self, number: int, engine: Client) -> None:
        self.number = number
        names = (
            f"user{number % 4}",
            f"space{number // 4 % 3}",
            f"tenant{number // 12}",
        )  # many share a part of it
        self.word = "".join(random.Random(number).choices("bdfgkpvz", k=12))
        self.group = number % 3  # who have the names of their sessions and threads in common
        self.labels = {"session": f"s{self.group}", "thread": f"t{self.group}"}
        self.open: Callable[[dict[str, str]], ScopedClient] = lambda labels: engine.scope(
            *names, **labels
        )
        self.key = (names[2], names[0], names[1])
        self.seen: dict[str, deque[str]] = {name: deque(maxlen=80) for name in POOLS}
        self.messages = 0

    def learn(self, shown: str) -> None:
        for name, pattern in POOLS.items():
            self.seen[name].extend(re.findall(pattern, shown)[-40:])


class Trial:
    """A crowd of people and their operations, each chosen by chance."""

    def __init__(self, engine: Client, seed: int, folder: Path) -> None:
        self.engine, self.chance, self.folder = engine, random.Random(seed), folder
        self.people = [Person(number, engine) for number in range(20)]
        self.verbs = {
            **_verbs("", ScopedClient),
            **_verbs("consent.", Consent),
            **_verbs("checkpoints.", Checkpoints),
        }
        self.verbs |= _verbs("privacy.", Privacy)
        self.done: Counter[str] = Counter()
        self.worked: Counter[str] = Counter()
        self.foreign = 0
        self.leaks: list[str] = []

    async def round(self) -> set[Person]:
        """Let a few act at the same time."""
        acting = self.chance.sample(self.people, AT_ONCE)
        await asyncio.gather(*(self.turn(person) for person in acting))
        await self.engine.ctx.access_log.close()  # writes what is held back
        return set(acting)

    async def turn(self, person: Person) -> None:
        for _ in range(EACH):
            (name,) = self.chance.choices(
                list(self.verbs), [OFTEN.get(name, 1) for name in self.verbs]
            )
            await self.act(person, name)

    async def act(self, person: Person, name: str) -> None:
        labels = self.someone(person).labels if self.chance.random() < 0.2 else person.labels
        part, _, verb = name.rpartition(".")
        me = person.open(labels if self.chance.random() < 0.8 else {})
        on, given = getattr(me, part) if part else me, await self.given(person, me, name)
        self.done[name] += 1
        try:
            shown = repr(await _whole(getattr(on, verb)(**given)))
            self.worked[name] += 1
        except MemoristError as error:
            shown = f"{error!r} {error.__cause__!r} {error.__context__!r}"
        person.learn(shown)
        self.look(person, name, shown, given)

    def look(self, person: Person, name: str, shown: str, given: Mapping[str, Any]) -> None:
        """Note the words of others in an answer, but for a question that was asked with them."""
        asking = [given.get(each) for each in ("query", "message", "text")]
        for asked in filter(None, [*asking, repr(given.get("where"))]):
            shown = shown.replace(asked, "").replace(asked.partition("about ")[2].rstrip("."), "")
        for other in self.people:
            if other is not person and other.word in shown.lower():
                self.leaks.append(f"{name} told {person.key} of {other.key}: {shown[:300]}")

    # What a verb is given

    async def given(self, person: Person, me: ScopedClient, name: str) -> dict[str, Any]:
        """All that it needs, and sometimes what it may be given."""
        out: dict[str, Any] = {}
        for each in self.verbs[name]:
            make = self.maker(person, me, name, each.name)
            if make is None and each.default is each.empty:
                pytest.fail(f"{name} needs {each.name!r}: say in `maker` what it is to be given")
            if make is not None and (each.default is each.empty or self.chance.random() < 0.3):
                made = make()
                out[each.name] = await made if inspect.isawaitable(made) else made
        return out

    def maker(
        self, person: Person, me: ScopedClient, verb: str, name: str
    ) -> Callable[[], Any] | None:
        chance = self.chance

        def pick(*values: Any) -> Callable[[], Any]:
            return lambda: chance.choice(values)

        special: dict[tuple[str, str], Callable[[], Any]] = {
            ("command", "text"): lambda: chance.choice(COMMANDS).format(self.someone(person).word),
            ("command", "name"): lambda: None,
            ("command", "role"): lambda: "user",
            ("consent.propose", "evidence"): lambda: [
                self.seen(person, "id") for _ in range(chance.randint(1, 2))
            ],
            ("consent.approve", "id"): lambda: self.seen(person, "proposal"),
            ("consent.deny", "id"): lambda: self.seen(person, "proposal"),
            ("list", "cursor"): lambda: None,
            ("import_files", "since"): lambda: "2020-01-01",
        }
        general: dict[str, Callable[[], Any]] = {
            "what": lambda: self.told(person),
            "drafts": lambda: [self.draft(person) for _ in range(chance.randint(1, 3))],
            "text": lambda: self.text(person),
            "query": lambda: f"what of the {chance.choice(COLOURS)} {self.someone(person).word}?",
            "message": lambda: f"what of the {chance.choice(COLOURS)} {self.someone(person).word}?",
            "id": lambda: self.seen(person, "id"),
            "operation": lambda: self.seen(person, "operation"),
            "session": lambda: f"s{self.someone(person).group}",
            "thread": lambda: f"t{self.someone(person).group}",
            "where": lambda: self.where(person),
            "about": lambda: [self.seen(person, "id") for _ in range(2)],
            "recalled": lambda: [self.seen(person, "id") for _ in range(3)],
            "used": lambda: [self.seen(person, "id")],
            "reply": lambda: self.text(self.someone(person)),
            "source_ids": lambda: [self.message_id(person)],
            "evidence": lambda: [f"https://{person.word}.example"],
            "records": lambda: self.records(person, me),
            "path": lambda: self.file(person),
            "category": lambda: person.word,
            "tags": lambda: [person.word],
            "summary": lambda: f"In short: {person.word}.",
            "actor": lambda: f"actor{person.number}",
            "reason": lambda: f"for {person.word}",
            "field": pick(*FIELDS),
            "value": lambda: f"{chance.choice(CITIES)} {person.word}",
            "data": lambda: {"graph_state": {"said": self.text(person), "id": self.seen(person, "id")}},
            "agent": pick("supervisor", "planner", "nobody"),
            "categories": lambda: None,
            "return_": pick("bullets", "full"),
            "limit": pick(1, 5, 50), "top_k": pick(3, 20), "budget": pick(50, 4000), "since": pick(0, 3),
            "dry_run": pick(True, False), "keep_days": pick(0, 2), "never_again": pick(True, False),
            "pinned": pick(True, False), "manually_saved": pick(True, False), "importance": pick(0.2, 0.9),
            "policy": pick("default", "theoria", "vault", "milton", "supervisor"),
            "profile": pick("default", "theoria.triscore", "imp.bullets"),
            "as_of": pick("2020-01-01T00:00:00Z", "2090-01-01T00:00:00Z"), "include_compressed": pick(True),
            "memory_enabled": pick(True, True, True, False), "incognito_default": lambda: False,
        }  # fmt: skip
        return special.get((verb, name)) or general.get(name)

    def someone(self, person: Person) -> Person:
        """Themselves, or as often somebody else."""
        if self.chance.random() < 0.5:
            return person
        self.foreign += 1
        return self.chance.choice([other for other in self.people if other is not person])

    def seen(self, person: Person, pool: str) -> str:
        return self.chance.choice(self.someone(person).seen[pool] or ["nothing"])

    def message_id(self, person: Person) -> str:
        whose = self.someone(person)
        return f"m{whose.number}-{self.chance.randint(0, whose.messages)}"

    def text(self, person: Person) -> str:
        chance, word = self.chance, person.word
        return chance.choice((
            f"My kettle number {chance.randint(1, 30)} is {chance.choice(COLOURS)} {word}.",
            f"I live in {chance.choice(CITIES)}, at {word}.",
            f"I prefer {chance.choice(COLOURS)} {word} tea in room {chance.randint(1, 9)}.",
            f"The {word} ship left with {chance.randint(1, 999)} boxes of {chance.choice(COLOURS)} paint.",
        ))  # fmt: skip

    def told(self, person: Person) -> Any:
        if self.chance.random() < 0.5:
            return self.text(person)
        person.messages += 1
        said = {"content": self.text(person), "id": self.message_id(person), "role": "user"}
        return [{**said, "session": f"s{self.someone(person).group}"}]

    def file(self, person: Person) -> Path:
        """A list of messages, with an id that somebody else may have."""
        said = {"role": "user", "content": self.text(person), "id": self.message_id(person)}
        path = self.folder / f"{person.number}.json"
        path.write_text(json.dumps([said, said]), "utf-8")
        return path

    def draft(self, person: Person) -> Draft:
        ids = tuple(self.seen(person, "id") for _ in range(self.chance.randint(0, 2)))
        return Draft(
            text=self.text(person),
            evidence_ids=ids,
            message_id=self.message_id(person),
            kind="semantic",
        )

    def where(self, person: Person) -> Filter:
        return self.chance.choice((
            Filter(ids=(self.seen(person, "id"), self.seen(person, "id"))),
            Filter(labels=Labels(session=f"s{self.someone(person).group}")),
            Filter(labels=Labels(thread=f"t{self.someone(person).group}"), states=("active", "superseded")),
            Filter(source_id=self.message_id(person)),
            Filter(derived_from=(self.seen(person, "id"),), states=("active", "soft_deleted")),
            Filter(versions_of=self.seen(person, "id"), states=("superseded",)),
            Filter(tags=(self.someone(person).word,)),
        ))  # fmt: skip

    async def records(self, person: Person, me: ScopedClient) -> list[Mapping[str, Any]]:
        """A part of one's own export, in which ids and the scope may be those of somebody else."""
        mine = [
            record
            async for record in me.export()
            if record["record_type"] in ("memory", "message", "history")
        ]
        few, other = self.chance.sample(mine, min(3, len(mine))), self.someone(person)
        scope = dict(zip(("tenant", "user", "space"), other.key, strict=True))
        return [
            {**each, "data": {**each["data"], "id": self.seen(person, "id"), "scope": scope}}
            for each in few
        ]


def _verbs(part: str, of: type) -> dict[str, list[inspect.Parameter]]:
    """Each public verb with its parameters."""
    found = {
        name: value
        for name, value in vars(of).items()
        if inspect.isfunction(value) and name[0] != "_"
    }
    return {part + name: [*_parameters(value)][1:] for name, value in found.items()}


def _parameters(verb: Callable[..., Any]) -> Iterator[inspect.Parameter]:
    """The parameters of a verb, and its typed options one by one."""
    for each in inspect.signature(verb).parameters.values():
        if each.kind is not each.VAR_KEYWORD:
            yield each
            continue
        (options,) = get_args(get_type_hints(verb)[each.name])
        for name in options.__annotations__:
            yield inspect.Parameter(name, each.KEYWORD_ONLY, default=None)


async def _whole(answer: Any) -> Any:
    return [each async for each in answer] if hasattr(answer, "__aiter__") else await answer


class Rows:
    """What a database holds of each scope, read past the store."""

    def __init__(self, place: str) -> None:
        self.is_file = "://" not in place
        self._open: Any = (
            apsw.Connection(place) if self.is_file else psycopg.connect(place, autocommit=True)
        )
        self._in = "" if self.is_file else "memorist."
        self._row = "*" if self.is_file else "t::text"
        self.tables = [
            name for (name,) in self._ask(_TABLES[self.is_file])
            if ("scope",) in self._ask(_COLUMNS[self.is_file].format(name))
        ]  # fmt: skip

    def prints(self) -> dict[tuple[Any, ...], int]:
        """What stands in each scope, as a number that changes with it."""
        out = dict.fromkeys(self._names().values(), 0)
        row = (
            self._row
            if self.is_file
            else "bit_xor(hashtextextended(t::text, 0)) FROM {} t GROUP BY scope"
        )
        for key, table, *values in self._held(row):
            out[key] ^= hash((table, *values))
        return out

    def texts(self) -> dict[tuple[Any, ...], str]:
        """Every word that stands in each scope."""
        out = dict.fromkeys(self._names().values(), "")
        for key, _, *values in self._held(self._row):
            out[key] += str(values).lower()
        return out

    def close(self) -> None:
        self._open.close()

    def _held(self, row: str) -> Iterable[tuple[Any, ...]]:
        names = self._names()
        for table in self.tables:
            what = (
                row.format(self._in + table) if "FROM" in row else f"{row} FROM {self._in}{table} t"
            )
            yield from (
                (names[scope], table, *values)
                for scope, *values in self._ask(f"SELECT scope, {what}")
            )

    def _names(self) -> dict[int, tuple[Any, ...]]:
        return {
            id: tuple(key)
            for id, *key in self._ask(f"SELECT id, tenant, user_id, space FROM {self._in}scopes")
        }

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        return list(self._open.execute(sql))


_TABLES = {
    True: "SELECT name FROM sqlite_master WHERE type = 'table'",
    False: "SELECT relname FROM pg_class WHERE relnamespace = 'memorist'::regnamespace AND relkind IN ('r', 'p')",
}
_COLUMNS = {
    True: "SELECT name FROM pragma_table_info('{}')",
    False: "SELECT attname FROM pg_attribute WHERE attrelid = 'memorist.{}'::regclass AND attnum > 0",
}


async def tried(place: str, operations: int, seed: int, folder: Path) -> Trial:
    """So many operations; after each round nothing has changed for those who did nothing."""
    async with aio.open(place, embedder="hashing", spool=False) as engine:
        trial, rows, changed = Trial(engine, seed, folder), Rows(place), list[str]()
        before = rows.prints()
        for _ in range(operations // (AT_ONCE * EACH)):
            acting = {person.key for person in await trial.round()}
            now = rows.prints()
            changed += [
                f"{key} by {acting}"
                for key in before
                if key not in acting and now.get(key) != before[key]
            ]
            before = now
        assert changed == []
        words = rows.texts()
        rows.close()
    trial.leaks += [
        f"{other.word} stands in the rows of {one.key}"
        for one in trial.people for other in trial.people
        if one is not other and other.word in words.get(one.key, "")
    ]  # fmt: skip
    assert sum(person.word in words.get(person.key, "") for person in trial.people) > 15
    return trial


@pytest.mark.spec("THE-109")
async def test_nobody_learns_or_changes_what_belongs_to_somebody_else(
    place: str, tmp_path: Path
) -> None:
    trial = await tried(place, 1500 if "://" not in place else 600, seed=1, folder=tmp_path)
    assert trial.leaks == []
    assert trial.foreign > 300
    assert set(trial.done) == set(trial.verbs)


@pytest.mark.slow
@pytest.mark.spec("THE-109")
async def test_nobody_does_in_ten_thousand_operations(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trial = await tried(place, 10_000, seed=2, folder=tmp_path)
    with capsys.disabled():
        print(f"\n{trial.done.total()} operations, {trial.foreign} times with something foreign, "
              f"{trial.worked.total()} answered, {len(trial.leaks)} leaks")  # fmt: skip
        print(sorted((name, trial.worked[name], trial.done[name]) for name in trial.done))
    assert trial.leaks == []
    assert set(trial.done) == set(trial.verbs)
