"""A memory on a server, for the command line and hooks: the verbs of `sync.py` as REST requests.

Most verbs are sent to the route that the verb table names. A verb without a route needs the
database itself, and says so.
"""

from __future__ import annotations

import inspect
import ipaddress
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, get_type_hints
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from .. import errors, storage
from ..errors import (
    InvalidInput,
    KeyRefused,
    MemoristError,
    NotFound,
    ProviderFailed,
    StoreUnavailable,
)
from ..manage.chat_list import Reply
from ..manage.checkpoints import Checkpoints
from ..manage.privacy import Consent, Privacy
from ..scoped import ScopedClient
from ..settings import Settings
from ..types import Filter, Labels, Message, Page, Receipt, Scope
from . import Json, Verb, list_routes

if TYPE_CHECKING:
    from ..manage.import_export import ImportReport

TIMEOUT = 30.0  # seconds without an answer
MAX_NAME = 100  # characters of the name of a file
UPLOAD_TIMEOUT = 600.0  # the server reads a whole file before it answers
GROUPS: dict[str, Any] = {
    "": ScopedClient,
    "privacy": Privacy,
    "consent": Consent,
    "checkpoints": Checkpoints,
}
_LOCAL = ("consent.approve", "consent.deny")  # routes answer in another form
ROUTES: dict[str, Verb] = {}  # by the name of the method
for _verb in list_routes():
    if _verb.method not in _LOCAL:
        ROUTES[_verb.method.removeprefix("rest.")] = _verb


def is_loopback(host: str) -> bool:
    """Return whether a host name means this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("localhost.example.com")
    (True, True, False)
    """
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: it would send the key to another server."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Remote:
    """The memory of a server. The key, not the caller, names tenant and user."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.url = settings.db.rstrip("/")
        is_local = is_loopback(urlsplit(self.url).hostname or "")
        self._open = build_opener(NoRedirects, *([ProxyHandler({})] if is_local else [])).open

    def scope(
        self, user: str, space: str | None = None, tenant: str | None = None, **labels: str | None
    ) -> RemoteScope:
        """Return the memory of the owner of the key, or of the user that a service key acts for."""
        if tenant is not None:
            raise InvalidInput(
                f"--tenant cannot be used with a server: the API key for {self.url} determines it"
            )
        if space is None and "space" in self.settings.model_fields_set:
            space = self.settings.space
        return RemoteScope(self, user, space, Labels(**labels))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise needs_database(self.url)

    def send(
        self,
        route: str,
        *,
        user: str = "",
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Send a request and return the JSON of the answer.

        Raises the error that the server reports; StoreUnavailable if there is no answer.
        """
        data = None if body is None else json.dumps(body, default=_to_json).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        with self._request(route, user, query or {}, data, headers) as answer:
            content = answer.read()
            return json.loads(content) if content else None

    def upload(
        self,
        route: str,
        file: IO[bytes],
        *,
        user: str,
        query: Mapping[str, Any],
        on_progress: Callable[[int, int], None],
    ) -> Json:
        """Send a file piece by piece, and return the last line of the answer.

        Raises as `send` does, and MemoristError if the server reports an error in that line.
        """
        # Without a body first: a key that is refused is told before a large file is sent.
        with suppress(InvalidInput):  # nothing to import
            self.send(route, user=user, query={**query, "dry_run": True})
        size = os.fstat(file.fileno()).st_size
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        line: Json = {"error": "The server ended the import: run the command again to continue"}
        try:
            with self._request(route, user, query, file, headers, UPLOAD_TIMEOUT) as answer:
                for text in answer:
                    line = json.loads(text)
                    if "read" in line:
                        on_progress(line["read"], line["total"])
        except StoreUnavailable as error:
            limit = "is the file larger than `max_upload_mb` of the server?"
            raise StoreUnavailable(f"{error} ({limit})") from error
        if not line.pop("done", False):
            raise MemoristError(line.get("error"))
        return line

    @contextmanager
    def _request(
        self,
        route: str,
        user: str,
        query: Mapping[str, Any],
        data: bytes | IO[bytes] | None,
        headers: dict[str, str],
        timeout: float = TIMEOUT,
    ) -> Iterator[HTTPResponse]:
        """Send a request, and translate the errors of the connection and the server."""
        method, path = route.split(maxsplit=1)
        headers = {"Accept": "application/json", **headers}
        if self.settings.key is not None:
            headers["Authorization"] = f"Bearer {self.settings.key.get_secret_value()}"
        if user:
            headers["X-Memorist-User"] = quote(user, safe="")
        url = f"{self.url}{path}"
        if query:
            url += f"?{urlencode(query, doseq=True)}"
        try:
            request = Request(url, data, headers, method=method)
            with self._open(request, timeout=timeout) as answer:
                yield answer
        except HTTPError as error:
            raise self._translate(error) from error
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise StoreUnavailable(f"Cannot reach the server {self.url}: {reason}") from error
        except ValueError as error:  # not a URL, or not JSON
            raise ProviderFailed(f"{self.url} is not the address of a Memorist server") from error

    def _translate(self, error: HTTPError) -> MemoristError:
        """Return the error that a server reports as `application/problem+json`."""
        where = f"{self.url} answered {error.code} {error.reason}"
        unknown = ProviderFailed(f"{where}: is it the address of a Memorist server?")
        try:
            problem = json.loads(error.read())
            name = problem["type"].removeprefix("urn:memorist:").title().replace("-", "")
            detail = str(problem["detail"])
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return unknown
        if error.code == 401:
            fault = "not valid" if self.settings.key else "missing"
            return KeyRefused(f"{self.url}: the API key is {fault}. Set MEMORIST_KEY")
        if error.code == 404 and detail == problem["title"]:  # no such route
            return unknown
        kind: type[MemoristError] | None = getattr(errors, name, None)
        if kind is None:
            kind = StoreUnavailable if error.code >= 500 else InvalidInput
        return kind(detail)


