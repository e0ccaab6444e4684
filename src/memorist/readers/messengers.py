"""Chats between people: Slack, Discord, WhatsApp and Telegram."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import PurePosixPath

from ..types import Draft
from .members import read_members
from .source import (
    ImportRun,
    Items,
    Skipped,
    Source,
    as_object,
    decode,
    digest,
    message,
    moment,
    read_items,
    read_text,
)

BOT = "a message by a bot"
SERVICE = "a system notice"
MEDIA = "a media file without text"
DELETED = "a deleted message"
_SLACK_MESSAGES = (None, "thread_broadcast", "me_message", "file_share")  # subtypes
# A user, a channel, a group or a link in Slack, and what it is called.
_REFERENCE = re.compile(r"<([@#!]?)([^<>|\s]{1,2000})(?:\|([^<>]{0,1000}))?>")
_STAMP = re.compile(
    r"\u200e?\[?(?P<date>\d{1,4}[./-]\d{1,2}[./-]\d{1,4}),?[ \u202f](?:klo[ \u202f])?"
    r"(?P<time>\d{1,2}[:.]\d{2}(?:[:.]\d{2})?)(?:[ \u202f](?P<half>[AaPp]\.?[Mm]\.?))?\]?"
    r"(?: - |:? )(?P<rest>.*)"
)
# What WhatsApp writes in place of a file, of a deleted message, and after an edited one.
_FILES = """image video audio sticker gif document contact_card video_note location
Bild Dokument Kontaktkarte Videonachricht Standort imagen vídeo documento tarjeta_de_contacto
vidéo fiche_contact immagine scheda_contatto imagem áudio figurinha afbeelding""".split()
_OMISSIONS = """omitted weggelassen omitid[oa] omise? absente? omess[oa] ocultad[oa] oculta
não_incluíd[oa] weggelaten ausgeschlossen""".split()
_ATTACHED = "file attached|Datei angehängt|archivo adjunto|fichier joint|file allegato"
_OMITTED = re.compile(
    rf"(?:{'|'.join(_FILES)}) (?:{'|'.join(_OMISSIONS)})".replace("_", " ")
    + rf"|<[^<>]{{1,30}} (?:{'|'.join(_OMISSIONS)}|omitid[oa]s?|omis|omessi)>".replace("_", " ")
    + rf"|<attached: [^<>]{{1,200}}>|\S{{1,200}} \((?:{_ATTACHED})\)",
    re.I,
)
_DELETED = re.compile(
    r"""this message was deleted(?: by [^\n]{1,60})?|you deleted this message
