"""What kind of memory a text becomes, and how important it is, by rules over its words.

A kind or type named by the caller always wins; `request` and `result` are known only to the caller.
Importance goes from 0 (skip) to 1 (vital). There are two measures, by novelty and by heuristics;
`unified` takes the highest, so that what one of them values is not lost by another.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput
from ..text.entities import Entity, entities, rarity
from ..text.normalize import LINK
from ..text.tokens import ENGLISH, word_set, word_table, words
from ..types import ITEM_TYPES, KINDS

PREFERENCE_SIGNALS = ("I prefer", "I always", "I hate", "my favorite", "my favourite")
WORKING_SIGNALS = ("now", "right now", "currently", "this session", "today")

CONFIDENT_FROM = 0.6  # tags found with this confidence count in `heuristic_importance`
TECHNICAL_FROM = 0.25  # mean rarity of the words
TECHNICAL_WORDS = word_set("api async postgresql docker kubernetes vector embedding token schema")
_KIND_OF = word_table("""
    procedural: preference procedural
    semantic: fact profile relationship project lore goals
    episodic: decision request result crumb event activity
    """)
_CATEGORY_OF = {
    "procedural": "preference",
    "semantic": "fact",
    "episodic": "event",
    "working": "activity",
    "insight": "profile",
}


def _phrases(phrases: Iterable[str]) -> re.Pattern[str]:
    spaced = "|".join(r"\s+".join(map(re.escape, phrase.split())) for phrase in phrases)
    return re.compile(rf"(?<!\w)(?:{spaced})(?!\w)", re.IGNORECASE)


_PREFERENCE = _phrases(PREFERENCE_SIGNALS)
_WORKING = _phrases(WORKING_SIGNALS)
_LIKING = re.compile(
    r"\b(?:I|we|(?:the )?user|he|she|they)(?:['’]d| would)? (?:really |also |absolutely |usually )?"
    r"(?:like|love|enjoy|prefer|hate|dislike|adore|detest|loathe|rather|never|always"
    r"|(?:do not|don['’]?t|can['’]?t|cannot) (?:like|stand|want|enjoy))(?:s|d|es)?\b"
    r"|\b(?:I|we)(?:['’]m| am|['’]re| are) (?:not |really |a big )?(?:a fan of|fan of|fond of"
    r"|keen on|into)\b"
    r"|\bfavou?rites?\b|\bpreferences?\b|\bplease (?:always|never|don['’]?t)\b",
    re.IGNORECASE,
)
_CHOICE = re.compile(
    r"\b(?:I|we|they|user|team)(?:['’]ve| have)? (?:finally |just |all )?"
    r"(?:decided|chose|chosen|agreed|settled|picked|opted)\b"
    r"|\b(?:decision|decided)(?: is| was)?:|\blet['’]?s (?:go with|use|switch to|stick with)\b"
    r"|\b(?:we|I)(?:['’]ll| will) (?:go with|use|switch to|stick with|drop)\b"
    r"|\bthe decision (?:is|was)\b|\bfrom now on\b",
    re.IGNORECASE,
)
_PROJECT = re.compile(
    r"\b(?:projects?|milestones?|roadmap|sprint|backlog|blockers?|blocked (?:by|on)|next steps?"
    r"|deadline|release|launch"
    r"|prototype|mvp|deliverables?)\b|\b(?:goal|aim|objective) (?:is|of|for)\b"
    r"|\b(?:I|we|user)(?:['’]m|['’]re| am| are| is) (?:building|working on|developing|migrating"
    r"|designing|shipping)\b",
    re.IGNORECASE,
)
_COMMITMENT = re.compile(
    r"\b(?:I|we)(?:['’]ll| will| shall) (?!see\b|be right back|brb|talk to you|think about)\w+"
    r"|\b(?:I|we) (?:commit(?:ted)?|plan(?:ned)?|intend(?:ed)?|aim|hope|want|need|have|agreed) to\b"
    r"|\b(?:I|we) (?:promised?|swear|vow(?:ed)?)\b"
    r"|\b(?:I|we)(?:['’]m| am|['’]re| are) (?:going to|planning to|trying to|training for)\b"
    r"|\b(?:my|our) (?:goals?|aims?|plans?|objectives?|resolutions?|dream|target|deadline)\b"
    r"|\bremind (?:me|us)\b"
    r"|\bI(?:['’]d| would) like to\b|\bdeadline\b",
    re.IGNORECASE,
)
_VERB = (
    r"(?:am|is|are|has|have|works?|uses?|lives?|owns?|speaks?|stud(?:y|ies)|plays?|drives?|likes?"
    r"|loves?|prefers?"
    r"|knows?|needs?|wants?|manages?|leads?|runs?|teach(?:es)?|means?|contains?|supports?"
    r"|requires?|belongs?"
    r"|comes? from|grew up|was born)"
)
_NAME = r"(?!(?:It|This|That|There|Here|What|Who|How|Why|When|Where|If|So)\b)[^\W\d_a-z]\w+"
_FACT = re.compile(
    rf"\b(?:I|(?i:(?:the )?user)|{_NAME}) {_VERB} \w"
    r"|\b(?:I['’](?:m|ve)|I(?:m|ve)) \w"
    rf"|\b(?i:my|our|the|her|his|their) (?:[^\W_][\w'’-]* ){{1,4}}{_VERB} \w"
)
_QUESTION = re.compile(r"\?\s*$")
_CHATTER = word_set("""
    hi hello hey hiya yo sup morning evening afternoon night good bye goodbye cya later see you
    soon thanks thank thx ty much very so many ok okay k kk yes yeah yep yup no nope nah sure
    right cool nice great awesome perfect lol lmao haha hahaha hehe rofl wow oh ah hm hmm hmmm
    uh um well brb afk gtg sorry please welcome np problem how are doing what's up is it going
    fine and too that's i'm you're one sec second moment wait a the there all alright got it
    understood agreed true hallo danke bitte tschüss hola gracias adiós merci bonjour salut ciao
    grazie olá obrigado obrigada спасибо привет
    """)
_MOST_CHATTER = 8  # words
_LONGEST_CHATTER = 200  # characters
_UNSPACED_CHATTER = word_set("你好 谢谢 好的 再见 ありがとう こんにちは 안녕 감사합니다")
_NUMBER_OR_DATE = re.compile(
    r"\d|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b"
    r"|\b(?:january|february|april|june|july|august|september|october|november|december)\b"
    r"|\b(?:in|since|until|by|of|last|next|this|early|late|mid) (?:march|may)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W_](?:[\w.-]*\w|\+\+|#)?(?:['’]\w+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Salience:
    """The signals in a text, each with what it adds."""

    entity: float = 0.0
    number: float = 0.0
    preference: float = 0.0
    technical: float = 0.0

    @property
    def total(self) -> float:
        return min(1.0, round(self.entity + self.number + self.preference + self.technical, 9))


def has_preference_signal(text: str, extra: Iterable[str] = ()) -> bool:
    """Return whether the text says outright what someone prefers; `extra` adds phrases.

    >>> has_preference_signal("Well, i prefer tea"), has_preference_signal("Tea!", extra=["tea"])
    (True, True)
    >>> has_preference_signal("Tea!")
    False
    """
    phrases = tuple(extra)
    if phrases and _phrases(phrases).search(text):
        return True
    return _PREFERENCE.search(text) is not None


def is_preference(text: str) -> bool:
    """Return whether someone likes, dislikes or prefers something, in whatever words.

    >>> is_preference("We can't stand loud music"), is_preference("It rained")
    (True, False)
    """
    return _LIKING.search(" ".join(text.split())) is not None or has_preference_signal(text)


def is_commitment_or_goal(text: str) -> bool:
    """Return whether someone commits to something, plans it or strives for it.

    >>> is_commitment_or_goal("My goal is a marathon"), is_commitment_or_goal("It rained")
    (True, False)
    """
    return _COMMITMENT.search(" ".join(text.split())) is not None


def is_chit_chat(text: str) -> bool:
    """Return whether a text is only a greeting, thanks, a filler or an emoji.

    >>> is_chit_chat("haha ok, thanks!"), is_chit_chat("Thanks, my flight is at 9")
    (True, False)
    >>> is_chit_chat("👍")
    True
    """
    line = " ".join(text.split())
    if line.strip(" !.。！~") in _UNSPACED_CHATTER:
        return True
    if len(line) > _LONGEST_CHATTER:
        return False
    found = words(line)
    return len(found) <= _MOST_CHATTER and _CHATTER.issuperset(found)


def is_fact(text: str) -> bool:
    """Return whether a subject, a predicate and an object can be read out of the text.

    >>> is_fact("My sister lives in Oslo"), is_fact("We went home")
    (True, False)
    >>> is_fact("User is a backend engineer")
    True
    """
    line = " ".join(text.split())
    return _FACT.search(line) is not None and not _QUESTION.search(line)


def kind(text: str, hint: str | None = None, extra: Iterable[str] = ()) -> str:
    """Return the kind of a memory: the hint, else procedural, working, semantic or episodic.

    >>> kind("I prefer tea"), kind("I am on a train now"), kind("Anna is a doctor")
    ('procedural', 'working', 'semantic')
    >>> kind("We went home")
    'episodic'
    """
    if hint is not None:
        return _check(hint, KINDS, "kind")
    if has_preference_signal(text, extra):
        return "procedural"
    if _WORKING.search(text):
        return "working"
    return "semantic" if is_fact(text) else "episodic"


def item_type(text: str, given: str | None = None) -> str:
    """Return which of the seven types of an item a text is; a type named by the caller wins.

    >>> item_type("I love rye bread"), item_type("We decided to use Go"), item_type("hm")
    ('preference', 'decision', 'crumb')
    >>> item_type("The sky is blue")
    'fact'
    >>> item_type("Turn on the lights", given="request")
    'request'
    """
    if given is not None:
        return _check(given, ITEM_TYPES, "item type")
    line = " ".join(text.split())
    if _QUESTION.search(line) or is_chit_chat(line):
        return "crumb"
    if _CHOICE.search(line):
        return "decision"
    if is_preference(line):
        return "preference"
    if _PROJECT.search(line):
        return "project"
    return "fact" if is_fact(line) and not _WORKING.search(line) else "crumb"


def category(kind: str, item_type: str | None = None) -> str:
    """Return what a memory is about: its type if it has one, else the usual category of its kind.

    >>> category("semantic"), category("episodic", "decision")
    ('fact', 'decision')
    """
    return item_type or _CATEGORY_OF[_check(kind, KINDS, "kind")]


def kind_of(category: str) -> str:
    """Return the usual kind of the memories of a type or category.

    >>> kind_of("preference"), kind_of("relationship"), kind_of("crumb"), kind_of("something else")
    ('procedural', 'semantic', 'episodic', 'episodic')
    """
    return _KIND_OF.get(category.lower(), "episodic")


def _check(value: str, choices: tuple[str, ...], what: str) -> str:
    if value not in choices:
        raise InvalidInput(f"{value!r} is no {what}; choose one of {', '.join(choices)}")
    return value


def novelty(vector: NDArray[np.float32], centroid: NDArray[np.float32] | None) -> float:
    """Return the cosine distance to what is known, from 0 to 1; 1 if nothing is known.

    The centroid may be a plain sum of vectors: only its direction counts.

    >>> novelty(np.array([1.0, 0.0]), np.array([3.0, 0.0])), novelty(np.array([1.0, 0.0]), None)
    (0.0, 1.0)
    """
    if centroid is None:
        return 1.0
    lengths = float(np.linalg.norm(vector)) * float(np.linalg.norm(centroid))
    if lengths == 0.0 or not math.isfinite(lengths):
        return 1.0
    return _clamp(1.0 - float(np.dot(vector, centroid)) / lengths)


def salience(text: str, names: Sequence[Entity] | None = None) -> Salience:
    """Look for a name, a number or date, a preference and technical terms.

    `names` are what `entities` found in it, where that is known.

    >>> salience("I prefer tea in Lisbon at 4")
    Salience(entity=0.3, number=0.2, preference=0.4, technical=0.0)
    >>> salience("I prefer tea in Lisbon at 4").total
    0.9
    """
    return Salience(
        entity=0.3 if (entities(text) if names is None else names) else 0.0,
        number=0.2 if _NUMBER_OR_DATE.search(text) else 0.0,
        preference=0.4 if has_preference_signal(text) else 0.0,
        technical=0.1 if is_technical(text) else 0.0,
    )


def is_technical(text: str) -> bool:
    """Return whether a text is technical, judged by how rare its words are on average.

    >>> is_technical("The gRPC gateway retries idempotent PUTs with exponential backoff")
    True
    >>> is_technical("We had dinner with my sister and talked about the holidays")
    False
    """
    found = _WORD.findall(LINK.sub(" ", text))
    rarities = [rarity(word) for word in found if word.lower() not in ENGLISH]
    if rarities and sum(rarities) / len(rarities) >= TECHNICAL_FROM:
        return True
    return not TECHNICAL_WORDS.isdisjoint(map(str.lower, found))


def novelty_importance(novelty: float, salience: float) -> float:
    """Return the importance of what is new and has salient words: six parts to four.

    >>> novelty_importance(0.5, 0.9)
    0.66
    """
    return _clamp(0.6 * novelty + 0.4 * salience)


def heuristic_importance(
    text: str,
    manually_saved: bool = False,
    metadata_confidence: float = 0.0,
    has_tags: bool = False,
) -> float:
    """Return the importance by who wanted it kept and what its words are about.

    >>> heuristic_importance("I prefer tea", manually_saved=True), heuristic_importance("ok thanks")
    (0.8, 0.0)
    """
    score = 0.5 if manually_saved else 0.0
    if is_preference(text) or is_commitment_or_goal(text):
        score += 0.3
    if has_tags and metadata_confidence >= CONFIDENT_FROM:
        score += 0.2
    if is_chit_chat(text):
        score -= 0.1
    return max(0.0, round(score, 12))


def unified(*measures: float) -> float:
    """Return the highest of the measures, so that nothing one of them values is dropped.

    >>> unified(0.16, 0.3), unified(0.16, 0.3, 0.8)
    (0.3, 0.8)
    """
    return _clamp(max(measures))


def is_kept(importance: float, gate: float, *, on_purpose: bool = False) -> bool:
    """Return whether a chunk passes the gate; what a person saved or pinned always does.

    >>> is_kept(0.3, 0.3), is_kept(0.29, 0.3), is_kept(0.0, 0.3, on_purpose=True)
    (True, False, True)
    """
    return on_purpose or importance >= gate


def _clamp(value: float) -> float:
    return min(1.0, max(0.0, round(value, 12)))  # rounded, so that 0.1 + 0.2 is 0.3
