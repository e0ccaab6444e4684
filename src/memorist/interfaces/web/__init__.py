"""The web page at `/` of the server, where people see and manage their memories."""

from __future__ import annotations

from fastapi import FastAPI

from . import pages as pages  # importing them registers their routes
from .request import Sessions, routes, templates


def mount(app: FastAPI) -> None:
    """Add the page to a server."""
    app.state.sessions = Sessions()
    for name in templates.list_templates():
        templates.get_template(name)  # compile now, so that the first visitor does not wait for it
    for path, method, handle in routes:
        app.add_route(path, handle, methods=[method], include_in_schema=False)