|diese nachricht wurde gelöscht|du hast diese nachricht gelöscht
|(?:se eliminó este mensaje|este mensaje fue eliminado|eliminaste este mensaje)
|ce message a été supprimé|vous avez supprimé ce message|tu as supprimé ce message
|questo messaggio è stato eliminato|hai eliminato questo messaggio
|(?:esta mensagem foi apagada|mensagem apagada|você apagou esta mensagem|apagou esta mensagem)
|dit bericht (?:is|werd) verwijderd|(?:je|u) (?:hebt|heeft) dit bericht verwijderd""".replace(
        "\n", ""
    ),
    re.I,
)
_EDITED = re.compile(
    r"""(?:<(?:this message was edited|diese nachricht wurde bearbeitet|se editó este mensaje
|ce message a été modifié|questo messaggio è stato modificato|esta mensagem foi editada
|dit bericht is bewerkt)\.?>|(?<=[\s.!?…])(?-i:This message was edited))$""".replace("\n", ""),
    re.I,
)
# What WhatsApp writes by itself, also with the name of a chat or a person before it.
_NOTICES = re.compile(
    r"""null|(?:messages (?:and calls|to this chat|you send to this (?:chat|group)) are
|nachrichten und anrufe sind|los mensajes y las llamadas están|les messages et les appels sont
|i messaggi e le chiamate sono|as mensagens e (?:as )?(?:chamadas|ligações) são
|berichten en oproepen zijn|berichten en gesprekken zijn).{0,500}
|(?:missed (?:group )?(?:voice|video) call|verpasster (?:sprach|video)anruf
|llamada (?:de voz |de vídeo |de video )?perdida|(?:video)?llamada perdida
|appel (?:vocal|vidéo) manqué|(?:video)?chiamata (?:vocale )?persa
|(?:chamada|ligação) de (?:voz|vídeo) perdida|gemiste (?:spraak|video)?oproep)
(?:[,.] .{0,100})?""".replace("\n", ""),
    re.I | re.S,
)
_BY_WHATSAPP = "\u200e"  # begins what an iPhone writes by itself
_COPY = re.compile(
    r"(?<!\s)\s*\(\d{1,3}\)$"
)  # at the end of the name of a file that was saved again
_MARKS = str.maketrans("", "", "\u200e\u200f\u202a\u202c")  # of the direction of a text


def read_slack(source: Source, how: ImportRun) -> Items:
    """Read a file of a workspace: who is in it, or a day of a channel, whose name its folder has."""
    if "ts" not in source.shape[1]:
        for user in map(as_object, read_items(source, how)):
            profile = as_object(user.get("profile"))
            names = (profile.get("display_name"), profile.get("real_name"), user.get("name"))
            how.people[str(user.get("id"))] = str(next(filter(None, names), user.get("id")))
        return
    channel = f"slack:{PurePosixPath(source.name).parent.name}"
    for said in map(as_object, read_items(source, how)):
        text = str(said.get("text") or "")
        if said.get("bot_id"):
            yield Skipped(BOT)
        elif said.get("type") != "message" or said.get("subtype") not in _SLACK_MESSAGES:
            yield Skipped(SERVICE)
        elif not text.strip() and said.get("files"):
            yield Skipped(MEDIA)
        else:
            user_id = str(said.get("user"))
            yield _said_by(
                how.people.get(user_id, user_id),
                _read_slack_text(text, how),
                how,
                id=f"{channel}:{said.get('ts')}",
                chat=channel,
                thread=said.get("thread_ts"),
                at=moment(said.get("ts")),
            )


def _read_slack_text(text: str, how: ImportRun) -> str:
    """Return a text as it is shown: with the names of people and channels, and links."""

    def show(found: re.Match[str]) -> str:
        sign, target, label = found[1], found[2], found[3]
        if sign == "!":  # a group, a date, or everyone in a channel
            return label or f"@{target.partition('^')[0]}"
        if sign:
            name = how.people.get(target) or label or target
            return f"#{name}" if sign == "#" else name
        address = target.removeprefix("mailto:")
        is_same = not label or label in address
        return address if is_same else f"{label} ({address})"

    return html.unescape(_REFERENCE.sub(show, text))


def read_discord(source: Source, how: ImportRun) -> Items:
    """Read a channel that DiscordChatExporter saved as JSON."""
    channel = next(read_items(source, ImportRun(), "channel.id"), None)
    for said in map(as_object, read_items(source, how, "messages.item")):
        author = as_object(said.get("author"))
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
                chat=f"discord:{channel}",
                at=moment(said.get("timestamp")),
            )


def read_telegram(source: Source, how: ImportRun) -> Items:
    """Read `result.json`: one chat, or all of an account."""
    place = "chats.list.item" if "chats" in source.shape[1] else ""
    for chat, _, _, value in read_members(source, how, place, "messages"):
        name = f"telegram:{chat.get('id') or digest(chat.get('name'))}"
        said = as_object(value)
        text = said.get("text")
        if isinstance(text, list):  # with links, mentions and formatted parts
            parts = [each.get("text") if isinstance(each, dict) else each for each in text]
            text = "".join(map(str, parts))
        if not said:  # the end of a chat
            continue
        if said.get("type") != "message":
            yield Skipped(SERVICE)
        elif not text:
            yield Skipped(MEDIA)
        else:
            yield _said_by(
                str(said.get("from") or said.get("from_id")),
                str(text),
                how,
                id=f"{name}:{said.get('id')}",
                chat=name,
                at=moment(said.get("date_unixtime")) or moment(said.get("date")),
            )


def read_whatsapp(source: Source, how: ImportRun) -> Items:
    """Read a chat exported as text. The order of day and month is decided over the whole file."""
    entries = list(_split_entries(read_text(source, how)))
    chat = _name_chat(source, entries)
    dates = [list(map(int, re.split(r"[./-]", stamp["date"]))) for stamp, _ in entries]
    order = "dmy"  # unless there are numbers that can be only something else
    if any(first > 31 for first, _, _ in dates):
        order = "ymd"
    elif any(second > 12 for _, second, _ in dates):
        order = "mdy"
    seen: Counter[str] = Counter()
    for (stamp, text), date in zip(entries, dates, strict=True):
        name, colon, said = text.partition(": ")
        is_notice = said.startswith(_BY_WHATSAPP)
        said = _EDITED.sub("", said.translate(_MARKS).strip()).rstrip()
        first, _, caption = said.partition("\n")
        if caption and _OMITTED.fullmatch(first):
            said, is_notice = caption, False
        if not colon or len(name) > 60 or _is_quoting(name):
            yield Skipped(SERVICE)
        elif not said or _OMITTED.fullmatch(said):
            yield Skipped(MEDIA)
        elif _DELETED.fullmatch(said.rstrip(".")):
            yield Skipped(DELETED)
        elif is_notice or _NOTICES.fullmatch(said):
            yield Skipped(SERVICE)
        else:
            # Not by the name of the file, which another export of the chat need not have.
            key = digest(stamp["date"], stamp["time"], name, said)
            seen[key] += 1
            yield _said_by(
                name.translate(_MARKS).strip(" ~\u202f\u00a0"),
                said,
                how,
                id=f"whatsapp:{key}-{seen[key]}",
                chat=chat,
                at=_read_stamp(stamp, dict(zip(order, date, strict=True))),
            )


def _name_chat(source: Source, entries: list[tuple[re.Match[str], str]]) -> str:
    """Return the name of a chat: that of its file, which an iPhone only gives to the archive."""
    name = _COPY.sub("", source.stem)
    if name == "_chat":
        first = [(stamp["date"], stamp["time"], text) for stamp, text in entries[:1]]
        name = _COPY.sub("", source.place) or digest(first)
    return f"whatsapp:{name}"


def _is_quoting(name: str) -> bool:
    """Return whether a quotation begins and does not end: this is a notice, and not a name.

    >>> _is_quoting('Bo changed the subject from "Move" to "Moving'), _is_quoting('"Bo"')
    (True, False)
    """
    pairs = (("“", "”"), ("„", "“"), ("«", "»"))
    is_open = any(name.rfind(start) > name.rfind(end) for start, end in pairs)
    return is_open or name.count('"') % 2 == 1


def has_stamps(head: bytes) -> bool:
    """Return whether a text begins like a chat exported from WhatsApp."""
    lines = decode(head).splitlines()[:10]
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


def _read_stamp(stamp: re.Match[str], numbers: Mapping[str, int]) -> datetime | None:
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
    chat: str,
    at: datetime | None,
    thread: str | None = None,
    other_name: str = "",
) -> Draft | Skipped:
    """Return what someone said; only the person's own name makes it the person's words.

    A session is a thread, or a day of a chat.
    """
    is_own = how.is_me(name) or (other_name and how.is_me(other_name))
    session = f"{chat}:{thread or (at and at.date().isoformat())}"
    return message(text, id=id, session=session, name=None if is_own else name, at=at)