class RemoteVerbs:
    """Verbs of one scope, or of a group of it such as `privacy`, sent to the routes of a server."""

    def __init__(self, place: RemoteScope, group: str = "") -> None:
        self._place = place
        self._group = group

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        verb = ROUTES.get(f"{self._group}.{name}".lstrip("."))
        if verb is None:
            raise needs_database(self._place.server.url)
        function = getattr(GROUPS[self._group], name)

        def call(*args: Any, **options: Any) -> Any:
            given = inspect.signature(function).bind(None, *args, **options).arguments
            given |= given.pop("options", {})
            values = dict(list(given.items())[1:])  # without the scope
            answer = self._place.send(verb, values)
            result = get_type_hints(function)["return"]
            return None if result is type(None) else storage.load(result, answer)

        return call


class RemotePrivacy(RemoteVerbs):
    """The verbs for privacy. Their routes also answer whether memory is on."""

    def disabled_reason(self) -> str:
        reason: str = self._place.send(ROUTES["privacy.settings"], {})["reason"]
        return reason


class RemoteCheckpoints(RemoteVerbs):
    """The verbs for checkpoints. The routes of two of them are written by hand."""

    def save(self, thread: str, data: Mapping[str, Any]) -> None:
        path = f"/v1/memory/checkpoints/{quote(thread, safe='')}"
        self._place.request(f"PUT {path}", query=self._place.names, body=data)

    def load(self, thread: str) -> Json:
        saved: Json = self._place.send(ROUTES["load_checkpoint"], {"thread": thread})
        return saved


