"""Surface features of what was said: whose words they are, their language, how much of it asks, what
kinds of content it has, and cues that something changed.

Only the user's own words become a preference, an instruction or a field of the profile. Whose they
are rests on who spoke, as reported by the application, and never on what was said: a text can be
made to fit any rule.

Flags are stored with each memory, so that ranking does not have to read texts. Cues of a change say
that something ended, became another one, applies from now on or was wrong; or that nothing changed,
since it is one more, was so once, is hypothetical or was said before. All rules take time linear in
the text; the phrases, in `changes.toml` for all languages together, are looked up word by word.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from unicodedata import normalize
from zlib import crc32

from ..types import Memory
from . import clock
from .compare import RELATIVES
from .statements import CLAUSE_END, Clause, parse_clause
from .tokens import analyze_spoken, detect_language, load_patterns, word_set, words
from .values import Values, read_values

ROLE_WORDS = frozenset("user human assistant ai system developer tool function".split())
A_NAME = " (a name)"  # follows a name that could be taken for a role
FLAGS = tuple(1 << bit for bit in range(14))
(
    HAS_NUMBER,
    HAS_TIME,
    FROM_USER,
    FROM_ASSISTANT,
    ENDS_ASKING,
    IS_SUMMARY,
    IS_EXTRACTED,
    HAS_REASON,
    HAS_PLACE,
    IS_FOREIGN,  # not in English
    ONLY_ASKS,  # a short question and nothing else
    HAS_RULE,  # what always or never applies
    HAS_DECISION,
    IS_BRIEF,
) = FLAGS
ASKING = 14  # the three bits from here on hold how much of the text asks
MOST_ASKING = 7
MESSAGE = 17  # the bits from here on are the same in all chunks of one message; 0 if unknown
_MESSAGES = 2**14 - 1
CHATTER = word_set("""
    hi hello hey hiya yo sup morning evening afternoon night good bye goodbye cya later see you
    soon thanks thank thx ty much very so many ok okay k kk yes yeah yep yup no nope nah sure
    right cool nice great awesome perfect lol lmao haha hahaha hehe rofl wow oh ah hm hmm hmmm
    uh um well brb afk gtg sorry please welcome np problem how are doing what's up is it going
    fine and too that's i'm you're one sec second moment wait a the there all alright got it
    understood agreed true hallo danke bitte tschüss hola gracias adiós merci bonjour salut ciao
    grazie olá obrigado obrigada спасибо привет
    """)
MOST_CHATTER = 8  # words
LONGEST_CHATTER = 200  # characters
UNSPACED_CHATTER = word_set("你好 谢谢 好的 再见 ありがとう こんにちは 안녕 감사합니다")
KINDS = {
    "number": HAS_NUMBER,
    "reason": HAS_REASON,
    "place": HAS_PLACE,
    "time": HAS_TIME,
    "rule": HAS_RULE,
    "decision": HAS_DECISION,
}
FEW = 4  # words: "Wow, that's cool, Caroline!" before a question says nothing
BRIEF = 5  # words: "Printed. In large letters." seldom tells anything
UNSPACED_BRIEF = 10  # characters of a text without spaces
SHORT = 15  # words of a question that tells nothing on the side
_OWN_ROLES = ("user", "human")
_NAME_PART = re.compile(r"[^\W_]+")
_MOST_READ = 4000  # characters
_MOST_CHECKED = 600  # characters that tell the language
_TABLES = load_patterns(__file__)
_OPENING = re.compile(_TABLES["asking"]["opening"])
TELLS = {KINDS[name]: re.compile(kind["tells"]) for name, kind in _TABLES["kinds"].items()}
_SENTENCE = re.compile(r"[^.!?\n。！？…؟\u037e]*+[.!?\n。！？…؟\u037e]*+")
_OF_SPEAKER = re.compile(r"(?i)(?:i|i['’]?m|i['’]?ve|we|we['’]re|my|our)\b")
_COMMA = re.compile(r"[,;:]\s+|\s[-–—]\s")
_ASKING_MARKS = ("?", "？", "؟", "\u037e")
# A smiley or a quotation mark may follow the question mark.
_LAST_MARK = re.compile(r"[?？؟\u037e][^\w.!…]*$")
_SPOKEN = re.compile(r"\w+")
TURNING = frozenset("ended moved corrected kept".split())
CHANGING = frozenset("ended moved new now corrected".split())
_MOST_CUES = 1000  # characters; what changed is said at once, or in a text of its own
_SOMETIMES = re.compile(r"\bnow and (?:then|again)\b")  # no cue of a change
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_OPENING_PERSON = re.compile(r"(?i)(?:i|we)\b")
_OMITTED = re.compile(r"(?i)^(?=(?:live|work)\b)")
_MOST_CLAUSES = 5  # of a text that are compared by rules
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_OWNING = word_set("its their her his")
_REFERRING = word_set("it its they them their she her he him his ours theirs")


def speaker_of(role: str | None, name: str | None) -> str | None:
    """Return whom to store as the speaker of a message: the given name, or else the role.

    A stored speaker that equals the role means that no name was given, so a name spelled like the
    role is marked.

    >>> speaker_of("user", None), speaker_of("user", "Bo"), speaker_of("user", "user")
    ('user', 'Bo', 'user (a name)')
    """
    if not name:
        return role
    return f"{name}{A_NAME}" if name == role else name


def is_own(role: str | None, speaker: str | None, user: str) -> bool:
    """Return whether the user said it: in the user's role, and under no name but that of the scope.

    A name that equals a role word never counts as the user: anyone can choose a display name.

    >>> is_own("user", "user", "ana"), is_own("user", "Ana", "ana"), is_own("user", "Bo", "ana")
    (True, True, False)
    >>> is_own("user", "User", "ana"), is_own("user", "Human", "ana")
    (False, False)
    """
    if not is_own_role(role):
        return False
    if speaker is None or speaker == role:
        return True
    name = _fold_name(speaker)
    return name == _fold_name(user) and name not in ROLE_WORDS


def is_user(speaker: str, user: str) -> bool:
    """Return whether a stored speaker is the user: by the role, or by the name of the scope.

    >>> is_user("user", "ana"), is_user("Ana", "ana"), is_user("Bo", "ana")
    (True, True, False)
    """
    return speaker in _OWN_ROLES or is_own("user", speaker, user)


def poses(name: str) -> bool:
    """Return whether a name could be mistaken for a role.

    >>> poses("The User"), poses("Ursula")
    (True, False)
    """
    plain = normalize("NFKC", name).casefold()
    return not ROLE_WORDS.isdisjoint(_NAME_PART.findall(plain))


def is_own_role(role: str | None) -> bool:
    """Return whether a role is the user's; a missing role counts as such."""
    return role is None or _fold_name(role) in _OWN_ROLES


