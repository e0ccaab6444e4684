"""What a turn of a conversation does: does it tell something, or only ask?"""

import re

_SENTENCE = re.compile(r"[^.!?。！？…؟\u037e]*+[.!?。！？…؟\u037e]*+")
_ASKING = ("?", "？", "؟", "\u037e")
_LAST_MARK = re.compile(
    r"[?？؟\u037e][^\w.!…]*$"
)  # what follows may be a smiley or a quotation mark
_WORDS = re.compile(r"\w+")
FEW = 4  # words: "Wow, that's cool, Caroline!" before a question tells nothing


def is_question(text: str) -> bool:
    """Whether a turn only asks: it has a question, and beside it at most a few words of courtesy.

    >>> is_question("Wow, that's great! What happened next?"), is_question("I moved to Rome last year. And you?")
    (True, False)
    """
    sentences = [sentence for sentence in _SENTENCE.findall(text) if sentence.strip()]
    told = [sentence for sentence in sentences if not sentence.rstrip().endswith(_ASKING)]
    return len(told) < len(sentences) and all(
        len(_WORDS.findall(sentence)) <= FEW for sentence in told
    )


def ends_asking(text: str) -> bool:
    """Whether a turn ends in a question, so that the next one is likely to answer it.

    >>> ends_asking("I moved to Rome. And you? 🙂"), ends_asking("Really? I did not know.")
    (True, False)
    """
    return _LAST_MARK.search(text[-80:]) is not None
