"""The routes of the verb table: parse the arguments, call the client, return the result."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import asdict
from operator import attrgetter
from typing import Annotated, Any, Literal, get_type_hints

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, StringConstraints, create_model

from ...client import Client
from ...manage.checkpoints import Checkpoints
from ...manage.consent import FIELDS, Consent
from ...scoped import ScopedClient
from ...storage.changes import Event
from ...storage.proposals import Proposal
from ...types import Memory
from .. import verbs
from . import bodies
from .auth import Caller, Requires
from .problems import declared
from .route import AuthenticatedRoute

routes = APIRouter(route_class=AuthenticatedRoute)
KINDS: dict[str, Any] = {
    "id": bodies.Id,
    "name": bodies.Name,
    "word": bodies.Word,
    "text": str,
    "value": Annotated[bodies.Text, StringConstraints(max_length=200)],
    "count": bodies.Count,
    "tokens": bodies.Tokens,
    "days": bodies.Days,
    "revision": bodies.Revision,
    "flag": bool,
    "node": Literal["hotpath", "context", "episodic", "worker"],
    "field": Literal[FIELDS],
}


class Decision(BaseModel):
    """The decision about a proposal, without its value."""

    id: str
    field: str
    decided: str


def decision(proposal: Proposal) -> Decision:
    return Decision(id=proposal.id, field=proposal.field, decided=proposal.decided or "")


OWNERS = {"": ScopedClient, "consent": Consent, "checkpoints": Checkpoints}
# Results that are returned in another form.
CONVERTED: dict[Any, tuple[Any, Callable[[Any], Any]]] = {
    Proposal: (Decision, decision),
    list[Event]: (list[dict[str, Any]], lambda events: [asdict(each) for each in events]),
}


def with_etag(response: Response, memory: Memory) -> Memory:
    """Set the revision of a memory as its ETag, for `If-Match`."""
    response.headers["ETag"] = f'"{memory.revision}"'
    return memory


class SpaceBody(bodies.Body):
    """A request body that names a space."""

    space: bodies.Name | None = None


def add(verb: verbs.Verb) -> None:
    """Add the route of a verb."""
    method, path = verb.route.split()
    path = path[1:] if path.startswith("//") else f"/v1/memory{path}"  # //: not below it
    group, _, name = verb.method.rpartition(".")
    owner = Client if verb.whole_client else OWNERS[group]
    function = getattr(owner, name)
    result = get_type_hints(function)["return"]
    shown, convert = CONVERTED.get(result, (result, None))
    takes_actor = "actor" in inspect.signature(function).parameters
    parameters, given = _parameters(verb, method, path)

    async def endpoint(request: Request, response: Response, caller: Caller, **values: Any) -> Any:
        query, body = values.pop("query", None), values.pop("body", None)
        for name in given:
            values[name] = getattr(body or query, name)
        if takes_actor:
            values["actor"] = caller.user
        target: Any = bodies.client_of(request)
        if not verb.whole_client:
            target = bodies.scope_of(request, caller, query or body)
        answer = await attrgetter(verb.method)(target)(**values)
        if isinstance(answer, Memory):
            return with_etag(response, answer)
        return convert(answer) if convert else answer

    endpoint.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
            for name, annotation in parameters.items()
        ]
    )
    routes.add_api_route(
        path,
        endpoint,
        methods=[method],
        name=_name(verb),
        description=verb.help,
        status_code=verb.status,
        response_model=None if result is type(None) else shown,
        responses=declared(404) if verb.may_be_missing else {},
    )


def _parameters(verb: verbs.Verb, method: str, path: str) -> tuple[dict[str, Any], list[str]]:
    """Return the parameters of an endpoint, and the names of the arguments in its query or body.

    A body names the space itself, unless the path names something in it.
    """
    right = verb.right or ("read" if method == "GET" else "write")
    parameters: dict[str, Any] = {
        "request": Request,
        "response": Response,
        "caller": Annotated[Caller, Depends(Requires(right))],
    }
    in_path = re.findall(r"{(\w+)}", path)
    fields: dict[str, Any] = {}
    for argument in verb.arguments:
        kind: Any = KINDS.get(argument.kind)
        if argument.name in in_path:
            parameters[argument.name] = kind
        elif not argument.cli_only:
            is_required = argument.default is verbs.REQUIRED
            kind = kind | None if argument.default is None else kind
            fields[argument.name] = (kind, ... if is_required else argument.default)
    has_body = bool(fields) and method in ("POST", "PUT")
    name = _name(verb).title().replace("_", "") + "Body"
    if has_body:
        base = bodies.Body if in_path else SpaceBody
        parameters["body"] = create_model(name, __base__=base, __doc__=verb.help, **fields)
    if not verb.whole_client and not (has_body and not in_path):
        query = fields if not has_body else {}
        model = create_model(name, __base__=bodies.ScopeQuery, **query)
        parameters["query"] = Annotated[model, Query()]
    return parameters, list(fields)


def _name(verb: verbs.Verb) -> str:
    return verb.name or verb.method.rpartition(".")[2]


for _verb in verbs.VERBS:
    add(_verb)
