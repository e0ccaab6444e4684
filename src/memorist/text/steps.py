"""The steps of a workflow: numbered, short, and orders instead of reports or thoughts.

Whether a line is an order is judged by its first word: an everyday English word has to be a verb.
Other words, such as commands and words of other languages, may be one.
"""

import re
from collections.abc import Sequence

from ..errors import InvalidInput
from . import normalize
from .entities import is_common
from .tokens import count_tokens, word_set

MAX_STEPS = 20  # of a workflow
MAX_STEP_CHARS = 240
MAX_TOKENS = 400  # of a workflow
MOST_BEFORE = 4  # conditions and adverbs that are passed over before an order
_NUMBER = re.compile(r"^\s*(?:\d{1,3}[.)]|[-*•])\s+")
_WHO = re.compile(
    r"(?i)(?:(?:first|second|third|next|then|after that|afterwards|finally|lastly|now|and)\b"
    r",? ){0,2}"
    r"(?:(?:i|we|you|one|the (?:user|agent|executor))(?:'ll|'d)? "
    r"(?:(?:should|must|will|can|may|would|need to|needs to|have to|has to|ought to|want to)\b )?)?"
    r"(?:then |always )?"
)
_MIND = re.compile(
    r"(?i)(?:the user|the person|he|she|they|i|we)\b (?:\w+ )?"
    r"(?:feels?|thinks?|believes?|seems?|wants?|hopes?|worries|likes?|prefers?|trusts?)\b"
)
_WORD = re.compile(r"[\w'’]+")
# What comes before an order: "If it fails, roll back", "Carefully check …".
_BEFORE = word_set("""
    if when once while after before until unless in on at for from with without to by as during
    """)
# Everyday words that can begin an order.
_VERBS = word_set("""
    add agree allow answer ask avoid be begin book bring build burn buy call calm care carry catch
    change check choose clean clear climb close come complete continue cook cool count cover cross
    cut date deal decide discuss do don't double draw dress drink drive drop dry eat email empty end
    enjoy enter excuse exercise expect explain face figure fill find finish fit fix fly follow
    forget form forward free get give go group grow guess hand hang have head hear help hit hold hurry
    imagine invite join jump just keep kill know land lay lead learn leave let lie lift light like
    line list listen live look lose love make map mark meet message mind miss move name never note
    notice number offer only open order own paint park pass pay phone photo pick place plan plant
    play please point post practice prefer prepare present promise pull push put question quit raise
    reach read receive relax remember rent repeat report rest return ride ring run save say see sell
    send serve set shape share ship shop show shower shut sign sing sit sleep slow smell sort speak
    spend spot stand start stay step stop store suit support suppose take talk taste teach tell test
    thank think throw tidy tie time touch train travel trust try turn type understand use view visit
    wait wake walk warm wash watch water wear welcome wish work worry write
    """)


def numbered(steps: Sequence[str]) -> str:
    """Return steps as numbered lines, without their original numbers and bullets. Raises
    InvalidInput.

    >>> numbered(["- Build the image", "2) Push it"])
    '1. Build the image\\n2. Push it'
    """
    orders = [] if isinstance(steps, str) else list(map(imperative, steps))
    sizes = set(map(len, orders))
    if not 1 <= len(orders) <= MAX_STEPS or not sizes.issubset(range(1, MAX_STEP_CHARS + 1)):
        raise InvalidInput(
            f"A workflow is a list of 1 to {MAX_STEPS} steps of 1 to {MAX_STEP_CHARS} characters"
        )
    lines = []
    for number, (step, order) in enumerate(zip(steps, orders, strict=True), 1):
        if _MIND.match(_NUMBER.sub("", step).lstrip()):
            raise InvalidInput(
                f"Step {number} says what someone thinks or feels. A step has to say what to do"
            )
        if not is_order(order):
            raise InvalidInput(
                f"Step {number} is not an instruction. Begin with a verb, as in 'Build the image'"
            )
        lines.append(f"{number}. {order}")
    text = "\n".join(lines)
    tokens = count_tokens(text)
    if tokens > MAX_TOKENS:
        raise InvalidInput(f"A workflow has at most {MAX_TOKENS} tokens, not {tokens}: shorten it")
    return text


def imperative(step: str) -> str:
    """Return a step as a command, without its number and without a subject.

    >>> imperative("2) Then we should push the image."), imperative("Push it")
    ('Push the image.', 'Push it')
    """
    line = normalize.one_line(_NUMBER.sub("", step))
    order = _WHO.sub("", line, count=1)
    return order[:1].upper() + order[1:]


def is_order(line: str) -> bool:
    """Return whether a line can be an order, by its first word.

    >>> [is_order(line) for line in ("Push it", "If it fails, stop", "kubectl apply", "It is done")]
    [True, True, True, False]
    """
    for _ in range(MOST_BEFORE):
        found = _WORD.search(line)
        if found is None:
            break
        word = found[0].lower().replace("’", "'")
        if word in _BEFORE:
            _, comma, line = line.partition(", ")
            if not comma:
                return True
        elif word.endswith("ly") and is_common(word.removesuffix("ly")):
            line = line[found.end() :]
        else:
            return word in _VERBS or not is_common(word)
    return False
