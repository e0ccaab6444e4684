"""What a correction says: how it really is, which value is wrong, and which text that is about."""

from __future__ import annotations

import re

from . import tokens

_SMALL = r"(?:(?:in|at|on|a|an|the|my|no|na|em|à|en|das|die|der) )?"
_CONTRASTS = (
    re.compile(
        r"(?P<right>.{2,200}?)[,;]? (?:and |but )?(?:not|instead of|rather than|nicht|pas|não|non) "
        rf"{_SMALL}(?P<wrong>[^,;]{{1,60}})",
        re.IGNORECASE,
    ),
    re.compile(
        rf"(?:not|nicht|non) {_SMALL}(?P<wrong>[^,;]{{1,80}})[,;] (?P<right>.{{2,200}})",
        re.IGNORECASE,
    ),
)
# One can have and like several things, so another one corrects nothing.
_SEVERAL = tokens.word_set("have has like likes love loves hate own owns play eat drink speak want")
_POINTING = re.compile(r"^(?:it['’]?s|it is|to|as) ", re.IGNORECASE)
# What a sentence has that can be understood alone: a person it is about, or a verb between nouns.
_WHOLE = re.compile(
    r"\b(?:i|i['’]?m|i['’]?ve|my|we|our|he|she|his|her|they|their|ich|mein\w{0,2}|wir|je|j['’]\w+|mon|ma"
    r"|mes|nous|yo|mi|mis|soy|vivo|tengo|me|eu|meu|minha|moro|sou|tenho|io|mio|mia|sono|abito|ho)\b"
    r"|\w (?:is|are|was|ist|est|es|é|è) \w"
    r"|[\u0400-\u04ff\u0600-\u06ff\u0900-\u097f\u3040-\u9fff]",
    re.IGNORECASE,
)


def read(content: str, topic: str = "") -> tuple[str, str]:
    """Return how it really is, as a sentence, and the value that is wrong; empty if unknown.

    >>> read("I'm 34, not 33"), read("it's May 4", "my birthday"), read("two kids")
    (("I'm 34", '33'), ('My birthday is May 4', ''), ('', ''))
    """
    content = content.strip(" .!")
    wrong = ""
    for pattern in _CONTRASTS:
        if found := pattern.fullmatch(content):
            content = found["right"].strip(" ,;")
            wrong = found["wrong"].strip(" ,;.!")
            break
    if topic and content:
        value = _POINTING.sub("", content)
        content = f"{topic[:1].upper()}{topic[1:]} is {value}"
    return (content if _WHOLE.search(content) else ""), wrong


def is_about(text: str, statement: str, wrong: str) -> bool:
    """Return whether a statement corrects a text: it has the wrong value, or both begin alike.

    >>> is_about("I am 33.", "I'm 34", "33"), is_about("I live in Rome.", "I live in Bari", "")
    (True, True)
    >>> is_about("I go to the gym with Ines.", "I go swimming with Ines", "")
    False
    >>> is_about("I have a dog.", "I have a cat", ""), is_about("I have 2 dogs", "I have 3 dogs", "")
    (False, True)
    """
    words = tokens.words(text)
    if wrong and set(tokens.words(wrong)) <= set(words):
        return True
    new = tokens.words(statement)
    alike = 0
    for one, other in zip(words, new, strict=False):
        if one != other:
            break
        alike += 1
    if alike < max(2, len(new) - 2):
        return False
    return new[1] not in _SEVERAL or new[-1] == words[-1]
