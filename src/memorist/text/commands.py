"""Recognize commands to the memory: "forget my old address", "undo that", "what do you know of me?"

Only the words of one message are read. Whether there is a list to choose from, and who said them,
is up to the caller. What is quoted, reported, imagined or only mentioned is not a command. The
expressions are in `commands.toml`, by group and intent, and compiled when they are needed: a message
is matched with a group, a language or some of the intents of English, only if it has its trigger.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import compress, product

from ..types import frozen
from . import cues
from .command_patterns import (
    ASSUMING,
    LEAST_STATED,
    LOOSE,
    Folded,
    compile_group,
    compile_pattern,
    find_places,
    fold,
    has_cue,
    is_filler,
    load_tables,
    load_triggers,
    states_something,
    strip_marks,
    trim,
)

LONGEST = 300  # characters of a command; a text to be saved may be longer
LONGEST_SAVED = 20_000
MOST_SENTENCES = 5
MOST_LOOSE = 25  # words
MOST_BESIDE = 20  # words of a sentence beside the command
INTENTS = (
    *("forget_topic", "forget_last", "forget_listed", "forget_all", "undo"),
    *("save", "dont_save", "pin", "unpin", "show", "show_topic", "correct"),
    *("memory_off", "memory_on", "memory_state", "incognito_on", "incognito_off"),
    *("confirm_new", "confirm_old", "confirm_both"),
)
ANSWERS = ("yes", "no", "pick", "pick_new", "pick_old", "pick_both")  # to a question of the memory
# These could as well be about something else, so nothing else may be said with them.
_ALONE = ("undo", "forget_listed", "confirm_new", "confirm_old", "confirm_both")
# These may be questions, or be said with one.
_ASKING = ("show", "show_topic", "memory_state", "_knows", "_told", "_have", "dont_save")
_HALF_NAMES = ("_knows", "_oops", "_drop_it", "_told", "_have", "_unchanged")
_HALVES = {
    ("_knows", "_drop_it"): "forget_topic",
    ("_knows", "forget_last"): "forget_topic",
    ("_oops", "_drop_it"): "forget_last",
    ("_told", "_have"): "show_topic",
}
_OLD = frozenset(
    "old previous former earlier prior outdated alt alte alten alter altes alt frühere früheren "
    "vorherige ancien ancienne anciens précédent précédente viejo vieja antiguo antigua anterior "
    "antigo antiga velho velha vecchio vecchia precedente".split()
)
_AND_THAT = re.compile(
    r"(,| and| but) that (?=(?:[Ii]|[Ii]['’][a-z]{1,2}|my|we|our|the|he|she|his|her|they)\b|[A-Z]\w)"
)
_SENTENCE = re.compile(
    r"[^.!?…;\n。！？؟]+(?:[.!?…;。！？؟]+(?=\S)[^.!?…;\n。！？؟]+)*[.!?…;。！？؟]*"
)
_SENTENCE_END = re.compile(r"[.!?]\s+\w")
_CLAUSE = re.compile(r"[^.!?…;,\n–—]+[.!?…;,]*")
# What separates something else from a command in one sentence.
_BESIDE = re.compile(r"[,;]? (?:and|but|und|aber|et|mais|y|e|pero|mas|ma) |[,;] | [–—-] ")
_POLITE = ("ok?", "okay?", "please?", "will you?", "would you?", "can you?", "could you?")
_QUOTES = ('"', "“", "«", "„", "`")


@frozen
class Command:
    """A command that was recognized."""

    intent: str  # one of INTENTS, `approve` or `deny`; one of ANSWERS if answers were asked for
    topic: str = ""  # what it is about, in the words of the person
    content: str = ""  # what to save, or how it really is
    # that · this · next · all · undone · listed: the places · name: of anything; else empty
    which: str = ""
    places: tuple[int, ...] = ()  # in the list that was shown, from 0; -1 is the last
    field: str = ""  # of the profile, for `approve` and `deny`
    language: str = "en"  # of the expression that matched; "other" for some languages
    for_good: bool = False  # asked to erase it, not only to hide it
    names_memory: bool = False  # it says that the memory is meant
    from_now_on: bool = False  # asked to store nothing more about it
    rest: str = ""  # what the message states besides


def parse(text: str, *, answers: bool = False) -> Command | None:
    """Return the command that a message is; None if it is not one.

    With `answers`, replies such as "yes" and "the second one" count, which mean something only
    after a question.

    >>> parse("Hey, could you please forget my old adress?").topic
    'my old adress'
    >>> parse("Remember this: Bo likes tea").content
    'Bo likes tea'
    >>> parse("She told me to forget that."), parse('"Forget that."'), parse("Don't forget that!")
    (None, None, None)
    >>> parse("yes") is None, parse("1 and 3", answers=True).places
    (True, (0, 2))
    """
    if len(text) > LONGEST_SAVED:
        return None
    begins: Command | None = None
    if len(text) > LONGEST:  # it has to begin with a request to save it, or not to
        begins = parse(text[:LONGEST])
        if begins is not None and begins.intent == "dont_save":
            return begins
    folded = fold(text)
    groups = []
    for name, trigger in load_triggers().items():
        if name not in (LOOSE, ASSUMING) and (answers or trigger.search(folded)):
            groups.append(name)
    line = Folded(text=text, folded=folded, groups=tuple(groups))
    if has_cue("asked", folded[-LONGEST:]):
        return None
    whole = (0, len(folded))
    if len(text) > LONGEST:
        is_saved = begins is not None and begins.intent == "save"
        return _match(line, whole, names=("save",)) if is_saved else _match_unsaved(line)
    if answers and (answer := _match(line, whole, answers=True)):
        return answer
    found = _match(line, whole)
    may_answer = answers and (found is None or found.intent == "save")
    if may_answer and (answer := _match_parts(line, _SENTENCE, answers=True)):
        return answer
    if found and not _SENTENCE_END.search(found.topic):
        return _match_beside(line, found)
    parts = _match_parts(line, _SENTENCE) or (not found and _match_parts(line, _CLAUSE))
    if parts := parts or found or _match_unsaved(line):
        return parts
    if (
        len(folded.split()) > MOST_LOOSE
        or has_cue("elsewhere", folded)
        or has_cue("reported", folded)
    ):
        return None
    return _match(line, whole, groups=(LOOSE,))


def read_saved(text: str) -> str:
    """Return what a text asks to save, and nothing if it is no such command.

    >>> read_saved("Remember that I like tea"), read_saved("Forget that I like tea")
    ('I like tea', '')
    >>> read_saved("Merk dir, dass ich Tee mag")
    'Merk dir, dass ich Tee mag'
    """
    found = parse(text)
    content = found.content if found is not None and found.intent == "save" else ""
    # Without "dass", the order of the words would be wrong.
    return text if content and f"dass {content}" in text else content


def parse_assuming(text: str) -> Command | None:
    """Return what a message asks for if it speaks of something that is stored, or is off.

    >>> parse("What do you know about Callum?"), parse_assuming("What do you know about Callum?").topic
    (None, 'Callum')
    """
    if len(text) > LONGEST:
        return None
    folded = fold(text)
    line = Folded(text=text, folded=folded, groups=())
    return _match(line, (0, len(folded)), groups=(ASSUMING,))


def names_old(topic: str) -> bool:
    """Return whether a topic is what was so before.

    >>> names_old("my old address"), names_old("mein alter Chef"), names_old("my address")
    (True, True, False)
    """
    return not _OLD.isdisjoint(fold(topic).split())


def leave_out_old(topic: str) -> str:
    """Return a topic without the word that says that it was so before.

    >>> leave_out_old("my old address")
    'my address'
    """
    kept = [word for word in topic.split() if fold(word) not in _OLD]
    return " ".join(kept)


def _match_parts(line: Folded, part: re.Pattern[str], *, answers: bool = False) -> Command | None:
    """Return the command of a message in which one part, or two together, are a command.

    With `answers`, the first part has to be an answer, and no other one a command but "remember …".
    """
    spans = list(_find_spans(line.folded, part))
    if not 2 <= len(spans) <= MOST_SENTENCES:
        return None
    matched: list[tuple[str, Command | None]] = []
    for start, end in spans:
        is_answer = answers and not matched
        found = _match(line, (start, end), halves=not is_answer, answers=is_answer)
        matched.append((line.folded[start:end].rstrip(), found))
    commands = [found for _, found in matched if found is not None]
    others = [each for each, found in matched if found is None]
    halves = {each.intent: each for each in commands}
    whole = [each for each in commands if not each.intent.startswith("_")]
    if answers and (matched[0][1] is None or any(each.intent != "save" for each in whole[1:])):
        return None
    whole.sort(key=_could_be_about_anything)
    chosen = whole[0] if whole else None
    unused: list[str] = []
    for (first, second), intent in _HALVES.items():  # "Why do you know my salary? Delete it."
        if first in halves and second in halves:
            chosen = replace(halves[first], intent=intent)
            break
    else:  # "Forget my car. My boss is called Bo."
        unused = [each for each, found in matched if found and found.intent == "_knows"]
    if chosen is None or any(len(each.split()) > MOST_BESIDE for each in others):
        return None
    if any(has_cue("reported", each) or has_cue("then", each) for each in others):
        return None
    if part is _CLAUSE and any("?" in each or has_cue("goes_on", each) for each in others):
        return None
    if _could_be_about_anything(chosen) and not all(map(is_filler, others)):
        return None
    others += unused
    stated = [each for each in others if states_something(each)]
    if chosen.intent == "dont_save":
        return _mean_this(chosen) if stated else chosen
    saved = [each for each in commands if each.content and each is not chosen]
    if part is not _SENTENCE or not (stated or saved):
        return chosen
    left = [each in others or found in saved for each, found in matched]
    return replace(chosen, rest=" ".join(line.original(*each) for each in compress(spans, left)))


def _match_beside(line: Folded, found: Command) -> Command:
    """Return a request to forget, without what the same sentence states or asks to save after it."""
    if found.intent not in ("forget_topic", "forget_last"):
        return found
    end = len(line.folded)
    for mark in _BESIDE.finditer(line.folded):
        after = (mark.end(), end)
        saved = _match(line, after, names=("save", "_remember"))
        beside = line.original(*after)
        is_saved = saved is not None and saved.content
        is_stated = mark[0][0] in ",;" and _states_what_is_so_now(beside)
        if is_saved or is_stated:
            first = _match(line, (0, mark.start()))
            if first is not None and first.intent == found.intent:
                return replace(first, rest=beside)
    return found


def _states_what_is_so_now(text: str) -> bool:
    """Return whether a text says by itself what is so now: "I work at Globex now"."""
    said = cues.read(text)
    is_new = "ended" not in said.cues and not said.cues.isdisjoint(("moved", "now"))
    return is_new and said.length >= LEAST_STATED and "?" not in text and not said.refers_back


def _match_unsaved(line: Folded) -> Command | None:
    """Return the request not to store a message that it begins or ends with, whatever it tells."""
    spans = list(_find_spans(line.folded, _SENTENCE))
    if len(spans) < 2:
        return None
    for start, end in (spans[0], spans[-1]):
        if end - start <= LONGEST and (found := _match(line, (start, end), names=("dont_save",))):
            return _mean_this(found)
    return None


def _find_spans(folded: str, part: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield where the parts of a message begin and end, without the space before them."""
    for found in part.finditer(folded):
        if words := found[0].lstrip():
            yield found.end() - len(words), found.end()


