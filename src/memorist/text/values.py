"""The value guard: two texts that look alike are the same only if what they state agrees.

A fingerprint barely moves when a meeting moves from Tuesday at ten to Friday at four. So numbers, times, dates,
weekdays, months, negations, likes and names are read out of both texts and compared. Where it is in doubt the guard
says that the texts differ: a second memory can be merged later, a lost value cannot be found again.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from memorist.text.common_words import GIVEN_NAMES, word_set
from memorist.text.normalize import (
    AUTHOR_YEAR,
    composed,
    links,
    without_links,
    without_numbered_citations,
)
from memorist.text.stopwords import ENGLISH


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What a text states, in the order in which it is said."""

    numbers: tuple[str, ...] = ()
    units: tuple[str, ...] = ()  # currencies and percent
    times: tuple[int, ...] = ()  # minutes after midnight
    dates: tuple[str, ...] = ()  # written in figures, without leading zeros
    weekdays: tuple[int, ...] = ()  # 0 Monday … 6 Sunday
    months: tuple[int, ...] = ()  # 1 January … 12 December
    days: tuple[str, ...] = ()  # today, tomorrow, morning …
    negations: tuple[str, ...] = ()  # the word that each negation is about
    leanings: tuple[str, ...] = ()  # like or dislike, before or after …
    names: tuple[str, ...] = ()  # words that look like names
    references: tuple[str, ...] = ()  # links and author–year citations


def _numbered(groups: str, first: int = 0) -> dict[str, int]:
    """Number the slash-separated groups of words: every word of a group means the same."""
    return {
        word: n for n, group in enumerate(groups.split("/"), start=first) for word in group.split()
    }


_WEEKDAYS = _numbered(
    "monday mondays mon montag lundi lunes lunedì segunda-feira maandag/tuesday tuesdays tue tues dienstag mardi martes"
    " martedì terça-feira dinsdag/wednesday wednesdays wed mittwoch mercredi miércoles mercoledì quarta-feira woensdag"
    "/thursday thursdays thu thur thurs donnerstag jeudi jueves giovedì quinta-feira donderdag/friday fridays fri"
    " freitag vendredi viernes venerdì sexta-feira vrijdag/saturday saturdays sat samstag sonnabend samedi sábado"
    " sabato zaterdag/sunday sundays sun sonntag dimanche domingo domenica zondag"
)
_MONTHS = _numbered(
    "january jan januar janvier enero gennaio janeiro/february feb februar février febrero febbraio fevereiro/march mar"
    " märz mars marzo março maart/april apr avril abril aprile/may mai mayo maggio maio/june jun juni juin junio giugno"
    " junho/july jul juli juillet julio luglio julho/august aug août agosto/september sep sept septembre septiembre"
    " settembre setembro/october oct oktober octobre octubre ottobre outubro/november nov novembre noviembre novembro"
    "/december dec dezember décembre diciembre dicembre dezembro",
    first=1,
)
_DAYS = word_set(
    "today tomorrow yesterday tonight morning afternoon evening night heute morgen gestern demain hier aujourdhui hoy"
    " mañana ayer oggi domani ieri hoje amanhã ontem next last previous daily weekly monthly yearly mornings afternoons"
    " evenings nights"
)
_SMALL = _numbered(
    "zero null/one once first/two twice second zwei deux dos dois/three thrice third drei trois tres três tre"
    "/four fourth vier quatre cuatro quattro quatro/five fifth fünf cinq cinco cinque/six sixth sechs seis/seven"
    " seventh sieben sept siete sette sete/eight eighth acht huit ocho otto oito/nine ninth neun neuf nueve nove"
    "/ten tenth zehn dix diez dieci dez/eleven eleventh elf onze undici/twelve twelfth zwölf douze doce dodici doze"
    "/thirteen thirteenth/fourteen fourteenth/fifteen fifteenth/sixteen sixteenth/seventeen seventeenth"
    "/eighteen eighteenth/nineteen nineteenth"
)
_TENS = {
    word: 10 * n
    for word, n in _numbered(
        "twenty/thirty/forty fourty/fifty/sixty/seventy/eighty/ninety", first=2
    ).items()
}
_SCALES = {
    "hundred": 100,
    "thousand": 1_000,
    "million": 1_000_000,
    "billion": 1_000_000_000,
    "dozen": 12,
}
_NUMBER_WORDS = _SMALL.keys() - _MONTHS.keys() | _TENS.keys() | _SCALES.keys()
_UNITS = {
    "$": "dollar",
    "dollar": "dollar",
    "dollars": "dollar",
    "usd": "dollar",
    "€": "euro",
    "euro": "euro",
    "euros": "euro",
    "eur": "euro",
    "£": "pound",
    "pound": "pound",
    "pounds": "pound",
    "gbp": "pound",
    "¥": "yen",
    "yen": "yen",
    "%": "percent",
    "percent": "percent",
    "half": "half",
    "quarter": "quarter",
    "double": "double",
    "triple": "triple",
}
_NEGATIONS = word_set("""
    not no never none nobody nothing neither nor nowhere without cannot dont doesnt didnt cant couldnt wont wouldnt
    shouldnt isnt arent wasnt werent hasnt havent hadnt aint mustnt neednt mightnt shant stopped quit hardly
    formerly nicht kein keine keinen keiner keinem keines nie niemals nichts niemand ohne ne pas jamais rien aucun
    aucune sans nunca jamás nada nadie sin tampoco ningún ninguna ninguno non niente nulla nessuno senza não ninguém
    sem nenhum niet geen nooit zonder inte ikke aldrig aldri ingen не нет никогда без ни nie nigdy bez değil yok
    asla لا ليس لم لن नहीं मत
    """)
