"""Which kind of memory a text becomes, and which of Milton's seven types it is.

Rules over the words of a text, in the order that the specification gives; a hint or a type named by the caller always
wins. `request` and `result` are known only to the caller.
"""

import re
from collections.abc import Iterable

from memorist.errors import InvalidInput
from memorist.text.normalize import one_line
from memorist.text.tokens import words
from memorist.text.wordlists import word_set

KINDS = ("episodic", "semantic", "procedural", "working", "insight")
ITEM_TYPES = ("fact", "preference", "project", "decision", "crumb", "request", "result")
PREFERENCE_SIGNALS = ("I prefer", "I always", "I hate", "my favorite", "my favourite")
WORKING_SIGNALS = ("now", "right now", "currently", "this session", "today")

_KIND_OF = {
    "preference": "procedural",
    "procedural": "procedural",
    "fact": "semantic",
    "profile": "semantic",
    "relationship": "semantic",
    "project": "semantic",
    "lore": "semantic",
    "goals": "semantic",
    "decision": "episodic",
    "request": "episodic",
    "result": "episodic",
    "crumb": "episodic",
    "event": "episodic",
    "activity": "episodic",
}
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
    r"|\b(?:I|we)(?:['’]m| am|['’]re| are) (?:not |really |a big )?(?:a fan of|fan of|fond of|keen on|into)\b"
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
    r"\b(?:projects?|milestones?|roadmap|sprint|backlog|blockers?|blocked (?:by|on)|next steps?|deadline|release|launch"
    r"|prototype|mvp|deliverables?)\b|\b(?:goal|aim|objective) (?:is|of|for)\b"
    r"|\b(?:I|we|user)(?:['’]m|['’]re| am| are| is) (?:building|working on|developing|migrating|designing|shipping)\b",
    re.IGNORECASE,
)
_COMMITMENT = re.compile(
    r"\b(?:I|we)(?:['’]ll| will| shall) (?!see\b|be right back|brb|talk to you|think about)\w+"
    r"|\b(?:I|we) (?:commit(?:ted)?|plan(?:ned)?|intend(?:ed)?|aim|hope|want|need|have|agreed) to\b"
    r"|\b(?:I|we) (?:promised?|swear|vow(?:ed)?)\b"
    r"|\b(?:I|we)(?:['’]m| am|['’]re| are) (?:going to|planning to|trying to|training for)\b"
    r"|\b(?:my|our) (?:goals?|aims?|plans?|objectives?|resolutions?|dream|target|deadline)\b|\bremind (?:me|us)\b"
    r"|\bI(?:['’]d| would) like to\b|\bdeadline\b",
    re.IGNORECASE,
)
_VERB = (
    r"(?:am|is|are|has|have|works?|uses?|lives?|owns?|speaks?|stud(?:y|ies)|plays?|drives?|likes?|loves?|prefers?"
    r"|knows?|needs?|wants?|manages?|leads?|runs?|teach(?:es)?|means?|contains?|supports?|requires?|belongs?"
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
    hi hello hey hiya yo sup morning evening afternoon night good bye goodbye cya later see you soon thanks thank
    thx ty much very so many ok okay k kk yes yeah yep yup no nope nah sure right cool nice great awesome perfect
    lol lmao haha hahaha hehe rofl wow oh ah hm hmm hmmm uh um well brb afk gtg sorry please welcome np problem how
    are doing what's up is it going fine and too that's i'm you're one sec second moment wait a the there all
    alright got it understood agreed true hallo danke bitte tschüss hola gracias adiós merci bonjour salut ciao
    grazie olá obrigado obrigada спасибо привет
    """)
_MOST_CHATTER = 8  # words
_LONGEST_CHATTER = 200  # characters
_UNSPACED_CHATTER = word_set("你好 谢谢 好的 再见 ありがとう こんにちは 안녕 감사합니다")


def preference_signal(text: str, extra: Iterable[str] = ()) -> bool:
    """Does the text say outright what somebody prefers? Phrases of your own can be added.

    >>> preference_signal("Well, i prefer tea"), preference_signal("Tea!"), preference_signal("Tea!", extra=["tea"])
    (True, False, True)
    """
    own = tuple(extra)
    return bool(_PREFERENCE.search(text)) or (bool(own) and bool(_phrases(own).search(text)))


def is_preference(text: str) -> bool:
    """Does somebody like, dislike or prefer something, in whatever words?

    >>> is_preference("We can't stand loud music"), is_preference("It rained")
    (True, False)
    """
    return bool(_LIKING.search(one_line(text))) or preference_signal(text)


def is_commitment_or_goal(text: str) -> bool:
    """Does somebody commit to something, plan it or strive for it?

    >>> is_commitment_or_goal("My goal is a marathon"), is_commitment_or_goal("It rained")
    (True, False)
    """
    return bool(_COMMITMENT.search(one_line(text)))


def is_chit_chat(text: str) -> bool:
    """Is this a greeting, thanks, a filler or an emoji, with nothing in it to remember?

    >>> is_chit_chat("haha ok, thanks!"), is_chit_chat("👍"), is_chit_chat("Thanks, my flight is at 9")
    (True, True, False)
    """
    line = one_line(text)
    if line.strip(" !.。！~") in _UNSPACED_CHATTER:
        return True
    said = words(line[:_LONGEST_CHATTER])
    return (
        len(line) <= _LONGEST_CHATTER
        and len(said) <= _MOST_CHATTER
        and all(word in _CHATTER for word in said)
    )


def is_fact(text: str) -> bool:
    """Can a subject, a predicate and an object be read out of the text?

    >>> is_fact("User is a backend engineer"), is_fact("My sister lives in Oslo"), is_fact("We went home")
    (True, True, False)
    """
    line = one_line(text)
    return bool(_FACT.search(line)) and not _QUESTION.search(line)


def kind(text: str, hint: str | None = None, extra: Iterable[str] = ()) -> str:
    """Return the kind of a memory: the hint, else procedural, working, semantic or episodic, first rule first.

    >>> kind("I prefer tea"), kind("I am on a train now"), kind("Anna is a doctor"), kind("We went home")
    ('procedural', 'working', 'semantic', 'episodic')
    """
    if hint is not None:
        return _known(hint, KINDS, "kind")
    if preference_signal(text, extra):
        return "procedural"
    if _WORKING.search(text):
        return "working"
    return "semantic" if is_fact(text) else "episodic"


def item_type(text: str, given: str | None = None) -> str:
    """Return which of Milton's seven types a text is; what the caller names is kept.

    >>> item_type("I love rye bread"), item_type("We decided to use Go"), item_type("The sky is blue"), item_type("hm")
    ('preference', 'decision', 'fact', 'crumb')
    >>> item_type("Turn on the lights", given="request")
    'request'
    """
    if given is not None:
        return _known(given, ITEM_TYPES, "item type")
    line = one_line(text)
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
    return item_type or _CATEGORY_OF[_known(kind, KINDS, "kind")]


def kind_of(category: str) -> str:
    """Return the kind that memories of a type or category usually are.

    >>> kind_of("preference"), kind_of("relationship"), kind_of("crumb"), kind_of("something else")
    ('procedural', 'semantic', 'episodic', 'episodic')
    """
    return _KIND_OF.get(category.lower(), "episodic")


def _known(value: str, choices: tuple[str, ...], what: str) -> str:
    if value not in choices:
        raise InvalidInput(f"{value!r} is no {what}; choose one of {', '.join(choices)}")
    return value
