"""Chats between people: Slack, Discord, WhatsApp and Telegram."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from .source import (
    ImportRun,
    Items,
    Skipped,
    Source,
    as_list,
    as_object,
    digest,
    message,
    moment,
    read_items,
    read_text,
)

BOT = "a message by a bot"
SERVICE = "a notice of the program"
MEDIA = "a file or picture without text"
_MENTION = re.compile(r"<@(\w{1,40})(?:\|[^>]{0,80})?>")
_STAMP = re.compile(
    r"\u200e?\[?(?P<date>\d{1,4}[./-]\d{1,2}[./-]\d{1,4}),?[ \u202f](?:klo[ \u202f])?"
    r"(?P<time>\d{1,2}[:.]\d{2}(?:[:.]\d{2})?)(?:[ \u202f](?P<half>[AaPp]\.?[Mm]\.?))?\]?"
    r"(?: - |:? )(?P<rest>.*)"
)
_OMITTED = re.compile(
    r"<[^<>]{0,40}omitted>|\u200e?(?:image|video|audio|sticker|GIF|document) omitted"
)


def read_slack(sources: Sequence[Source], how: ImportRun) -> Items:
    """Read a workspace: a folder for each channel, with a file for each day."""
    people: dict[str, str] = {}
    for source in sources:
        if PurePosixPath(source.name).name == "users.json":
            for user in map(as_object, read_items(source, how)):
                people[str(user.get("id"))] = _slack_name(user)
    for source in sources:
        channel = PurePosixPath(source.name).parent.name
        if "ts" not in source.shape[1]:
            continue
        for said in map(as_object, read_items(source, how)):
            yield _read_slack_message(said, channel, people, how)


def _slack_name(user: dict[str, Any]) -> str:
    profile = as_object(user.get("profile"))
    names = (profile.get("display_name"), profile.get("real_name"), user.get("name"))
    return str(next(filter(None, names), user.get("id")))


def _read_slack_message(
    said: dict[str, Any], channel: str, people: dict[str, str], how: ImportRun
) -> Any:
    if said.get("type") != "message" or said.get("bot_id"):
        return Skipped(BOT if said.get("bot_id") else SERVICE)
    if said.get("subtype") not in (None, "thread_broadcast", "me_message", "file_share"):
        return Skipped(SERVICE)
    text = _MENTION.sub(lambda found: people.get(found[1], found[1]), str(said.get("text") or ""))
    if not text.strip() and said.get("files"):
        return Skipped(MEDIA)
    at = moment(said.get("ts"))
    thread = said.get("thread_ts") or (at and at.date().isoformat())
    return _said_by(
        people.get(str(said.get("user")), str(said.get("user"))),
        text,
        how,
        id=f"slack:{channel}:{said.get('ts')}",
        session=f"slack:{channel}:{thread}",
        at=at,
    )


def read_discord(sources: Sequence[Source], how: ImportRun) -> Items:
    """Read a channel that DiscordChatExporter saved as JSON."""
    for source in sources:
        channel = next(read_items(source, how, "channel.id"), None)
        how.read -= source.size
        for said in map(as_object, read_items(source, how, "messages.item")):
            author = as_object(said.get("author"))
            at = moment(said.get("timestamp"))
            if author.get("isBot"):
                yield Skipped(BOT)
            elif said.get("type") not in ("Default", "Reply", None):
                yield Skipped(SERVICE)
            elif not said.get("content") and said.get("attachments"):
                yield Skipped(MEDIA)
            else:
                yield _said_by(
                    str(author.get("nickname") or author.get("name")),
                    str(said.get("content") or ""),
                    how,
                    other_name=str(author.get("name")),
                    id=f"discord:{said.get('id')}",
                    session=f"discord:{channel}:{at and at.date().isoformat()}",
                    at=at,
                )


def read_telegram(sources: Sequence[Source], how: ImportRun) -> Items:
    """Read `result.json`: one chat, or all of an account."""
    for source in sources:
        is_whole = "chats" in source.shape[1]
        chats = read_items(source, how, "chats.list.item" if is_whole else "")
        for chat in map(as_object, chats):
            name = f"telegram:{chat.get('id') or digest(chat.get('name'))}"
            for said in map(as_object, as_list(chat.get("messages"))):
                yield _read_telegram_message(said, name, how)


def _read_telegram_message(said: dict[str, Any], chat: str, how: ImportRun) -> Any:
    if said.get("type") != "message":
        return Skipped(SERVICE)
    text = said.get("text")
    if isinstance(text, list):  # with links, mentions and formatted parts
        text = "".join(str(each.get("text") if isinstance(each, dict) else each) for each in text)
    if not text:
        return Skipped(MEDIA)
    at = moment(said.get("date_unixtime")) or moment(said.get("date"))
    return _said_by(
        str(said.get("from") or said.get("from_id")),
        str(text),
        how,
        id=f"{chat}:{said.get('id')}",
        session=f"{chat}:{at and at.date().isoformat()}",
        at=at,
    )


def read_whatsapp(sources: Sequence[Source], how: ImportRun) -> Items:
    """Read chats exported as text. The order of day and month is decided over the whole file."""
    for source in sources:
        chat = f"whatsapp:{source.stem}"
        entries = list(_split_entries(read_text(source, how)))
        order = _date_order([stamp["date"] for stamp, _ in entries])
        seen: Counter[str] = Counter()
        for stamp, text in entries:
            name, colon, said = text.partition(": ")
            if not colon or len(name) > 60:
                yield Skipped(SERVICE)
                continue
            if not said.strip() or _OMITTED.fullmatch(said.strip()):
                yield Skipped(MEDIA)
                continue
            at = _read_stamp(stamp, order)
            key = digest(chat, stamp["date"], stamp["time"], name, said)
            seen[key] += 1
            yield _said_by(
                name.strip("\u200e\u200f ~"),
                said,
                how,
                id=f"whatsapp:{key}-{seen[key]}",
                session=f"{chat}:{at and at.date().isoformat()}",
                at=at,
            )


def has_stamps(head: bytes) -> bool:
    """Return whether a text begins like a chat exported from WhatsApp."""
    lines = head.decode("utf-8", "replace").splitlines()[:10]
    return sum(_STAMP.match(line.lstrip("\ufeff")) is not None for line in lines) >= 1


def _split_entries(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield the stamp of each message, and the text after it; other lines continue it."""
    stamp: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.splitlines():
        found = _STAMP.match(line.lstrip("\ufeff\u200e"))
        if found is None:
            lines.append(line)
            continue
        if stamp is not None:
            yield stamp, "\n".join(lines)
        stamp = found
        lines = [found["rest"]]
    if stamp is not None:
        yield stamp, "\n".join(lines)


