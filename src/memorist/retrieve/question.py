"""Parsing of questions: their terms, what they ask for, the people and times they name, and the text
to embed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache

from ..text import clock, tokens
from ..text.clock import Interval
from ..text.cues import (
    CHATTER,
    HAS_TIME,
    KINDS,
    LONGEST_CHATTER,
    MOST_CHATTER,
    ROLE_WORDS,
    UNSPACED_CHATTER,
    is_user,
)
from ..text.entities import is_common
from ..text.tokens import compile_all, detect_language, load_patterns, word_set
from ..types import frozen

_TOLD = (  # in the past: "can you suggest …" is a request, not a question about what was suggested
    r"(?:said|told|suggested|recommended|mentioned|advised|explained|proposed|gave|wrote|listed|"
    r"provided|described|showed|came up with)"
)
_TELL = (
    r"(?:say|tell|suggest|recommend|mention|advise|explain|propose|give|write|list|provide|"
    r"describe|show)"
)
_ASKS_ASSISTANT = re.compile(
    rf"\b(?:you|(?:the|my) assistant) (?:\w+ )?{_TOLD}\b|"
    rf"\bdid (?:you|(?:the|my) assistant) (?:\w+ )?{_TELL}\b|"
    r"\byour (?:previous|earlier|last) \w+",
    re.IGNORECASE,
)
_TOLD_MYSELF = re.compile(rf"\bI (?:\w+ )?{_TOLD}\b|\bdid I (?:\w+ )?{_TELL}\b", re.IGNORECASE)
_WHEN = re.compile(
    r"(?i)(?:^|[,;.!?] |\band )when (?:did|do|does|is|are|was|were|will|has|have|had|can|could|should"
    r"|would|exactly)\b|"
    r"\b(?:what|which) (?:date|day|month|year|time|week|season)\b|\bhow long\b|\bsince when\b|"
    r"\bwhen\W*$|\b(?:know|remember|tell me) when\b"
)
_WORD = re.compile(r"[^\W\d_][^\W_]*")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_TABLES = load_patterns(__file__)
_ASKS = {KINDS[kind]: pattern for kind, pattern in compile_all(_TABLES["kinds"]).items()}
_ABOUT = compile_all(_TABLES["about"])
_ANSWER = word_set("yes yeah yep yup no nope nah sure")
_ASIDE = CHATTER | word_set("""
    continue go on keep again more else try retry rephrase repeat explain shorter longer that this
    can could would you do sounds next step me dir dank vielen mal bien beaucoup muchas muy genial
    dear lovely looks seems works funny wonderful fantastic brilliant excellent amazing helpful
    parfait muito bem molto bene mille super prima gut guten morgen tag abend alles klar weiter
    buenos días buenas tardes noches oi bom dia boa tarde noite buongiorno buonasera bonsoir vale
    d'accord
    """)

# Words of "What happened in June?" and the like, which ask for nothing but what a period has.
_ASKS_ALL = word_set("what which anything something everything summarize summarise recap")
_NO_TOPIC = _ASKS_ALL | word_set("""
    a about all an and any at been can chat chatted could did discuss discussed do does doing done
    during else for from get go going had happen happened happening happens has have hey i important
    in is it life main me mention mentioned most my new news of ok on or our over please remember
    remind s said say saying show so speak spoke stuff talk talked talking tell that the there thing
    things to told topic topics up us was we went were with would write wrote you
    """)
# "Which decisions did we make?": decisions seldom have the words of the question.
_DECIDING = word_set("""
    decide decides decided deciding decision decisions agree agreed agreement agreements choose chose
    chosen choosing
    """)
_DECIDED = _NO_TOPIC | _DECIDING | word_set("make made take took taken reach reached")

MOST_TERMS = 512
LONGEST_ASKED = 160  # characters; what is longer is mostly a pasted text or a piece of a dialog
MOST_READ = 2000  # characters searched for names and dates: a pasted document is not a question


@frozen
class ParsedQuestion:
    """A parsed question, as the legs and features use it."""

    text: str
    terms: tuple[int, ...]  # ids of the distinct terms, in the order of the text
    dense_text: str  # what to embed
    speakers: tuple[int, ...] = ()  # of the scope, as indices, in the order they are named
    others: tuple[int, ...] = ()  # other people of the scope, if it is about the one who asks
    intervals: tuple[Interval, ...] = ()
    kinds: int = 0  # what it asks for, as flags of `text.cues`
    is_english: bool = True
    names: tuple[int, ...] = ()  # ids of the terms that look like names
    asks_assistant: bool = False  # about what the assistant said
    is_personal: bool = False  # about the person, or names a speaker
    is_task: bool = False  # requests something, or asks for general knowledge
    is_direct: bool = False  # asks for something said before, not for advice
    needs_memory: bool = True  # False: asks for nothing, or for what is the same for everyone
    asks_period: bool = False  # names a period and no topic: "What happened in June?"
    asks_decisions: bool = False  # "What did we decide in June?"
    is_own: bool = False  # in the first person singular

    @property
    def is_long(self) -> bool:
        """Whether it is too long for the models that read questions."""
        return len(self.text) > LONGEST_ASKED


def understand(
    text: str,
    speakers: Sequence[str] = (),
    now: datetime | None = None,
    language: str = "english",
    user: str = "",
) -> ParsedQuestion:
    """Parse a question, given the speakers of its scope and the user whose memory it is.

    >>> question = understand("When did Caroline's dog run away?", ["Melanie", "Caroline"])
    >>> question.dense_text, question.speakers, question.kinds == HAS_TIME
    ('When did my dog run away?', (1,), True)
    >>> question = understand("Where did we park?")
    >>> question.is_personal, question.is_task
    (True, False)
    >>> question = understand("Translate 'good morning' into Finnish")
    >>> question.is_personal, question.is_task
    (False, True)
    """
    head = text[:MOST_READ]
    named = named_speakers(head, speakers)
    others = () if named else other_people(head, speakers, user)
    names = " ".join(names_in(head))
    kinds = kinds_asked(head)
    asks_directly = is_direct(head)
    needs_memory = not (is_self_contained(head) or is_aside(text))
    spoken = detect_language(tokens.words(head), language)
    terms = dict.fromkeys(map(tokens.term_id, tokens.analyze(text, spoken)))
    intervals, rest = clock.read_intervals(head, now)
    name_terms = map(tokens.term_id, tokens.analyze(names, spoken))
    return ParsedQuestion(
        text=text,
        terms=tuple(terms)[:MOST_TERMS],
        dense_text=as_told(text, speakers[named[0]]) if named else text,
        speakers=named,
        others=others,
        intervals=tuple(intervals),
        kinds=kinds,
        is_english=spoken == "english",
        names=tuple(name_terms),
        asks_assistant=bool(_ASKS_ASSISTANT.search(head)) and not _TOLD_MYSELF.search(head),
        is_personal=bool(named) or _ABOUT["person"].search(text) is not None,
        is_task=_ABOUT["task"].match(text.lstrip()) is not None,
        is_direct=asks_directly,
        needs_memory=needs_memory,
        asks_period=bool(intervals) and has_no_topic(rest),
        asks_decisions=asks_decisions(rest),
        is_own=_ABOUT["own"].search(text) is not None,
    )


def kinds_asked(question: str) -> int:
    """Return flags for what a question asks for: a number, a time, a decision, …

    >>> kinds_asked("Where and when was I born?") == KINDS["place"] | HAS_TIME
    True
    """
    asked = HAS_TIME if _WHEN.search(question) else 0
    for flag, pattern in _ASKS.items():
        if pattern.search(question):
            asked |= flag
    return asked


def has_no_topic(question: str) -> bool:
    """Return whether a question asks what there is, and nothing more special.

    >>> [has_no_topic(text) for text in ("What did I do?", "What's new?", "What did I eat?", "When?")]
    [True, True, False, False]
    >>> has_no_topic("What did we decide?"), has_no_topic("What did we decide about the bath?")
    (True, False)
    """
    found = {match[0].casefold() for match in _WORD.finditer(question)}
    known = _NO_TOPIC if found.isdisjoint(_DECIDING) else _DECIDED
    return not found.isdisjoint(_ASKS_ALL) and found <= known


def asks_decisions(question: str) -> bool:
    """Return whether a question asks for what was decided.

    >>> asks_decisions("Which decisions did we make?"), asks_decisions("What did we talk about?")
    (True, False)
    """
    return any(match[0].casefold() in _DECIDING for match in _WORD.finditer(question))


def is_direct(question: str) -> bool:
    """Return whether a question asks for something said before, and not for advice.

    >>> is_direct("It rains. Where did we park?"), is_direct("Where should we park?")
    (True, False)
    >>> is_direct("Wo wohnt meine Tante?"), is_direct("Was soll ich kochen?")
    (True, False)
    """
    *_, last = _SENTENCE_END.split(question.strip())
    asks = _ABOUT["direct"].match(last) or _ABOUT["direct_abroad"].match(last)
    wants_advice = _ABOUT["advice"].search(question) or _ABOUT["advice_abroad"].search(question)
    return asks is not None and wants_advice is None


def names_in(question: str) -> list[str]:
    """Return the words of a question that are capitalized within a sentence.

    >>> names_in("Who told Ana about Porto?")
    ['Ana', 'Porto']
    """
    return _ABOUT["name"].findall(question)


def is_aside(text: str) -> bool:
    """Return whether a message asks for nothing but that the conversation goes on.

    An answer such as "yes, please" is about what was asked before it.

    >>> [is_aside(text) for text in ("ok, go on", "Can you rephrase that?", "Yes.", "Can you cook?")]
    [True, True, False, False]
    >>> is_aside("👍"), is_aside("好的！"), is_aside("Lovely, thank you dear"), is_aside("ok, looks good")
    (True, True, True, True)
    >>> [is_aside(text) for text in ("Hi! How is it going today?", "Wie geht's?", "How is Mira?")]
    [True, True, False]
    """
    line = " ".join(text.split())
    if line.strip(" !.。！~") in UNSPACED_CHATTER:
        return True
    head = _ABOUT["wellbeing"].sub("how are you", line[: 2 * LONGEST_CHATTER])
    found = tokens.words(head)
    if len(found) > MOST_CHATTER or not _ANSWER.isdisjoint(found):
        return False
    return _ASIDE.issuperset(found) and (bool(found) or len(line) <= LONGEST_CHATTER)


def is_self_contained(request: str) -> bool:
    """Return whether a request is the same for everyone, so that no memory can help with it.

    >>> is_self_contained('Translate "my dog" into Thai'), is_self_contained("Translate my letter")
    (True, False)
    >>> is_self_contained("Give me a regex for dates"), is_self_contained("Give me our regex")
    (True, False)
    """
    if _ABOUT["self_contained"].match(request.lstrip()) is None:
        return False
    plain = _ABOUT["impersonal"].sub(" ", request)
    return _ABOUT["person"].search(plain) is None


def named_speakers(text: str, speakers: Sequence[str]) -> tuple[int, ...]:
    """Return the speakers that a text names by first name or full name; a role is not a name.

    >>> named_speakers("Will Art come with MELANIE?", ["Melanie Roy", "Art", "Will", "user"])
    (1, 0)
    """
    by_word = _by_first_word(tuple(speakers))
    if not by_word:
        return ()
    folded = text.casefold()
    found: dict[int, None] = {}
    for at, match in enumerate(_WORD.finditer(text)):
        word = match[0]
        numbers = by_word.get(word.casefold())
        if numbers is None:
            continue
        start = match.start()
        before = text[max(start - 2, 0) : start].strip()
        is_inside = at > 0 and before not in (".", "!", "?")
        is_marked = is_inside and word[0].isupper()
        if is_marked or not is_common(word.casefold()):  # "will" needs a capital in a sentence
            in_full = [n for n in numbers if speakers[n].casefold() in folded]
            found |= dict.fromkeys(in_full or numbers)
    return tuple(found)


def other_people(text: str, speakers: Sequence[str], user: str) -> tuple[int, ...]:
    """Return the speakers who are not the user, if a question in the first person is the user's.

    Where nobody speaks as the user, as in a chat between others, it is nobody's.

    >>> other_people("What car do I drive?", ["user", "Tamsin Reid", "assistant", "Nora"], "nora")
    (1,)
    >>> other_people("What car do I drive?", ["Tamsin Reid", "Daniel"], "nora")
    ()
    """
    if _ABOUT["own"].search(text) is None:
        return ()
    own = {number for number, name in enumerate(speakers) if is_user(name, user)}
    if not own:
        return ()
    others = set(range(len(speakers))) - own
    return tuple(sorted(n for n in others if speakers[n].casefold() not in ROLE_WORDS))


def as_told(text: str, speaker: str) -> str:
    """Return the question in the first person of the speaker it is about.

    >>> as_told("What did Caroline say about Melanie's book?", "Caroline")
    "What did I say about Melanie's book?"
    """
    name = speaker
    if speaker.casefold() not in text.casefold():
        name = speaker.split()[0]
    word = rf"(?i)\b{re.escape(name)}"
    mine = re.sub(rf"{word}['’]s?(?!\w)", "my", text)
    return re.sub(rf"{word}\b", "I", mine)


@lru_cache(maxsize=64)
def _by_first_word(speakers: tuple[str, ...]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, speaker in enumerate(map(str.casefold, speakers)):
        first, *_ = speaker.split() or [""]
        if len(first) > 1 and speaker not in tokens.ROLES:
            found.setdefault(first, []).append(number)
    return found