def _mean_this(command: Command) -> Command:
    """Return a request not to store "that", which is told in the same message."""
    return replace(command, which="this") if command.which == "that" else command


def _could_be_about_anything(command: Command) -> bool:
    """Return whether a command may as well be meant for something else: "Undo that."."""
    is_bare = command.which in ("that", "name") and command.intent != "dont_save"
    return is_bare or command.intent in _ALONE or command.intent.startswith("show")


def _match(
    line: Folded,
    span: tuple[int, int],
    *,
    names: tuple[str, ...] = (),
    groups: tuple[str, ...] = (),
    halves: bool = False,
    answers: bool = False,
) -> Command | None:
    """Return the command that a part of a message is."""
    trimmed: dict[str, list[tuple[int, int]]] = {}  # by language
    for group in groups or line.groups:
        is_triggered = answers or load_triggers()[group].search(line.folded, *span) is not None
        if not is_triggered and not halves:
            continue
        quick = compile_group(group)
        language = group.split("_")[0]
        if language not in trimmed:
            trimmed[language] = list(trim(line.folded, span, language))
        spans = trimmed[language]
        if not any(quick.fullmatch(line.folded, *each) for each in spans):
            continue
        asks = bool(spans) and "?" in line.folded[spans[0][1] : span[1]]
        is_polite = spans[-1][0] > spans[0][0] or line.folded.endswith(_POLITE, 0, span[1])
        for name, expressions in load_tables()[group].items():
            if name == "trigger":
                continue
            is_half = name in _HALF_NAMES
            is_answer = name.lstrip("_") in ANSWERS
            if (names and name not in names) or is_answer != answers:
                continue
            if not (halves if is_half else is_triggered):
                continue
            if asks and not is_polite and name not in _ASKING:
                continue
            for expression, (start, end) in product(expressions, spans):
                if found := compile_pattern(expression).fullmatch(line.folded, start, end):
                    return _read(line, name, found, span[1], language)
    return None