def _date_order(dates: Sequence[str]) -> str:
    """Return the order of year, month and day, as "dmy", by the numbers that can be only one."""
    parts = [list(map(int, re.split(r"[./-]", date))) for date in dates]
    if any(first > 31 for first, _, _ in parts):
        return "ymd"
    is_american = any(second > 12 for _, second, _ in parts)
    return "mdy" if is_american else "dmy"


def _read_stamp(stamp: re.Match[str], order: str) -> datetime | None:
    numbers = dict(zip(order, map(int, re.split(r"[./-]", stamp["date"])), strict=True))
    hour, minute, second = [*map(int, re.split(r"[:.]", stamp["time"])), 0][:3]
    half = (stamp["half"] or "").lower()[:1]
    if half:
        hour = hour % 12 + 12 * (half == "p")
    year = numbers["y"] + 2000 * (numbers["y"] < 100)
    try:
        return datetime(year, numbers["m"], numbers["d"], hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None


def _said_by(
    name: str,
    text: str,
    how: ImportRun,
    *,
    id: str,
    session: str,
    at: datetime | None,
    other_name: str = "",
) -> Any:
    """Return what someone said; only the person's own name makes it the person's words."""
    is_own = how.is_me(name) or (other_name and how.is_me(other_name))
    return message(text, id=id, session=session, name=None if is_own else name, at=at)