_UNSAID = re.compile(r"[不没沒無无别別未非]|ない|ません|なかった|않|못|없")
_PASSED_OVER = ENGLISH - _NEGATIONS | word_set(
    "really even ever longer anymore quite always particularly"
)
_LEANINGS = {
    word: leaning
    for leaning, words in {
        "+": "like likes liked love loves loved enjoy enjoys enjoyed adore adores",
        "-": "hate hates hated dislike dislikes disliked loathe loathes detest detests despise",
        "before": "before until",
        "after": "after since",
        "more": "more increase increased raise raised higher",
        "less": "less fewer decrease decreased lower lowered",
        "on": "enable enabled allow allowed accept accepted",
        "off": "disable disabled forbid forbidden deny denied reject rejected",
        "always": "always",
        "some": "sometimes",
        "left": "left leave leaves",
        "joined": "joined join joins",
        "sell": "sell sold",
        "buy": "buy bought purchase purchased",
        "past": "former previously",
    }.items()
    for word in words.split()
}

_READ = (
    {"noon", "midnight"}
    | _NUMBER_WORDS
    | _WEEKDAYS.keys()
    | _MONTHS.keys()
    | _UNITS.keys()
    | _DAYS
    | _NEGATIONS
)
_NOT_NAMES = (
    {word.replace("'", "") for word in ENGLISH}
    | (
        _WEEKDAYS.keys()
        | _MONTHS.keys()
        | _NUMBER_WORDS
        | _UNITS.keys()
        | _LEANINGS.keys()
        | _DAYS
        | _NEGATIONS
    )
    | word_set(
        "tv hello hi hey also yes yeah well ok okay please thanks maybe now then however actually user"
    )
)

_CLOCK = re.compile(
    r"(?<![\w:.])(?:(?P<hour>\d{1,2})(?:[:.](?P<minute>\d\d))?\s?(?P<half>[ap])\.?m\b\.?"
    r"|(?P<hour24>\d{1,2})[:h](?P<minute24>[0-5]\d)(?::[0-5]\d)?(?![\d:])|(?P<word>noon|midnight)\b)"
)
_DATE = re.compile(
    r"(?<![\d.])\d{1,4}(?P<mark>[-/.])\d{1,2}(?P=mark)\d{1,4}(?![\d.]?\d)|(?<![\d/])\d{1,2}/\d{1,2}(?![\d/])"
)
_DOTTED = re.compile(r"(?<![^\W_])(?:[^\W\d_]\.){2,}")  # U.S.A.
_TOKEN = re.compile(
    r"(?<![\w.,)])[-−]\d+(?:[.,]\d+)*|\d+(?:[.,]\d+)*|segunda-feira|(?:terça|quarta|quinta|sexta)-feira"
    r"|[^\W\d_](?:[^\W\d_]|[\u0300-\u036f\u0900-\u0903\u093a-\u094f]|['’](?=[^\W\d_]))*|[$€£¥%]"
)
_SHORTENED = re.compile(r"['’](?:d|ll)$", re.IGNORECASE)  # "we'd" is no Wednesday
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+")


def values(text: str) -> Values:
    """Read out of a text what must not differ between two texts that count as the same.

    >>> found = values("I don't meet Anna on Tuesday at ten, but on 2024-05-01 at 4 pm")
    >>> found.numbers, found.times, found.dates, found.weekdays, found.negations, found.names
    (('10',), (960,), ('2024-5-1',), (1,), ('meet',), ('Anna',))
    """
    plain = composed(text)
    bare = _bare(plain)
    lower = bare.lower()
    times, lower = _taken(_CLOCK, lower)
    dates, lower = _taken(_DATE, lower)
    words = _tokens(lower)
    return Values(
        numbers=tuple(_numbers(words)),
        units=tuple(_UNITS[word] for word in words if word in _UNITS),
        times=tuple(_minutes(match) for match in times),
        dates=tuple(_without_zeros(match.group()) for match in dates),
        weekdays=tuple(_WEEKDAYS[word] for word in words if word in _WEEKDAYS),
        months=tuple(_MONTHS[word] for word in words if word in _MONTHS),
        days=tuple(word.removesuffix("s") for word in words if word in _DAYS),
        negations=(*_negations(words), *_UNSAID.findall(lower)),
        leanings=tuple(_LEANINGS[word] for word in words if word in _LEANINGS),
        names=tuple(token for token in _tokens(bare) if _is_name(token)),
        references=(
            *sorted(set(links(plain))),
            *(match.group().lower() for match in AUTHOR_YEAR.finditer(plain)),
        ),
    )


