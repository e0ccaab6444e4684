"""Which memories a topic means: "my old address", "Ines", "that I hate cilantro".

This is stricter than recall, because what was found may be erased. A chat, a terminal or an agent
shows it and asks; without a person to ask, only what `is_named` for sure is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from ..context import Place
from ..errors import InvalidInput
from ..ingest import transitions, validation
from ..ingest.validation import Where
from ..retrieve.pipeline import has_only_states
from ..text import commands, cues, tokens
from ..text.self_description import find_implied_nouns
from ..types import REPLACES, Filter, Hit, Memory, frozen
from . import recall

CHOICES = 4
LOOKED_AT = 10  # memories that were valid before, for each step back in time
MENTIONED = 200  # memories about a topic
# The confidence from which a memory without a word of the topic is about it.
ALIKE = 0.35
ALIKE_IF_REPLACING = 0.15
# Stems of words that say what somebody thinks of a thing, not which thing.
_ATTITUDES = tokens.word_set("""
    like love hate enjoy prefer want need use have get go old
    mag hass lieb aim déteste odi gust gost amo adoro mi piac
    """)


@frozen
class Mentions:
    """The memories that a search for a topic found, by what they have of it."""

    exact: Sequence[Memory]  # its names, or all its words, or tell it without naming it
    partly: Sequence[Memory]  # half of its words
    others: Sequence[Hit]  # none of its words

    def best(self, least: float = ALIKE) -> list[Memory]:
        """Return what has most of the topic, or else the few that recall is sure to be about it."""
        sure = [hit.memory for hit in self.others if (hit.confidence or 0.0) >= least]
        return list(self.exact or self.partly) or sure[:CHOICES]


async def select(place: Place, query: str | None, where: Where | None) -> list[str]:
    """Return the ids of what a query may mean, or of all that a filter matches.

    Raises InvalidInput if neither is given.
    """
    wanted = validation.where(where)
    found: Sequence[Memory]
    if query:
        is_filtered = not has_only_states(wanted)
        found = await find_meant(place, query, where if is_filtered else None)
    elif has_only_states(wanted):
        raise InvalidInput(
            "Nothing selected: give a query, or a filter that names more than states"
        )
    else:
        found = await place.ctx.store.find_all(place.scope, wanted)
    return [memory.id for memory in found]


async def find_meant(place: Place, topic: str, where: Where | None = None) -> list[Memory]:
    """Return the memories that a topic may mean; if it says "old", those called so or replaced."""
    if not commands.names_old(topic):
        mentions = await find_mentions(place, topic, where, outdated=True)
        about = mentions.best()
        return await add_newer(place, about) if where is None else about
    found = await find_about(place, topic, where)
    called_old = [each for each in found if is_named(each, topic)]
    outdated = await find_outdated(place, topic, found, where)
    old = {each.id: each for each in (*called_old, *outdated)}
    if old or where is not None:
        return list(old.values()) or found
    return await find_replaced(place, topic) or found


async def find_about(place: Place, topic: str, where: Where | None = None) -> list[Memory]:
    """Return the memories that a topic may mean; none if nothing is about it."""
    return (await find_mentions(place, topic, where)).best()


async def prefer_facts(place: Place, topic: str, found: Sequence[Memory]) -> list[Memory]:
    """Return the facts that say what a topic means, in place of turns that say something else too."""
    where = Filter(derived_from=tuple(each.id for each in found))
    derived = await place.ctx.store.find_all(place.scope, where) if found else []
    kept: dict[str, Memory] = {}
    for memory in found:
        facts = [each for each in derived if each.evidence_text and memory.id in each.evidence_ids]
        hits = [Hit(memory=fact, score=0.0, parts={}) for fact in facts]
        about = select_mentions(hits, topic).exact
        chosen = about if 0 < len(about) < len(facts) else [memory]
        kept |= {each.id: each for each in chosen}
    return list(kept.values())


async def add_newer(place: Place, found: Sequence[Memory]) -> list[Memory]:
    """Return memories with what replaced them, such as "Margit moved": the current ones first."""
    ended = [each.id for each in found if each.valid_to is not None]
    pairs = await place.ctx.store.links(place.scope, ended, REPLACES)
    known = {each.id for each in found}
    newer = dict.fromkeys(pair.from_id for pair in pairs if pair.from_id not in known)
    both = [*found, *await load(place, list(newer))]
    return sorted(both, key=lambda each: each.valid_to is not None)


async def find_mentions(
    place: Place,
    topic: str,
    where: Where | None = None,
    *,
    outdated: bool = False,
) -> Mentions:
    """Return the memories that mention a topic, also while memory is off."""
    answer = await recall.search(
        place, topic, MENTIONED, where, min_confidence=0, outdated=outdated
    )
    return select_mentions(answer.hits, topic)


async def find_outdated(
    place: Place, topic: str, found: Sequence[Memory], where: Where | None = None
) -> list[Memory]:
    """Return what the best of the found memories replaced, the latest first."""
    outdated: dict[str, Memory] = {}
    newer = list(found[:1])
    while newer and len(outdated) < CHOICES:
        before = transitions.held_since(newer[0]) - timedelta(microseconds=1)
        then = await recall.look_up(place, topic, LOOKED_AT, where, as_of=before)
        ended = [each for each in share_words(then, topic) if each.valid_to is not None]
        newer = [each for each in ended if each.id not in outdated]
        outdated |= {each.id: each for each in newer}
    return list(outdated.values())[:CHOICES]


async def find_replaced(place: Place, topic: str) -> list[Memory]:
    """Return what was replaced by the memories that a topic may mean: "my old address"."""
    replaced: dict[str, Memory] = {}
    store = place.ctx.store
    about = await find_mentions(place, commands.leave_out_old(topic))
    newer = about.best(ALIKE_IF_REPLACING)
    while newer and len(replaced) < CHOICES:
        newer_ids = [each.id for each in newer]
        ids = await store.earlier_versions(place.scope, newer_ids)
        for id in newer_ids:
            pairs = await store.relations(place.scope, REPLACES, limit=CHOICES, from_id=id)
            ids += [pair.to_id for pair in pairs]
        newer = [each for each in await load(place, ids) if each.id not in replaced]
        replaced |= {each.id: each for each in newer}
    return list(replaced.values())[:CHOICES]


async def load(place: Place, ids: Sequence[str]) -> list[Memory]:
    """Return the memories that are still there, in this order."""
    found = await place.ctx.store.get(place.scope, list(ids))
    by_id = {memory.id: memory for memory in found if memory.state != "soft_deleted"}
    return [by_id[id] for id in ids if id in by_id]


def is_named(memory: Memory, topic: str) -> bool:
    """Return whether the person said a topic word for word.

    "My address" is not in "my brother's address". What was replaced need not say "old".
    """
    if not cues.is_persons(memory):  # "my" may be somebody else's
        return False
    if memory.valid_to is not None:
        topic = commands.leave_out_old(topic)
    wanted = " ".join(tokens.words(topic))
    said = " ".join(tokens.words(memory.text))
    return bool(wanted) and f" {wanted} " in f" {said} "


def select_mentions(hits: Sequence[Hit], topic: str) -> Mentions:
    """Return those of the found memories that are about a topic."""
    language = tokens.detect_language(tokens.words(topic))
    wanted = set(tokens.analyze(topic, language))
    telling = wanted - _ATTITUDES or wanted
    capitalized = [word for word in topic.split() if word[0].isupper()]
    names = telling.intersection(tokens.analyze(" ".join(capitalized), language))
    exact: list[Memory] = []
    partly: list[Memory] = []
    others: list[Hit] = []
    for hit in hits:
        terms = set(tokens.analyze(hit.memory.text, language))
        shared = terms & telling
        whole = shared
        if cues.is_persons(hit.memory) and (implied := find_implied_nouns(hit.memory.text, topic)):
            whole = shared.union(telling.intersection(tokens.analyze(" ".join(implied), language)))
        if whole and (whole == telling or (names and names <= terms)):
            exact.append(hit.memory)
        elif shared and 2 * len(shared) >= len(telling):
            partly.append(hit.memory)
        elif not terms & wanted:
            others.append(hit)
    return Mentions(exact=exact, partly=partly, others=others)


def share_words(memories: Sequence[Memory], text: str) -> list[Memory]:
    """Return the memories that have a word of a text that says something."""
    wanted = set(tokens.analyze(text))
    return [each for each in memories if not wanted.isdisjoint(tokens.analyze(each.text))]