class RemoteScope(RemoteVerbs):
    """One scope of a server, with the verbs that need more than their route."""

    def __init__(self, server: Remote, user: str, space: str | None, labels: Labels) -> None:
        super().__init__(self)
        self.server = server
        self.labels = labels
        self.scope = Scope(user=user, space=space or "default")
        self.names = _drop_none({"space": space, "session": labels.session})
        self.privacy = RemotePrivacy(self, "privacy")
        self.checkpoints = RemoteCheckpoints(self, "checkpoints")
        self.consent = RemoteVerbs(self, "consent")

    def request(self, route: str, **given: Any) -> Any:
        """Send a request for this user."""
        return self.server.send(route, user=self.scope.user, **given)

    def send(self, verb: Verb, values: Mapping[str, Any]) -> Any:
        """Send the arguments of a verb to its route, in the path, the query or the body."""
        method, path = verb.route.split()
        rest = {}
        for name, value in _drop_none(values).items():
            if f"{{{name}}}" in path:
                path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
            elif name != "actor":  # the server takes it from the key
                rest[name.rstrip("_")] = value
        route = f"{method} {path}"
        names = self.names
        if method in ("GET", "DELETE"):
            return self.request(route, query=names | rest)
        if route != verb.route:  # it names something in the space
            return self.request(route, query=names, body=rest or None)
        if not (verb.has_labels or verb.body == "SessionBody" or verb.method == "rest.query"):
            names = {name: value for name, value in names.items() if name == "space"}
        return self.request(route, body=names | rest)

    def remember(self, what: Any, **options: Any) -> Receipt:
        """Store a text or messages."""
        route, body = "POST /v1/memory/entries", {"text": what}
        if not isinstance(what, str):
            route = "POST /v1/memory/messages"
            listed = [what] if isinstance(what, (Message, Mapping)) else what
            messages = []
            for each in listed:
                message = asdict(each) if isinstance(each, Message) else each
                messages.append(_drop_none(message))
            if not messages:
                return Receipt(())
            body = {"messages": messages}
        body = self.names | _drop_none(options) | body
        return storage.load(Receipt, self.request(route, body=body))

    def import_files(
        self,
        path: str,
        *,
        on_progress: Callable[[int, int], None],
        since: datetime | str | None = None,
        **options: Any,
    ) -> ImportReport:
        """Send a file, or a ZIP archive of a folder, to be imported, and return the receipt.

        What cannot be read is left out, and named in the receipt.
        """
        from ..manage.import_export import ImportReport  # with numpy, which verbs do without

        name = Path(path).resolve().name
        if Path(path).is_dir():
            name += ".zip"
        given = {"name": name[-MAX_NAME:], "since": since, "from": options.pop("from_"), **options}
        query = self.names | _drop_none(given)
        with _open_upload(Path(path)) as (file, damages):
            answer = self.server.upload(
                "POST /v1/memory/import/file",
                file,
                user=self.scope.user,
                query=query,
                on_progress=on_progress,
            )
        counts = ("formats", "outcomes", "skipped", "refused")
        report = ImportReport(**answer | {name: Counter(answer[name]) for name in counts})
        report.skipped.update(f"damaged: {each}" for each in damages)
        return report

    def list(
        self, where: Filter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page:
        """Return a page of memories."""
        given = {"where": where, "limit": min(limit, 1000), "cursor": cursor}
        page = self.send(ROUTES["list_where"], given)
        return storage.load(Page, {"memories": page["entries"], "cursor": page["cursor"]})

    def delta(self, since: int | None = None, *, thread: str | None = None) -> Any:
        """Return what changed in a thread."""
        values = {"since": since, "thread": thread or self.labels.session}
        return super().__getattr__("delta")(**values)

    def history(self, id: str | None = None, *, limit: int = 100) -> Any:
        """Return the history of a memory, or of all."""
        verb = ROUTES["history" if id is None else "memory_history"]
        answer = self.send(verb, {"id": id, "limit": min(limit, 1000)})
        return storage.load(get_type_hints(ScopedClient.history)["return"], answer)

    def command(self, text: str, *, about: Sequence[str] = (), **_: Any) -> Reply | None:
        """Carry out a chat command; None if the text is not one."""
        body = {**self.names, "text": text, "about": list(about)}
        answer = self.request("POST /v1/memory/say", body=body)
        return storage.load(Reply, answer) if answer["command"] else None


def needs_database(url: str) -> InvalidInput:
    """Return the error of a command that a server does not offer."""
    return InvalidInput(
        f"This command needs the database itself: run it on that machine, not through {url}"
    )


@contextmanager
def _open_upload(path: Path) -> Iterator[tuple[IO[bytes], list[str]]]:
    """Open a file, or a ZIP archive of a folder and what in it is damaged. Raises NotFound."""
    from ..readers import archive  # with numpy, which verbs do without

    if not path.exists():
        raise NotFound(f"No such file or folder: {str(path)!r}")
    with tempfile.TemporaryFile() if path.is_dir() else open(path, "rb") as file:
        damages = archive.pack(path, file) if path.is_dir() else []
        file.seek(0)
        yield file, damages


def _drop_none(values: Mapping[str, Any]) -> Json:
    return {name: value for name, value in values.items() if value is not None}


def _to_json(value: Any) -> Any:
    """Return a time as text, and a filter as the fields that restrict something."""
    if isinstance(value, datetime):
        return value.isoformat()
    if not isinstance(value, Filter):
        raise TypeError(f"{type(value).__name__} cannot be sent to a server")
    usual = asdict(Filter())
    given = {name: each for name, each in asdict(value).items() if each != usual[name]}
    return given | _drop_none(given.pop("labels", {}))