def is_value(word: str) -> bool:
    """Whether `values` reads a word, in small letters, as a number, a day, a unit or a negation.

    >>> is_value("ten"), is_value("10am"), is_value("never"), is_value("tea")
    (True, True, True, False)
    """
    bare = word.replace("'", "")
    return word[0].isdecimal() or bare in _READ


def agree(a: str, b: str) -> bool:
    """Do two texts state the same numbers, times, dates, days, negations, likes and names?

    A link or an author–year citation that only one of them has is no difference; two different ones are.

    >>> agree("The review moved to Tuesday at ten.", "The review moved to Friday at four.")
    False
    >>> agree("I like tea", "I don't like tea"), agree("anna likes TEA", "Anna likes tea!")
    (False, True)
    """
    return agreeing(a, values(a), b, values(b))


def agreeing(a: str, first: Values, b: str, second: Values) -> bool:
    """The same of texts whose values were read already."""
    return (
        _stated(first) == _stated(second)
        and _same_references(first, second)
        and _same_names(a, b, first, second)
    )


def _stated(found: Values) -> tuple[object, ...]:
    return (
        found.numbers,
        found.units,
        found.times,
        found.dates,
        found.weekdays,
        found.months,
        found.days,
        found.negations,
        found.leanings,
    )


def _same_references(a: Values, b: Values) -> bool:
    return not a.references or not b.references or a.references == b.references


def _same_names(a: str, b: str, first: Values, second: Values) -> bool:
    """A name written small in the other text is still the name, so both are looked for in all words."""
    names = {name.lower() for name in (*first.names, *second.names)}
    return _mentions(a, names) == _mentions(b, names)


def _mentions(text: str, names: set[str]) -> list[str]:
    return list(
        dict.fromkeys(word for word in _tokens(_bare(composed(text)).lower()) if word in names)
    )


def _bare(text: str) -> str:
    """Drop links and citations, and the full stops inside abbreviations."""
    said = AUTHOR_YEAR.sub(" ", without_numbered_citations(without_links(text)))
    return _DOTTED.sub(lambda match: match.group().replace(".", "") + " ", said)


def _taken(pattern: re.Pattern[str], text: str) -> tuple[list[re.Match[str]], str]:
    """Return the matches, and the text without them."""
    return list(pattern.finditer(text)), pattern.sub(" ", text)


def _tokens(text: str) -> list[str]:
    return [
        _SHORTENED.sub("", token).replace("'", "").replace("’", "")
        for token in _TOKEN.findall(text)
    ]


def _minutes(match: re.Match[str]) -> int:
    if match["word"]:
        return 720 if match["word"] == "noon" else 0
    if match["half"]:
        return (int(match["hour"]) % 12 + 12 * (match["half"] == "p")) * 60 + int(
            match["minute"] or 0
        )
    return int(match["hour24"]) * 60 + int(match["minute24"])


def _without_zeros(date: str) -> str:
    return re.sub(r"(?<!\d)0+(?=\d)", "", date)


def _numbers(words: Sequence[str]) -> Iterator[str]:
    """Yield figures and written-out numbers alike, "twenty five" as 25."""
    spelled: list[str] = []
    for word in (*words, ""):
        if word in _NUMBER_WORDS and not (spelled and word in _SMALL and spelled[-1] in _SMALL):
            spelled.append(word)
            continue
        if spelled:
            yield str(_spelled(spelled))
        spelled = [word] if word in _NUMBER_WORDS else []
        if word[-1:].isdecimal():
            yield _figure(word)


def _spelled(words: Iterable[str]) -> int:
    total = current = 0
    for word in words:
        if word in _SCALES:
            current = max(current, 1) * _SCALES[word]
            if _SCALES[word] >= 1_000:
                total, current = total + current, 0
        else:
            current += _SMALL.get(word, 0) + _TENS.get(word, 0)
    return total + current


def _figure(word: str) -> str:
    digits = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in word).replace(
        "−", "-"
    )
    sign = "-" if digits.startswith("-") else ""
    figure = digits.lstrip("-")
    figure = figure.replace(",", "" if _GROUPED.fullmatch(figure) else ".")
    if figure.count(".") == 1:
        figure = figure.rstrip("0").rstrip(".")
    return sign + (figure.lstrip("0") or "0")


def _negations(words: Sequence[str]) -> Iterator[str]:
    """Yield for each negation the next word that carries meaning, so that it matters what is denied."""
    subject = ""
    found: list[str] = []
    for word in reversed(words):
        if word in _NEGATIONS:
            found.append(subject)
        elif word not in _PASSED_OVER:
            subject = word
    yield from reversed(found)
    yield from ("used to" for a, b in pairwise(words) if (a, b) == ("used", "to"))


def _is_name(token: str) -> bool:
    lower = token.lower()
    if lower in _NOT_NAMES or not token[0].isalpha():
        return False
    return (
        token[0] != lower[0]
        or token[1:] != lower[1:]
        or lower in GIVEN_NAMES
        or lower.upper() == lower
    )
