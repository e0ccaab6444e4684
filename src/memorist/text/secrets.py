"""What looks like a secret: a key, a signed token, a password with its value, a card number.

Shapes, not guesses: a word such as "password" is no secret, nor is a placeholder, an id or the number of a book.
"""

import re
from collections.abc import Iterator, Sequence

from .wordlists import is_common

_KEY = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-[\w-]{20,200}|[srp]k_(?:live|test)_\w{16,200}|gh[pousr]_\w{30,200}|github_pat_\w{22,200}"
    r"|glpat-[\w-]{18,200}|xox[abeoprs]-[\w-]{10,200}|(?:AKIA|ASIA)[0-9A-Z]{16}\b|AIza[\w-]{35}|hf_[A-Za-z0-9]{30,200}"
    r"|npm_\w{36}|pypi-[\w-]{40,400}|SG\.[\w-]{16,64}\.[\w-]{16,64}|dop_v1_\w{32,64}|shpat_\w{32}|whsec_\w{24,64})"
)
_SHAPES = {
    "a private key": re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY"),
    "a signed token": re.compile(r"\beyJ[\w-]{8,4000}\.eyJ[\w-]{8,4000}\.[\w-]{8}"),
    "an access key": _KEY,
}
_ADDRESS = re.compile(r"\b[a-zA-Z][\w+.-]{1,20}://[^\s:@/]{0,80}:(?P<value>[^\s@/]{1,200})@[\w.-]")
_PASSWORD = re.compile(
    r"(?:\b|_)(?:password|passwd|passphrase|passcode|passwort|kennwort|contraseña|mot de passe|пароль|pwd)[\"']?"
    r"(?: (?:for|of|to) [\w .@-]{1,40}?)?(?P<sign> is | was | ist | est | es |\s{0,3}[:=：]\s{0,3}|\s?[-–—] )"
    r"(?P<value>\"[^\"\n]{4,80}\"|'[^'\n]{4,80}'|`[^`\n]{4,80}`|[^\s\"'`,;]{4,200})"
    r"|(?:密码|密碼|パスワード)(?:是|は|[:：])\s{0,3}(?P<cjk>[!-~]{4,200})",
    re.IGNORECASE,
)
_NAMED = re.compile(
    r"(?:\b|_)(?:(?:api|access|auth|secret|private|client|refresh|bot)[ _-]?(?:access[ _-]?)?(?:key|token|secret)"
    r"|token|bearer)[\"']?(?: is |\s{0,3}[:=]\s{0,3}| )[\"'`]?(?P<value>[\w+/=.~-]{16,400})",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    r"[<{$%\[*.]|(?:x{3,}|your|my|the|change|example|placeholder|redacted|secret|password|pass$|todo)",
    re.IGNORECASE,
)
_WORDS = re.compile(r"[^\W\d_]+(?:['’/-][^\W\d_]+)*")
_CARD = re.compile(r"(?<![\d+.,-])[2-6](?:[ -]?\d){13,15}(?![\d-])")
_ISSUED = re.compile(r"(?:4|5[1-5]|2[2-7]|6[0245])\d{14,15}|3[47]\d{13}|3[068]\d{12}")


def secret(text: str) -> str:
    """Which kind of secret a text holds; nothing if it holds none.

    >>> secret("my password is hunter2"), secret("the password is stored in the vault"), secret("4111 1111 1111 1111")
    ('a password', '', 'a card number')
    """
    for name, shape in _SHAPES.items():
        if shape.search(text):
            return name
    given = (found["value"] for found in _ADDRESS.finditer(text))
    if not all(map(_PLACEHOLDER.match, given)) or any(map(_is_password, _PASSWORD.finditer(text))):
        return "a password"
    if any(_is_random(found["value"]) for found in _NAMED.finditer(text)):
        return "an access key"
    return "a card number" if any(_is_card(found.group()) for found in _CARD.finditer(text)) else ""


def _is_password(found: re.Match[str]) -> bool:
    """Whether a value is one: no plain word, unless it stands in quotation marks or after a colon and is rare."""
    value = (found["cjk"] or found["value"]).rstrip(".!?)")
    bare = value.strip("\"'`")
    if len(bare) < 4 or _PLACEHOLDER.match(bare):
        return False
    if not _WORDS.fullmatch(bare):
        return True
    is_assigned = found["sign"] is not None and found["sign"].strip() in (":", "=", "：")
    return bare != value or (is_assigned and bare.isalpha() and not is_common(bare.lower()))


def _is_random(value: str) -> bool:
    """Letters and digits mixed, as no word has them."""
    return (
        any(map(str.isdigit, value))
        and any(map(str.isalpha, value))
        and not _PLACEHOLDER.match(value)
    )


def _is_card(text: str) -> bool:
    """Whether an issuer gives out such numbers, and the last digit checks the others."""
    digits = [int(mark) for mark in text if mark.isdigit()]
    return (
        _ISSUED.fullmatch("".join(map(str, digits))) is not None
        and sum(_weighted(digits)) % 10 == 0
    )


def _weighted(digits: Sequence[int]) -> Iterator[int]:
    for place, digit in enumerate(reversed(digits)):
        doubled = digit * (1 + place % 2)
        yield doubled - 9 * (doubled > 9)
