"""Detect names and topics in a text by how words are written and by short lists of words.

People, organizations, places and products stand out by their capitals, so this works for languages
that capitalize names and finds nothing in the others; German nouns look like names to it. The lists
are English and were written by hand for this project: they say whether a word is common, technical
or a given name, not how often it occurs.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from .clock import MONTHS, WEEKDAYS
from .normalize import remove_links
from .tokens import ENGLISH, word_set

MOST_TOPICS = 12
MOST_ENTITIES = 8
TECHNICAL_FROM = 0.25  # mean rarity of the words
_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


class Entity(NamedTuple):
    """A name or topic as it is written, and how sure the detector is."""

    text: str
    confidence: float  # 0 a guess … 1 certain


_NOTHING = Entity("", 0.0)


class _Form(NamedTuple):
    """A word, and what can be told without its neighbors."""

    text: str
    is_long: bool
    is_shouted: bool
    is_name_like: bool
    is_unnamed: bool  # no name, even with a capital
    is_everyday: bool
    is_possible: bool  # it can be a part of a name


class _Word(NamedTuple):
    form: _Form
    starts_sentence: bool
    joined: bool  # only a blank stands between this word and the one before

    @property
    def text(self) -> str:
        return self.form.text


COMMON = word_set("""
    a able about above across actually add after afternoon again against age ago agree air all allow
    almost alone along already alright also although always am amazing among amount an and angry
    animal another answer any anybody anymore anyone anything anyway anywhere apart apartment apple
    are area arm around arrive art as ask asleep at aunt autumn away awesome baby back bad bag ball
    bank bar bath be beach beautiful because become bed bedroom beer before begin behind believe
    below beside best better between big bike bill bird birthday bit black blood blue board boat
    body book bore born boss both bottle bottom box boy bread break breakfast bring brother brown
    build burn bus business busy but buy by bye cake call calm came can candy cap car card care
    careful carry case cat catch cause center chair chance change cheap check cheese chicken child
    children chocolate choose christmas church cinema city class clean clear climb clock close
    clothes cloud coat coffee cold color colour come comfortable common company complete completely
    concert congratulations continue conversation cook cool corner cost could count country couple
    course cousin cover crazy cream cross cry cup cut dad daily dance dark date daughter day dead
    deal dear decide deep definitely desk different difficult dinner dirty discuss do doctor does
    dog done door double doubt down draw dream dress drink drive drop dry during each ear early
    earth east easy eat egg eight either eleven else email empty end enjoy enough enter especially
    etc even evening event ever every everybody everyone everything everywhere exactly example
    excellent except excite exciting excuse exercise expect expensive explain extra eye face fact
    fair fall family famous fan far farm fast fat father favorite favourite fear feel feeling feet
    fell felt few field fifteen fifty fight figure fill film final finally find fine finger finish
    fire first fish fit five fix floor flower fly follow food foot football for forest forever
    forget form forty forward found four free fresh friday friend friendly from front fruit full fun
    funny future game garden gave general get gift girl give glad glass go gold gone good goodbye
    got grandfather grandma grandmother grandpa great green ground group grow guess guy had hair
    half hall hand hang happen happy hard hardly has hat hate have he head health healthy hear heart
    heavy hello help her here herself hey hi high hill him himself his history hit hold holiday home
    homework honest honestly hope horse hospital hot hotel hour house how however huge hundred
    hungry hurry hurt husband i ice idea if ill imagine important impossible in inside instead
    interest interesting into invite is island issue it its itself job join joke juice jump just
    keep key kid kill kind king kitchen knee know lady lake land language large last late lately
    later laugh law lay lazy lead learn least leave leg less lesson let letter library lie life
    light like likely line list listen little live living long look lose lot lots loud love lovely
    low luck lucky lunch machine mad main make man many map mark market marry matter may maybe me
    meal mean meat medicine meet member men mess message met middle might milk mind mine minute miss
    mistake mom moment monday money month mood moon more morning most mother mountain mouse mouth
    move movie mr mrs much mum music must my myself name nature near nearly neck need neighbor
    neighbour neither nephew nervous never new news next nice niece night nine no nobody noise none
    noon nor normal north nose not note nothing notice now number nurse of off offer office often oh
    okay old on once one only open opinion or orange order other our out outside over own page pain
    paint pair paper parent parents park part party pass past pay peace pen people perfect perhaps
    person pet phone photo pick picture piece pizza place plan plane plant play please pleasure
    plenty pocket point police polite poor popular possible post potato practice prefer prepare
    present pretty price probably problem project promise proud pull push put queen question quick
    quickly quiet quit quite race radio rain raise ran rather reach read ready real really reason
    receive red relax remember rent repeat report rest restaurant return rice rich ride right ring
    rise river road room round run sad safe said salad salt same sand sandwich saturday save saw say
    school sea season seat second secret see seem sell send sense serious serve set seven several
    shall shape share she shine ship shirt shoe shop short should shoulder shout show shower shut
    sick side sign silly simple since sing single sister sit six size skin sky sleep slow slowly
    small smart smell smile smoke snow so soft some somebody somehow someone something sometimes
    somewhere son song soon sorry sort sound soup south space speak special spend sport spot spring
    stand star start stay step still stomach stone stop store storm story straight strange street
    strong stuff stupid such sugar suit summer sun sunday sunny support suppose sure surprise sweet
    swim table take talk tall taste taxi tea teach teacher team tell ten terrible test than thank
    thanks that the their them themselves then there these they thin thing think third thirsty
    thirteen thirty this those though thousand three through throw thursday ticket tidy tie till
    time tiny tired to today together toilet tomorrow tonight too tooth top touch toward town toy
    train travel tree trip trouble true trust try tuesday turn twelve twenty twice two type ugly
    uncle under understand unfortunately until up upset us use used useful usual usually vacation
    vegetable very view village visit voice wait wake walk wall want war warm was wash watch water
    way we wear weather wednesday week weekend weird welcome well went were west wet what whatever
    when where whether which while white who whole whose why wife will win wind window wine winter
    wish with without woman women wonder wonderful wood word work world worry worse worst worth
    would wow write wrong yard yeah year yellow yep yes yesterday yet you young your yours yourself
    yummy zero zoo ok thx pls lol haha brother's didn doesn don isn wasn ain couldn wouldn shouldn
    hasn haven won ll ve re
    """)

TECHNICAL = word_set("""
    api async postgresql docker kubernetes vector embedding token schema algorithm ansible asyncio
    aws azure backend backoff backpropagation bash binary bytecode cache callback cdn ci cli codec
    commit compiler concurrency config container cron crud css csv daemon database datastore
    deadlock debug debugger deploy deployment dns dockerfile encryption endpoint enum eviction
    failover firewall firmware framework frontend gateway gcp gpu gradient grpc hash hashmap helm
    hostname html http https idempotent inference ingress jdbc json jvm jwt kafka kernel kubectl
    lambda latency linux localhost logging lru malloc middleware migration monorepo mutex mysql
    namespace ndarray nginx nosql numpy oauth onnx orm parser payload pipeline plugin pod postgres
    proxy python pytorch query queue rag rbac recursion redis refactor regex replica repo repository
    rest rollback router runtime rust schema sdk semaphore serverless shard sharding shell socket
    sql sqlite ssh ssl stacktrace stderr stdout subnet subprocess syntax tcp tensor terraform thread
    throughput tls tokenizer transformer typescript udp unicode uuid variable vm vpc webhook
    websocket workload xml yaml
    """)
TECHNICAL_WORDS = word_set("api async postgresql docker kubernetes vector embedding token schema")
GIVEN_NAMES = word_set(_TABLES["given_names"])

_LONGEST_WORD = 64  # longer ones are noise, and would make the patterns slow
_CODE_SHAPE = re.compile(
    r"\b(?:\w*[a-z][A-Z]\w*|[A-Z]{2,}[a-z]\w+|\w+_\w+|\w+\.[a-z]{1,5}\d?"
    r"|(?>\w*?[a-z])\w*?\d\w*|\w+(?:\+\+|#))"
)
_TECHNICAL_ENDING = re.compile(
    r"\b\w{3,}(?:potent|ential|ization|isation|ology|metric|ware|base|sync|izer|iser|ector|gorithm"
    r"|byte|script)s?"
)
_CODE_WORD = re.compile(r"[^\W_](?:[\w.-]*\w|\+\+|#)?(?:['’]\w+)?")
_ENDINGS = "ing est ers ies ied es ed er ly s".split()
_WORD = re.compile(r"(?<![\w.])@[^\W_]\w{0,60}|[^\W_][\w'’&+#-]{0,60}")
_PHRASE_WORD = re.compile(r"[^\W\d_][\w'’-]{0,60}|[^\s\w]|\n|\d+")
# Their full stop does not end a sentence.
_ABBREVIATED = word_set("Dr Mr Mrs Ms Prof St Mme Herr Sr Jr")
_POSSESSIVE = re.compile(r"['’]s?$|(?<![-&'’])[-&'’]+$")
_SENTENCE_START = re.compile(r"""[.!?…:;\n•*>|/"“„(\[][\s"“„'‘(\[*_#>-]{0,20}$""")
_HANDLE = re.compile(r"@\w{2,40}")
_HUMPS = re.compile(
    r"\b(?:[a-z]{1,12}[A-Z]\w+|[A-Z][a-z0-9]+[A-Z]\w*|[A-Z]{2,}[a-z]{2,}\w*|[A-Z]\w*-?\d\w*)"
)
_ACRONYM = re.compile(r"[A-Z][A-Z&]{1,5}s?")
_PARTICLES = word_set("of de del della di da du la le van von der den ter bin ibn al el y")
_NO_ACRONYM = word_set(
    "OK AM PM FYI LOL ASAP BTW IMO IMHO OMG BRB TBD TBH NB PS EG IE NO YES AND OR NOT"
)
_SPEAKERS = word_set("i i'm i've i'll i'd im user assistant system")
_UNNAMED = ENGLISH.union(MONTHS, WEEKDAYS)  # not names, even with a capital
# Words that are never a topic: parts of dates, words of chats, and forms of verbs.
_EMPTY = _UNNAMED | _SPEAKERS | word_set(_TABLES["empty"])
_VERBS = word_set(_TABLES["verbs"])


@lru_cache(maxsize=1 << 14)
def is_common(word: str) -> bool:
    """Return whether a lower-case word, or its base form, is an everyday word.

    >>> is_common("walking"), is_common("cats"), is_common("idempotent")
    (True, True, False)
    """
    if word in COMMON:
        return True
    bare = word.removesuffix("'s").replace("'", "")
    return not COMMON.isdisjoint(_base_forms(bare))


@lru_cache(maxsize=1 << 14)
def rarity(word: str) -> float:
    """Return how rare a word is: 0 if everyday, 1 if technical.

    >>> rarity("endpoints"), rarity("parseTree"), rarity("dinner")
    (1.0, 1.0, 0.0)
    """
    lower = word.lower()
    if len(word) > _LONGEST_WORD:
        return 0.2
    if _CODE_SHAPE.fullmatch(word):
        return 1.0
    if not TECHNICAL.isdisjoint(_base_forms(lower)):
        return 1.0
    if is_common(lower) or lower.isdecimal():
        return 0.0
    # Unknown words are names, from another language, or rarer.
    return 1.0 if _TECHNICAL_ENDING.fullmatch(lower) else 0.2


def is_technical(text: str) -> bool:
    """Return whether a text is technical, judged by how rare its words are on average.

    >>> is_technical("The gRPC gateway retries idempotent PUTs"), is_technical("We had dinner")
    (True, False)
    """
    found = _CODE_WORD.findall(remove_links(text))
    lower = list(map(str.lower, found))
    if not TECHNICAL_WORDS.isdisjoint(lower):
        return True
    rarities = [rarity(word) for word, low in zip(found, lower, strict=True) if low not in ENGLISH]
    return bool(rarities) and sum(rarities) / len(rarities) >= TECHNICAL_FROM


def _base_forms(word: str) -> list[str]:
    """Return a word and its possible forms without an ending."""
    found = [word]
    for ending in _ENDINGS:
        stem = word.removesuffix(ending)
        if stem != word and len(stem) > 2:
            found += (stem, f"{stem}e", f"{stem}y")
            if stem[-1] == stem[-2]:
                found.append(stem[:-1])
    return found


def entities(text: str) -> list[Entity]:
    """List the names in a text, each once, in the order of their first mention.

    >>> text = "Yesterday Anna Weber from ACME showed us GitHub in Lisbon. Nice!"
    >>> [entity.text for entity in entities(text)]
    ['Anna Weber', 'ACME', 'GitHub', 'Lisbon']
    """
    words = _find_words(remove_links(text))
    known = set()  # names inside a sentence, where a capital means something
    for form, starts_sentence, _ in words:
        if starts_sentence or form.is_unnamed or not form.is_name_like:
            continue
        if not form.is_everyday:
            known.add(form.text)
    best: dict[str, Entity] = {}
    for name in _names(words):
        confidence = _confidence(name, known)
        found = Entity(" ".join(word.text for word in name), confidence)
        key = found.text.casefold()
        if confidence > best.get(key, _NOTHING).confidence:
            best[key] = found
    return list(best.values())


def _find_words(text: str) -> list[_Word]:
    """Return the words that can be a part of a name, and note which begin a sentence."""
    found: list[_Word] = []
    end = 0
    longer = 0
    shouted = 0
    before: _Form | None = None
    for match in _WORD.finditer(text):
        form = _read_form(match[0])
        longer += form.is_long
        shouted += form.is_shouted
        if form.is_possible:
            start = match.start()
            gap = text[max(end, start - 24) : start]
            if gap == ". " and before is not None and before.text in _ABBREVIATED:
                gap = " "
            is_next = gap == " "
            is_first = before is None or (not is_next and bool(_SENTENCE_START.search(gap)))
            is_joined = is_next and before is not None and before.is_possible
            found.append(_Word(form, is_first, is_joined))
        before = form
        end = match.end()
    if longer > 2 and shouted > 0.6 * longer:  # capitals mean nothing here
        return [word for word in found if word.text.startswith("@")]
    return found


@lru_cache(maxsize=1 << 14)
def _read_form(found: str) -> _Form:
    text = found if found.isalnum() else _POSSESSIVE.sub("", found)
    is_long = len(text) > 1
    is_name_like = _is_name_like(text)
    return _Form(
        text=text,
        is_long=is_long,
        is_shouted=is_long and text.isupper(),
        is_name_like=is_name_like,
        is_unnamed=text.lower() in _UNNAMED,
        is_everyday=_is_everyday(text),
        is_possible=is_name_like or text in _PARTICLES or text.startswith("@"),
    )


def _is_name_like(text: str) -> bool:
    if text.lower() in _SPEAKERS:
        return False
    return text[0].isupper() or bool(_HUMPS.fullmatch(text))


def _is_everyday(text: str) -> bool:
    return text[1:].islower() and is_common(text.lower())


def _names(words: list[_Word]) -> Iterator[list[_Word]]:
    """Yield runs of neighboring words that may form one name; "of" only inside a run.

    A run is split where a word has its capital only by its place in the sentence or the calendar.
    """
    run: list[_Word] = []
    runs = [run]
    followers: list[_Word | None] = [*words[1:], None]
    for word, following in zip(words, followers, strict=False):
        form = word.form
        continues = form.is_name_like and not word.starts_sentence
        is_plain = form.is_unnamed
        if word.starts_sentence:
            is_plain |= form.is_everyday
        if form.text in _PARTICLES:
            is_plain = False
            if following is not None and following.joined:
                continues |= following.form.is_name_like
        is_inside = bool(run) and word.joined and continues
        if is_plain or not is_inside:
            run = []
            runs.append(run)
        if not is_plain and (is_inside or form.is_name_like or form.text.startswith("@")):
            run.append(word)
    for name in runs:
        while name and name[-1].text in _PARTICLES:
            name.pop()
        if name:
            yield name


def _confidence(words: list[_Word], known: set[str]) -> float:
    """Return how sure it is that words are a name; 0 if they are not."""
    first = words[0].text
    if all(word.form.is_everyday for word in words):
        return 0.6 if len(words) > 1 else 0.0  # "Red Cross", but not the emphasis in "so Good"
    if len(words) > 1 or _HANDLE.fullmatch(first):
        return 0.9
    if _ACRONYM.fullmatch(first):
        return 0.0 if first in _NO_ACRONYM else 0.7
    if _HUMPS.fullmatch(first):
        return 0.8
    given_name, *_ = first.lower().split("-")
    if given_name in GIVEN_NAMES:
        return 0.9
    is_unsure = len(first) < 2 or (words[0].starts_sentence and first not in known)
    return 0.0 if is_unsure else 0.8


def keyphrases(text: str) -> list[Entity]:
    """List what a text is about: runs of at most three uncommon words, the most telling first.

    >>> text = "Our gateway logs failed payments. Failed payments are retried."
    >>> [phrase.text for phrase in keyphrases(text)]
    ['gateway logs failed', 'failed payments', 'payments', 'retried']
    >>> [phrase.text for phrase in keyphrases("btw kept the parrot till feb, incl. the cage")]
    ['parrot', 'cage']
    """
    counts: Counter[str] = Counter()
    run: list[str] = []
    lower = remove_links(text).lower()
    for topic in map(_to_topic, (*_PHRASE_WORD.findall(lower), ".")):
        if topic:
            run.append(topic)
        elif run:
            for start in range(0, len(run), 3):
                phrase = " ".join(run[start : start + 3])
                counts[phrase] += 1
            run = []
    found = []
    for phrase, count in counts.items():
        length = phrase.count(" ")
        confidence = 0.4 + 0.15 * length + 0.2 * (count > 1)
        found.append(Entity(phrase, min(0.9, confidence)))
    return sorted(found, key=lambda each: -each.confidence)


@lru_cache(maxsize=1 << 14)
def _to_topic(token: str) -> str:
    """Return a token as a word of a topic; empty if it cannot be one."""
    word = token if token.isalnum() else _POSSESSIVE.sub("", token)
    is_empty = len(word) <= 2 or word in _EMPTY or is_common(word)
    return word if not is_empty and _VERBS.isdisjoint(_base_forms(word)) else ""


def about(text: str, names: Iterable[Entity]) -> list[Entity]:
    """List the names and the topics of a text, the surest first in each.

    `names` are what `entities` found in it.

    >>> text = "Anna moved to Lisbon for the observatory"
    >>> [one.text for one in about(text, entities(text))]
    ['Anna', 'Lisbon', 'observatory']
    """
    found = sorted(names, key=lambda each: -each.confidence)[:MOST_ENTITIES]
    taken: set[str] = set()
    for name in found:
        taken.update(name.text.casefold().split())
    most = len(found) + MOST_TOPICS
    for phrase in keyphrases(text):
        if not taken.issuperset(phrase.text.casefold().split()):
            found.append(phrase)
    return found[:most]


def tags(found: Iterable[Entity]) -> tuple[tuple[str, ...], float]:
    """Return what detectors found as lower-case tags, and the mean confidence in them.

    The mean is from 0 to 1; 0 if nothing was found.

    >>> tags(entities("Anna moved to Lisbon"))
    (('anna', 'lisbon'), 0.85)
    """
    listed = list(found)
    if not listed:
        return (), 0.0
    mean = sum(confidence for _, confidence in listed) / len(listed)
    bounded = min(1.0, max(0.0, round(mean, 9)))
    return tuple(dict.fromkeys(text.casefold() for text, _ in listed)), bounded
