"""Read from a text the values that must not differ between two texts that count as the same.

A fingerprint barely changes when a meeting moves from Tuesday at ten to Friday at four. So numbers,
times, dates, weekdays, months, negations, likes and names are read and compared separately. If in
doubt, texts differ: a second memory can be merged later, a lost value cannot be recovered.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from .clock import number_groups
from .entities import GIVEN_NAMES
from .normalize import AUTHOR_YEAR, LINK, compose, remove_citations
from .tokens import ENGLISH, word_groups, word_set, word_table

T = TypeVar("T")
Texts = tuple[str, ...]
Numbers = tuple[int, ...]


class Values(NamedTuple):
    """What a text states, in the order in which it is said."""

    numbers: Texts
    units: Texts  # currencies and percent
    times: Numbers  # minutes after midnight
    dates: Texts  # written in figures, without leading zeros
    weekdays: Numbers  # 0 Monday … 6 Sunday
    months: Numbers  # 1 January … 12 December
    days: Texts  # today, tomorrow, morning …
    negations: Texts  # the word that each negation is about
    leanings: Texts  # like or dislike, before or after …
    names: Texts  # words that look like names
    references: Texts  # links and author–year citations

    def differing(self, other: "Values") -> set[str]:
        """Return the names of the values that differ, apart from names and references."""
        pairs = zip(STATED, self, other, strict=False)
        return {name for name, ours, theirs in pairs if ours != theirs}

    def are_like(self, other: "Values") -> bool:
        """Return whether both have a time, or a date or day."""
        if self.times and other.times:
            return True
        days = self.dates or self.weekdays or self.months
        return bool(days and (other.dates or other.weekdays or other.months))


STATED = Values._fields[: Values._fields.index("names")]


_WEEKDAYS = number_groups("""
    monday mondays mon montag lundi lunes lunedì segunda-feira maandag/tuesday tuesdays tue tues
    dienstag mardi martes martedì terça-feira dinsdag/wednesday wednesdays wed mittwoch mercredi
    miércoles mercoledì quarta-feira woensdag/thursday thursdays thu thur thurs donnerstag jeudi
    jueves giovedì quinta-feira donderdag/friday fridays fri freitag vendredi viernes venerdì
    sexta-feira vrijdag/saturday saturdays sat samstag sonnabend samedi sábado sabato
    zaterdag/sunday sundays sun sonntag dimanche domingo domenica zondag
    """)
_MONTHS = number_groups(
    """
    january jan januar janvier enero gennaio janeiro/february feb februar février febrero
    febbraio fevereiro/march mar märz mars marzo março maart/april apr avril abril aprile/may
    mai mayo maggio maio/june jun juni juin junio giugno junho/july jul juli juillet julio
    luglio julho/august aug août agosto/september sep sept septembre septiembre settembre
    setembro/october oct oktober octobre octubre ottobre outubro/november nov novembre noviembre
    novembro/december dec dezember décembre diciembre dicembre dezembro
    """,
    first=1,
)
_DAYS = word_set("""
    today tomorrow yesterday tonight morning afternoon evening night heute morgen gestern demain
    hier aujourdhui hoy mañana ayer oggi domani ieri hoje amanhã ontem next last previous daily
    weekly monthly yearly mornings afternoons evenings nights
    """)
_SMALL = number_groups("""
    zero null/one once first/two twice second zwei deux dos dois/three thrice third drei trois
    tres três tre/four fourth vier quatre cuatro quattro quatro/five fifth fünf cinq cinco
    cinque/six sixth sechs seis/seven seventh sieben sept siete sette sete/eight eighth acht
    huit ocho otto oito/nine ninth neun neuf nueve nove/ten tenth zehn dix diez dieci dez/eleven
    eleventh elf onze undici/twelve twelfth zwölf douze doce dodici doze/thirteen
    thirteenth/fourteen fourteenth/fifteen fifteenth/sixteen sixteenth/seventeen
    seventeenth/eighteen eighteenth/nineteen nineteenth
    """)
_TENS = number_groups("twenty/thirty/forty fourty/fifty/sixty/seventy/eighty/ninety", first=2)
_SCALES = {
    "dozen": 12,
    "hundred": 100,
    "thousand": 1_000,
    "million": 1_000_000,
    "billion": 1_000_000_000,
}
_NUMBER_WORDS = _SMALL.keys() - _MONTHS.keys() | _TENS.keys() | _SCALES.keys()
_UNITS = word_groups("""
    dollar $ dollars usd/euro € euros eur/pound £ pounds gbp/yen ¥/percent %
    /half/quarter/double/triple
    """)
_NEGATIONS = word_set("""
    not no never none nobody nothing neither nor nowhere without cannot dont doesnt didnt cant
    couldnt wont wouldnt shouldnt isnt arent wasnt werent hasnt havent hadnt aint mustnt neednt
    mightnt shant stopped quit hardly formerly nicht kein keine keinen keiner keinem keines nie
    niemals nichts niemand ohne ne pas jamais rien aucun aucune sans nunca jamás nada nadie sin
    tampoco ningún ninguna ninguno non niente nulla nessuno senza não ninguém sem nenhum niet
    geen nooit zonder inte ikke aldrig aldri ingen не нет никогда без ни nie nigdy bez değil yok
    asla لا ليس لم لن नहीं मत
    """)
_UNSAID = re.compile(r"[不没沒無无别別未非]|ない|ません|なかった|않|못|없")
_PASSED_OVER = ENGLISH - _NEGATIONS | word_set(
    "really even ever longer anymore quite always particularly"
)
_LEANINGS = word_table("""
    +: like likes liked love loves loved enjoy enjoys enjoyed adore adores
    -: hate hates hated dislike dislikes disliked loathe loathes detest detests despise
    before: before until
    after: after since
    more: more increase increased raise raised higher
    less: less fewer decrease decreased lower lowered
    on: enable enabled allow allowed accept accepted
    off: disable disabled forbid forbidden deny denied reject rejected
    some: sometimes
    left: left leave leaves
    joined: joined join joins
    sell: sell sold
    buy: buy bought purchase purchased
    past: former previously
    always: always
    """)
_CALENDAR_AND_NUMBERS = _NUMBER_WORDS | _WEEKDAYS.keys() | _MONTHS.keys() | _UNITS.keys() | _DAYS
VALUE_WORDS = {"noon", "midnight"} | _CALENDAR_AND_NUMBERS | _NEGATIONS
_NOT_NAMES = (
    word_set(" ".join(ENGLISH).replace("'", ""))
    | _CALENDAR_AND_NUMBERS
    | _LEANINGS.keys()
    | _NEGATIONS
    | word_set("""
        tv hello hi hey also yes yeah well ok okay please thanks maybe now then however actually
        basically honestly frankly literally simply really obviously anyway personally clearly
        user
        """)
)
_CLOCK = re.compile(
    r"(?<![\w:.])(?:(?P<hour>\d{1,2})(?:[:.](?P<minute>\d\d))?\s?(?P<half>[ap])\.?m\b\.?"
    r"|(?P<hour24>\d{1,2})[:h](?P<minute24>[0-5]\d)(?::[0-5]\d)?(?![\d:])|(?P<word>noon"
    r"|midnight)\b)"
)
_DATE = re.compile(
    r"(?<![\d.])\d{1,4}(?P<mark>[-/.])\d{1,2}(?P=mark)\d{1,4}(?![\d.]?\d)"
    r"|(?<![\d/])\d{1,2}/\d{1,2}(?![\d/])"
)
# A telephone number, and not a range of years: "555-0123", "+44 7700 900123"
_PHONE = re.compile(
    r"(?<![\w.,:/-])\+?(?!(?:19|20)\d\d-(?:19|20)\d\d\b)\d{2,5}(?:-\d{3,8}|(?: \d{3,8}){1,3})(?:-\d{3,8})*(?![\w:/-])"
)
_SEPARATOR = re.compile("[ +-]")
_DOTTED = re.compile(r"(?<![^\W_])(?:[^\W\d_]\.){2,}")  # U.S.A.
_TOKEN = re.compile(
    r"(?<![\w.,)])[-−]\d+(?:[.,]\d+)*|\d+(?:[.,]\d+)*|segunda-feira|(?:terça|quarta|quinta"
    r"|sexta)-feira"
    r"|[^\W\d_](?:[^\W\d_]|[\u0300-\u036f\u0900-\u0903\u093a-\u094f]|['’](?=[^\W\d_]))*|[$€£¥%]"
)
_SHORTENED = re.compile(r"(?i)['’](?:d|ll)$")  # "we'd" is not Wednesday
_APOSTROPHE = re.compile("['’]")
_GROUPED = re.compile(r"\d{1,3}(?:,\d{3})+")
# "She may come", and not "in may", "may 3rd" or "since last may".
_MODAL_MAY = re.compile(
    r"\b(?:i|he|she|it|we|you|they|user|who|which) may(?= [a-z]{2})"
    r"|\bmay(?= (?:not|be|have|also|only|even|still|well)\b)"
)
_LEADING_ZEROS = re.compile(r"(?<!\d)0+(?=\d)")


def find_links(text: str) -> list[str]:
    """List the web addresses in a text, without scheme, query and end punctuation.

    >>> find_links("see https://www.A.example/b/?utm=1.")
    ['a.example/b']
    """
    found = []
    for match in LINK.finditer(text):
        address = match[0].lower().split("://", 1)[-1]
        path, *_ = re.split("[?#]", address.removeprefix("www."))
        found.append(path.rstrip("/.,;:!')]*_`"))
    return found


def read_values(text: str) -> Values:
    """Read the values of a text.

    >>> found = read_values("I don't meet Anna on Tuesday at ten, but on 2024-05-01 at 4 pm")
    >>> found.numbers, found.times, found.dates, found.weekdays, found.negations, found.names
    (('10',), (960,), ('2024-5-1',), (1,), ('meet',), ('Anna',))
    """
    plain = compose(text)
    bare = _remove_references(plain)
    lower = bare.lower()
    times = []
    for match in _CLOCK.finditer(lower):
        hour = int(match["hour24"] or match["hour"] or 0)
        minute = int(match["minute24"] or match["minute"] or 0)
        if match["half"]:
            hour %= 12
        if match["half"] == "p" or match["word"] == "noon":
            hour += 12
        times.append(60 * hour + minute)
    lower = _CLOCK.sub(" ", lower)
    lower = _MODAL_MAY.sub(" ", lower)
    dates = [_LEADING_ZEROS.sub("", match[0]) for match in _DATE.finditer(lower)]
    lower = _DATE.sub(" ", lower)
    lower = _PHONE.sub(lambda match: _SEPARATOR.sub("", match[0]), lower)
    words = _tokens(lower)
    names = []
    for token in _tokens(bare):
        word = token.lower()
        is_name = token != word or word in GIVEN_NAMES or word.upper() == word
        if is_name and word not in _NOT_NAMES and token[0].isalpha():
            names.append(token)
    links = sorted(set(find_links(plain)))
    cited = [match[0].lower() for match in AUTHOR_YEAR.finditer(plain)]
    return Values(
        numbers=tuple(_numbers(words)),
        units=_look_up(words, _UNITS),
        times=tuple(times),
        dates=tuple(dates),
        weekdays=_look_up(words, _WEEKDAYS),
        months=_look_up(words, _MONTHS),
        days=tuple(word.removesuffix("s") for word in words if word in _DAYS),
        negations=(*_negations(words), *_UNSAID.findall(lower)),
        leanings=_look_up(words, _LEANINGS),
        names=tuple(names),
        references=(*links, *cited),
    )


def value_tokens(text: str) -> list[str]:
    """Split a text into the lower-case tokens in which values and names are searched."""
    bare = _remove_references(compose(text))
    return _tokens(bare.lower())


def is_value(word: str) -> bool:
    """Return whether a lower-case word is read as a number, a day, a unit or a negation.

    >>> is_value("ten"), is_value("10am"), is_value("never"), is_value("tea")
    (True, True, True, False)
    """
    return word[0].isdecimal() or word.replace("'", "") in VALUE_WORDS


def _look_up(words: Iterable[str], table: Mapping[str, T]) -> tuple[T, ...]:
    known = filter(table.__contains__, words)
    return tuple(map(table.__getitem__, known))


def _remove_references(text: str) -> str:
    """Remove links and citations, and the full stops inside abbreviations."""
    without = remove_citations(LINK.sub(" ", text))
    return _DOTTED.sub(lambda match: match[0].replace(".", "") + " ", without)


def _tokens(text: str) -> list[str]:
    found = []
    for token in _TOKEN.findall(text):
        if "'" in token or "’" in token:
            whole = _SHORTENED.sub("", token)
            token = _APOSTROPHE.sub("", whole)
        found.append(token)
    return found


def _numbers(words: Sequence[str]) -> Iterator[str]:
    """Yield figures and written-out numbers alike, "twenty five" as 25."""
    before = ""  # the word before, if it was a written-out number
    total = current = 0
    for word in (*words, ""):
        is_next = word not in _NUMBER_WORDS or (word in _SMALL and before in _SMALL)
        if before and is_next:
            yield str(total + current)
            total = current = 0
        before = word if word in _NUMBER_WORDS else ""
        if word[-1:].isdecimal():  # in ASCII digits, with a decimal point and no extra zeros
            digits = [str(unicodedata.decimal(mark, mark)) for mark in word.replace("−", "-")]
            figure = "".join(digits).lstrip("-")
            separator = "" if _GROUPED.fullmatch(figure) else "."
            figure = figure.replace(",", separator)
            if figure.count(".") == 1:
                figure = figure.rstrip("0").rstrip(".")
            sign = "-" if digits[0] == "-" else ""
            yield sign + (figure.lstrip("0") or "0")
        elif word in _SCALES:
            current = max(current, 1) * _SCALES[word]
            if _SCALES[word] >= 1_000:
                total += current
                current = 0
        elif before:
            current += _SMALL.get(word, 0) + 10 * _TENS.get(word, 0)


def _negations(words: Sequence[str]) -> list[str]:
    """Return for each negation the next word that carries meaning, which is what it negates."""
    subject = ""
    found: list[str] = []
    for word in reversed(words):
        if word in _NEGATIONS:
            found.append(subject)
        elif word not in _PASSED_OVER:
            subject = word
    used_to = list(pairwise(words)).count(("used", "to"))
    return found[::-1] + ["used to"] * used_to