def is_persons(memory: Memory) -> bool:
    """Return whether a memory has the user's own words."""
    return is_own(memory.labels.role, memory.speaker, memory.scope.user)


def _fold_name(name: str) -> str:
    return " ".join(name.split()).casefold()


def flags_of(memory: Memory, spoken: list[str] | None = None) -> int:
    """Return the flags for ranking: speaker, language, kinds of content, and how much asks."""
    text = memory.text[:_MOST_READ]
    voice = memory.labels.role or memory.speaker
    claims: dict[int, object] = {
        IS_FOREIGN: not is_english(text, spoken),
        HAS_TIME: clock.has_time(memory.text),
        ENDS_ASKING: ends_asking(memory.text),
        FROM_USER: voice == "user",
        FROM_ASSISTANT: voice == "assistant",
        IS_SUMMARY: memory.compression_source,
        IS_EXTRACTED: memory.evidence_text and memory.evidence_ids,
        IS_BRIEF: is_brief(text),
    }
    for flag, pattern in TELLS.items():
        claims[flag] = claims.get(flag) or pattern.search(text)
    flags = sum(flag for flag, holds in claims.items() if holds)
    share = asking_share(text)
    if voice == "assistant" and share < 1:
        share = 0.0  # it mostly ends with an offer
    flags |= round(share * MOST_ASKING) << ASKING
    if share == 1 and len(_SPOKEN.findall(text)) <= SHORT:
        flags |= ONLY_ASKS
    if memory.source_message_id:
        number = crc32(memory.source_message_id.encode("utf-8", "surrogatepass"))
        flags |= (1 + number % _MESSAGES) << MESSAGE
    return flags


def is_brief(text: str) -> bool:
    """Return whether a text has only a few words.

    >>> is_brief("lol good one"), is_brief("We met in Rome last year."), is_brief("好的，谢谢！")
    (True, False, True)
    """
    if len(_SPOKEN.findall(text)) > BRIEF:
        return False
    return len(text) <= UNSPACED_BRIEF or " " in text


def is_english(text: str, spoken: list[str] | None = None) -> bool:
    """Return whether a text is in English; short texts without a sign of another language are.

    `spoken` are its words, if they are known.

    >>> is_english("Rubber duck"), is_english("Mein Hund heißt Bello"), is_english("我喜欢茶")
    (True, False, False)
    """
    if spoken is None or len(text) > _MOST_CHECKED:
        spoken = words(text[:_MOST_CHECKED])
    return detect_language(spoken) == "english"


def asking_share(text: str) -> float:
    """Return the share of the words that are in sentences which ask or request something.

    A few words before or after a question do not count.

    >>> asking_share("Wow, that's great! What happened next?")
    1.0
    >>> asking_share("I moved to Rome last year. And you?")
    0.25
    >>> asking_share("I moved to Rome last year, what now?")
    0.25
    """
    asking = 0
    telling = 0
    for sentence in _SENTENCE.findall(text[:_MOST_READ]):
        count = len(_SPOKEN.findall(sentence))
        if sentence.rstrip().endswith(_ASKING_MARKS) or _OPENING.match(sentence.lstrip()):
            stated = len(_SPOKEN.findall(_find_stated(sentence)))
            telling += stated
            asking += count - stated
        else:
            telling += count
    if telling <= FEW and asking:
        return 1.0
    return asking / max(asking + telling, 1)