def _read(line: Folded, name: str, found: re.Match[str], end: int, language: str) -> Command | None:
    """Return a command with the words that its expression captured."""
    parts: dict[str, str] = {}
    for group in found.re.groupindex:
        if found[group] is not None:
            start, last = found.span(group)
            if group == "content" and last == found.end():
                last = end  # with the punctuation that belongs to it
            parts[group] = line.original(start, last)
    topic = strip_marks(parts.get("topic", "") or parts.get("name", ""))
    if "name" in parts and not all(word[0].isupper() for word in topic.split()):
        return None
    folded = topic.lower()
    content = parts.get("content", "").strip(" \t\n-–—:")
    if content and line.folded[: found.start("content")].endswith(" that "):
        content = _AND_THAT.sub(r"\1 ", content)  # "remember that … and that …"
    is_quoted = name == "correct" and content.startswith(_QUOTES)
    if is_quoted or has_cue("asked", folded):
        return None
    intent = "save" if name == "_remember" else name
    if folded in load_tables()["places"]["me"].split():
        topic = ""
        intent = {"forget_topic": "forget_all", "show_topic": "show"}.get(intent, intent)
    means_all = load_tables()["places"]["all"].split()
    if intent.lstrip("_") in ANSWERS:
        intent = intent.lstrip("_")
        if intent == "yes" and found[0].split()[-1] in means_all:  # "ja, alle"
            intent = "pick"
    said = parts.get("which", "").lower()
    which = "that" if said and not topic else ""
    if intent == "dont_save" and said.startswith("this"):
        which = "this"
    if intent == "undo" and said:
        which = "undone"
    if "name" in parts:
        which = "name"
    is_all = said.split(" ")[0] in means_all
    places = () if is_all else tuple(find_places(said))  # "all 7" is not the seventh
    if places:
        which = "listed"
    elif is_all or intent in ("forget_listed", "pick"):
        which = "all"
    elif has_cue("next", found[0]) and intent == "dont_save":
        which = "next"
    return Command(
        intent=intent,
        topic=topic,
        content=content,
        which=which,
        places=places,
        field=parts.get("field", ""),
        language=language,
        for_good=intent.startswith("forget") and has_cue("for_good", line.folded),
        names_memory=has_cue("memory", line.folded),
        from_now_on=intent == "forget_topic" and has_cue("lasting", found[0]),
    )
