"""How many duplicates consolidation leaves, how many wrong pairs it merges, and what the model costs.

    python -m bench.consolidate [--pairs 500] [--size 5000] [--most 5000] [--show]

Facts about invented people in several wordings; some are stored twice, in two wordings. Most of the
others differ from one of these in a single name, number or noun. Measures rules alone, then rules
and a scripted model that knows the truth but makes mistakes: it misses 5 % of the duplicates, calls
2 % of the other pairs duplicates at random, and one in 300 every time it is asked.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import report
from memorist import aio
from memorist.client import Client
from memorist.jobs import DAILY, consolidate
from memorist.storage import tasks
from memorist.storage.tasks import NewTask
from memorist.text import tokens
from memorist.text.prompts import Prompt
from memorist.types import Draft, Filter, Memory, Scope

WHO = Scope(user="bench")
PAGE = 250
MISSED, CHANCE, STUBBORN = 0.05, 0.02, 1 / 300

PEOPLE = """Nora Ilse Tomas Petra Ravi Yuki Amara Diego Freya Idris Lena Marek Oona Paolo Quinn Rosa Sami Tilda Uma
Viktor Wanda Xenia Yannis Zora Anselm Bruna Cosmo Dalia Emre Farah Gideon Hana Imre Jolanta Kofi Leonie Mateo Nadia
Olaf Priya Rasmus Selma Tariq Ursula Vera Wilma""".split()
SLOTS: dict[str, list[str]] = {
    "animal": "parrot tortoise rabbit greyhound hamster ferret pony goldfish".split(),
    "pet": "Biscuit Pepper Mochi Rusty Olive Pickle Waffle Juniper Noodle Ziggy".split(),
    "job": ["carpenter", "midwife", "tax adviser", "welder", "florist", "radiologist", "translator", "bus driver"],
    "firm": "Norwind Calder Brightway Lumen Osterhaus Pellworth Quayside Vantor".split(),
    "food": "peanuts shellfish strawberries sesame celery gluten lactose hazelnuts".split(),
    "dish": ["lasagne", "ramen", "goulash", "paella", "falafel", "pancakes", "risotto", "dumplings"],
    "city": "Porto Ghent Tallinn Bologna Malmö Leeds Graz Nantes Gdańsk Bilbao".split(),
    "instrument": "cello trumpet accordion clarinet drums harp oboe banjo".split(),
    "sport": "fencing rowing bouldering badminton judo archery curling handball".split(),
    "language": "Finnish Korean Swahili Portuguese Turkish Welsh Hindi Greek".split(),
    "month": "January February April June July September October December".split(),
    "day": [str(n) for n in range(2, 28)],
    "weekday": "Monday Tuesday Wednesday Thursday Friday Saturday".split(),
    "hour": ["7 am", "8 am", "9 am", "11 am", "2 pm", "4 pm", "6 pm", "8 pm"],
    "year": [str(n) for n in range(1998, 2024)],
    "price": [str(n) for n in range(11, 95, 3)],
    "colour": "yellow silver burgundy turquoise beige orange violet".split(),
    "car": ["Volvo", "Fiat", "Skoda", "Mazda", "Renault", "Subaru"],
    "fear": ["heights", "spiders", "thunderstorms", "needles", "deep water", "crowds"],
    "kin": ["brother", "sister", "cousin", "uncle", "neighbour", "flatmate"],
    "place": ["cellar", "attic", "garage", "garden shed", "hall cupboard", "car boot"],
    "thing": ["passport", "spare key", "toolbox", "tent", "sewing machine", "fishing rod", "projector", "saw"],
    "book": ["Middlemarch", "Dracula", "Walden", "Emma", "Persuasion", "Ulysses"],
    "drink": ["oat milk", "two sugars", "cinnamon", "no foam", "cold water", "honey"],
    "tool": ["Vim", "Emacs", "Obsidian", "Figma", "Blender", "Excel", "Inkscape"],
}  # fmt: skip
WORDINGS: list[tuple[str, ...]] = [
    ("{who} has a {animal} called {pet}", "The {animal} that lives with {who} answers to {pet}",
     "{pet} is {who}'s {animal}", "At home {who} keeps a {animal}, and it goes by the name of {pet}"),
    ("{who} works as a {job} at {firm}", "{who} is employed by {firm} as a {job}",
     "{firm} pays {who} to be their {job}", "Professionally {who} is a {job}, at {firm}"),
    ("{who} is allergic to {food}", "{who} reacts badly to {food}", "{food} make {who} ill because of an allergy",
     "Keep {food} away from {who}, who has an allergy"),
    ("{who} loves {dish}", "{who}'s favourite meal is {dish}", "Nothing tastes better to {who} than {dish}",
     "When it comes to food, {who} goes for {dish} first"),
    ("{who} lives in {city}", "{city} is where {who} has a home", "{who}'s flat is in {city}",
     "The place {who} calls home is {city}"),
    ("{who} plays the {instrument}", "{who} is a {instrument} player",
     "{who} practises the {instrument} in the evenings", "The instrument that {who} plays is the {instrument}"),
    ("{who} took up {sport} in {year}", "{who} has been doing {sport} since {year}",
     "{year} was when {who} began with {sport}", "Since {year}, {sport} is what {who} does for exercise"),
    ("{who} is learning {language}", "{who} takes lessons in {language}", "{who} studies {language} with a tutor",
     "{language} is the language that {who} is trying to pick up"),
    ("{who}'s birthday is on {day} {month}", "{who} was born on {day} {month}",
     "On {day} {month} {who} turns a year older", "{day} {month} is the day to congratulate {who}"),
    ("{who} sees the physiotherapist every {weekday} at {hour}", "On {weekday} at {hour} {who} has physiotherapy",
     "{who}'s physio session is each {weekday} at {hour}", "{weekday}, {hour}: {who} goes to the physiotherapist"),
    ("{who} pays {price} euros a month for the gym", "The gym costs {who} {price} euros monthly",
     "{who}'s gym membership is {price} euros per month", "Each month {price} euros go from {who} to the gym"),
    ("{who} drives a {colour} {car}", "{who}'s car is a {car} in {colour}", "The {colour} {car} belongs to {who}",
     "{who} gets around in a {car}, a {colour} one"),
    ("{who} is afraid of {fear}", "{who} has a phobia of {fear}", "{fear} frighten {who}",
     "What scares {who} most is {fear}"),
    ("{who}'s {kin} is a {job}", "{who} has a {kin} who works as a {job}",
     "The {kin} of {who} earns a living as a {job}", "A {job} by trade: that is {who}'s {kin}"),
    ("{who} keeps the {thing} in the {place}", "The {thing} of {who} is stored in the {place}",
     "Look in the {place} for {who}'s {thing}", "In {who}'s {place} you will find the {thing}"),
    ("{who} is reading {book}", "{who} is in the middle of {book}", "The novel on {who}'s bedside table is {book}",
     "{book} is the book {who} has started"),
    ("{who} takes coffee with {drink}", "{who}'s coffee has to come with {drink}", "{drink} belongs in {who}'s coffee",
     "When ordering coffee for {who}, ask for {drink}"),
    ("{who} does all drawings and notes in {tool}", "{tool} is the program {who} uses every day",
     "{who} relies on {tool} for daily work", "For work, {who} opens {tool} before anything else"),
    ("{who} supports a family in {city} with part of the salary",
     "Some of what {who} earns goes to relatives in {city}", "{who} sends money to family members in {city}",
     "Relatives in {city} get a share of {who}'s income"),
    ("{who} hopes to run the {city} marathon in {year}", "{who}'s goal is the marathon of {city} in {year}",
     "In {year} {who} wants to take part in the {city} marathon", "{who} trains for a marathon: {city}, {year}"),
]  # fmt: skip
ONE_VALUE = {1, 3, 4, 8, 9, 10, 11, 16}  # a person has one of these at a time


def create_texts(pairs: int, size: int, chance: random.Random) -> list[tuple[str, str]]:
    """Create texts in random order, each with the fact it states."""
    facts = _facts(chance)
    said: list[tuple[str, str]] = []
    for n in range(size - pairs):
        fact, wordings = next(facts)
        said += [(text, fact) for text in chance.sample(wordings, 2 if n < pairs else 1)]
    chance.shuffle(said)
    return said


def _facts(chance: random.Random) -> Iterator[tuple[str, list[str]]]:
    """Yield distinct facts, each with all its wordings."""
    seen: set[str] = set()
    while True:
        number = chance.randrange(len(WORDINGS))
        values = {name: chance.choice(choices) for name, choices in SLOTS.items()} | {
            "who": chance.choice(PEOPLE)
        }
        used = [name for name in values if f"{{{name}}}" in WORDINGS[number][0]]
        key = (
            f"{number} {values['who']}"
            if number in ONE_VALUE
            else f"{number} {[values[name] for name in used]}"
        )
        if key not in seen:
            seen.add(key)
            said = (wording.format(**values) for wording in WORDINGS[number])
            yield key, [text[0].upper() + text[1:] for text in said]


class Scripted:
    """A model that knows the truth but makes mistakes."""

    def __init__(self, facts: Mapping[str, str]) -> None:
        self.facts, self.chance = facts, random.Random(7)
        self.asked = self.tokens_in = self.tokens_out = 0

    async def answer(self, scope: Scope, ask: Prompt) -> Mapping[str, Any]:
        given = json.loads(ask.user)
        several = isinstance(given, list)
        verdicts = (
            [{"pair": each["pair"], "same_fact": self._same(each)} for each in given]
            if several
            else []
        )
        value: dict[str, Any] = (
            {"verdicts": verdicts} if several else {"same_fact": self._same(given)}
        )
        self.asked += len(verdicts)
        self.tokens_in += tokens.count_tokens(ask.system + ask.user + json.dumps(ask.schema))
        self.tokens_out += tokens.count_tokens(json.dumps(value))
        return value

    async def close(self) -> None: ...

    def _same(self, pair: Mapping[str, str]) -> bool:
        if self.facts[pair["a"]] == self.facts[pair["b"]]:
            return self.chance.random() >= MISSED
        digest = hashlib.sha256(f"{pair['a']}|{pair['b']}".encode()).digest()
        return int.from_bytes(digest[:4]) < STUBBORN * 2**32 or self.chance.random() < CHANCE


async def run_job(engine: Client, model: Scripted | None, most: int) -> None:
    """Run the consolidation job once."""
    async with engine.ctx.store.transaction(WHO) as tx:
        await tasks.add(tx, NewTask(name="consolidate", due_at=engine.ctx.clock()))
    due = engine.ctx.clock() + DAILY
    (task,) = await engine.ctx.store.tasks.claim(
        ["consolidate"], now=due, limit=1, lease_seconds=3600
    )
    settings = engine.settings.model_copy(update={"consolidate_pairs": most})
    await consolidate.run(replace(engine.ctx, llm=model, settings=settings), task)


def evaluate(
    name: str, memories: list[Memory], facts: Mapping[str, str], before: set[str]
) -> dict[str, Any]:
    """Count remaining duplicates and wrong merges since `before`."""
    texts = {memory.id: memory.text for memory in memories}
    active = [facts[memory.text] for memory in memories if memory.is_active]
    gone = [
        memory for memory in memories if memory.superseded_by in texts and memory.id not in before
    ]
    wrong = sum(facts[memory.text] != facts[texts[memory.superseded_by or ""]] for memory in gone)
    return {
        "after": name, "active": len(active), "duplicates": len(active) - len(set(active)), "merged": len(gone),
        "wrong": wrong, "precision": 1 - wrong / len(gone) if gone else 1.0,
    }  # fmt: skip


async def run(options: argparse.Namespace) -> None:
    said = create_texts(options.pairs, options.size, random.Random(options.seed))
    facts = dict(said)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        async with aio.open(Path(folder) / "memory.db") as engine:
            mine = engine.scope(WHO.user)
            for start in range(0, len(said), PAGE):
                await mine.remember_drafts(
                    [Draft(text=text) for text, _ in said[start : start + PAGE]]
                )
            stored = await _all(engine)
            before = {memory.id for memory in stored if not memory.is_active}
            rows.append(evaluate("remembering", stored, facts, before))
            await run_job(engine, None, 0)
            rows.append(evaluate("rules", await _all(engine), facts, before))
            model = Scripted(facts)
            await run_job(engine, model, options.most)
            found = await _all(engine)
            rows.append(evaluate("rules and a model", found, facts, before))
    costs = {
        "pairs asked": model.asked,
        "tokens in": model.tokens_in,
        "tokens out": model.tokens_out,
    }
    report.table(
        f"{options.pairs} facts stored twice, in other words, among {options.size} memories", rows
    )
    report.table("Model cost", [costs])
    if options.show:
        show(found, facts)
    report.save("consolidate", {"rows": rows, "costs": costs})


async def _all(engine: Client) -> list[Memory]:
    return await engine.ctx.store.find_all(WHO, Filter(states=("active", "superseded")))


def show(found: list[Memory], facts: Mapping[str, str]) -> None:
    """Print wrong merges and remaining duplicates."""
    by_id, by_fact = {memory.id: memory for memory in found}, dict[str, list[str]]()
    for memory in found:
        newer = by_id.get(memory.superseded_by or "")
        if newer is not None and facts[newer.text] != facts[memory.text]:
            print(f"wrong\n   {memory.text}\n   {newer.text}")
        if memory.is_active:
            by_fact.setdefault(facts[memory.text], []).append(memory.text)
    for texts in by_fact.values():
        if len(texts) > 1:
            print("duplicate", *texts, sep="\n   ")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument("--size", type=int, default=5000)
    parser.add_argument("--most", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--show", action="store_true")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