def _find_stated(sentence: str) -> str:
    """Return what a sentence says of the speaker before it asks.

    >>> _find_stated("I'm allergic to dust, does that matter?"), _find_stated("Would I fly, or walk?")
    ("I'm allergic to dust", '')
    """
    if _OF_SPEAKER.match(sentence.lstrip()):
        for comma in _COMMA.finditer(sentence):
            if _OPENING.match(sentence, comma.end()):
                return sentence[: comma.start()]
    return ""


def ends_asking(text: str) -> bool:
    """Return whether a turn ends in a question, so that the next one is likely to answer it.

    >>> ends_asking("I moved to Rome. And you? 🙂"), ends_asking("Really? I did not know.")
    (True, False)
    """
    return _LAST_MARK.search(text[-80:]) is not None


@cache
def _load() -> tuple[dict[str, list[tuple[list[str], str]]], dict[str, str], list[dict[str, str]]]:
    """Return phrases with their cues by the first word, cues by stem, and patterns by cue."""
    tables = tomllib.loads(Path(__file__).with_name("changes.toml").read_text("utf-8"))
    by_first: dict[str, list[tuple[list[str], str]]] = {}
    stems: dict[str, str] = {}
    for cue, listed in tables["phrases"].items():
        for phrase in listed.split("|"):
            first, *rest = phrase.split()
            if first.endswith("*"):
                stems[first[:-1]] = cue
            else:
                by_first.setdefault(first, []).append((rest, cue))
    return by_first, stems, [tables["apart"], tables["unspaced"]]


def read_cues(text: str) -> frozenset[str]:
    """Return the cues of a text.

    >>> sorted(read_cues("We moved to Porto, so the stand-up is at ten now"))
    ['moved', 'now']
    >>> sorted(read_cues("Ab sofort nicht mehr montags")), sorted(read_cues("I like tea"))
    (['ended', 'now'], [])
    """
    by_first, stems, tables = _load()
    found: set[str] = set()
    read = _SOMETIMES.sub(" ", text[:_MOST_CUES].lower().replace("’", "'"))
    spoken = _WORD.findall(read)
    beginnings = tuple(stems)
    for i, word in enumerate(spoken):
        for rest, cue in by_first.get(word, ()):
            if cue not in found and spoken[i + 1 : i + 1 + len(rest)] == rest:
                found.add(cue)
        if word.startswith(beginnings):
            found.update(cue for stem, cue in stems.items() if word.startswith(stem))
    for patterns in tables if _UNSPACED.search(read) else tables[:1]:
        found.update(cue for cue, pattern in patterns.items() if re.search(pattern, read))
    return frozenset(found)


@dataclass(frozen=True)
class ComparedText:
    """What is compared of a text. Each part is read on first use."""

    text: str

    @cached_property
    def cues(self) -> frozenset[str]:
        return read_cues(self.text)

    @cached_property
    def spoken(self) -> list[str]:
        return _SPOKEN.findall(self.text.lower())

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(self.spoken)

    @cached_property
    def topics(self) -> frozenset[str]:
        """Stems of its content words, without numbers."""
        return frozenset(stem for stem in analyze_spoken(self.text) if not stem[0].isdigit())

    @cached_property
    def refers_back(self) -> bool:
        """Whether a pronoun may stand for something that was said before.

        After the first clause, "it" and "her name" mostly are of what the text itself has named.
        """
        later = _REFERRING - _OWNING
        if TURNING.isdisjoint(self.cues):
            later -= {"it"}
        return self.opens_referring or not later.isdisjoint(self.spoken)

    @cached_property
    def opens_referring(self) -> bool:
        """Whether its first clause has a pronoun, before anything else is named."""
        return not _REFERRING.isdisjoint(_SPOKEN.findall(self.parts[0].lower()))

    @cached_property
    def values(self) -> Values:
        return read_values(self.text)

    @cached_property
    def numbers(self) -> frozenset[object]:
        """Numbers, times and days."""
        values = self.values
        days = {f"day {day}" for day in values.weekdays}
        return frozenset((*values.numbers, *values.times, *values.dates, *days))

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(map(str.lower, self.values.names))

    @cached_property
    def relatives(self) -> frozenset[str]:
        return RELATIVES.intersection(self.spoken)

    @cached_property
    def is_english(self) -> bool:
        """In other languages, a capital need not mean a name."""
        return is_english(self.text)

    @cached_property
    def length(self) -> int:
        """In words."""
        return len(self.spoken)

    @cached_property
    def asks(self) -> float:
        return asking_share(self.text)

    @cached_property
    def parts(self) -> list[str]:
        """The texts of its first clauses."""
        return CLAUSE_END.split(self.text)[:_MOST_CLAUSES]

    @cached_property
    def clauses(self) -> list[Clause]:
        """Its first clauses, each with a subject: "I cook and live in Bonn" says "I live in Bonn"."""
        parts = self.parts
        if opening := _OPENING_PERSON.match(self.text):
            parts = [_OMITTED.sub(f"{opening[0]} ", part) for part in parts]
        return list(filter(None, map(parse_clause, parts)))


# Cleared after each write: a text that is kept here could not be forgotten.
read = lru_cache(maxsize=1 << 10)(ComparedText)
