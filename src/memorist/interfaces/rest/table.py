"""The routes of the verb table: parse the arguments, call the client, return the result."""

from __future__ import annotations

import inspect
from dataclasses import asdict
from operator import attrgetter
from typing import Annotated, Any, Literal, get_type_hints

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BeforeValidator, StringConstraints, create_model

from ...client import Client
from ...manage.checkpoints import Checkpoints
from ...manage.privacy import FIELDS, Consent
from ...scoped import ScopedClient
from ...storage.changes import Event
from ...storage.proposals import Proposal
from ...types import Memory
from .. import verbs
from . import bodies
from .auth import ClientAccess, Requires
from .request import AuthenticatedRoute, declare

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
DECISION: Any = create_model(
    "Decision",
    __doc__="The decision about a proposal, without its value.",
    id=str,
    field=str,
    decided=str,
)
OWNERS = {"": ScopedClient, "consent": Consent, "checkpoints": Checkpoints}
SHOWN: dict[Any, Any] = {  # results that are returned in another form
    type(None): None,
    Proposal: DECISION,
    list[Event]: list[Annotated[dict[str, Any], BeforeValidator(asdict)]],
}


def with_etag(response: Response, memory: Memory) -> Memory:
    """Set the revision of a memory as its ETag, for `If-Match`."""
    response.headers["ETag"] = f'"{memory.revision}"'
    return memory


def add(verb: verbs.Verb) -> None:
    """Add the route of a verb."""
    method, path = verb.route.split()
    path = path[1:] if path.startswith("//") else f"/v1/memory{path}"  # //: not below it
    group, _, last = verb.method.rpartition(".")
    name = verb.name or last
    function = getattr(Client if verb.whole_client else OWNERS[group], last)
    result = get_type_hints(function)["return"]
    takes_actor = "actor" in inspect.signature(function).parameters

    async def endpoint(access: ClientAccess, response: Response, **values: Any) -> Any:
        for given in (values.pop("query", ()), values.pop("body", ())):
            values |= given
        place = {part: values.pop(part, None) for part in bodies.ScopeQuery.model_fields}
        if takes_actor:
            values["actor"] = access.caller.user
        target: Any = access.client
        if not verb.whole_client:
            target = access.caller.scope(access.client, **place)
        answer = await attrgetter(verb.method)(target)(**values)
        return with_etag(response, answer) if isinstance(answer, Memory) else answer

    parameters = [
        inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
        for each, annotation in _endpoint_parameters(verb, name, method, path).items()
    ]
    endpoint.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    routes.add_api_route(
        path,
        endpoint,
        methods=[method],
        name=name,
        description=verb.help,
        status_code=verb.status,
        response_model=SHOWN.get(result, result),
        responses=declare(404) if verb.may_be_missing else {},
    )


def _endpoint_parameters(verb: verbs.Verb, name: str, method: str, path: str) -> dict[str, Any]:
    """Return the parameters of an endpoint with their types.

    A body names the space itself, unless the path names something in it.
    """
    right = verb.right or ("read" if method == "GET" else "write")
    parameters: dict[str, Any] = {
        "response": Response,
        "access": Annotated[ClientAccess, Depends(Requires(right))],
    }
    fields: dict[str, Any] = {}
    for argument in verb.arguments:
        kind: Any = KINDS.get(argument.kind)
        if f"{{{argument.name}}}" in path:
            parameters[argument.name] = kind
        elif not argument.cli_only:
            default = ... if argument.required else argument.route_default
            fields[argument.name] = (kind | None if default is None else kind, default)
    model = name.title().replace("_", "") + "Body"
    names_space = False
    if fields and method in ("POST", "PUT"):
        names_space = "{" not in path
        base = bodies.SpaceBody if names_space else bodies.Body
        parameters["body"] = create_model(model, __base__=base, __doc__=verb.help, **fields)
        fields = {}
    if not verb.whole_client and not names_space:
        query = create_model(model, __base__=bodies.ScopeQuery, **fields)
        parameters["query"] = Annotated[query, Query()]
    return parameters


for _verb in verbs.VERBS:
    add(_verb)
