"""The page where a person sees and steers their memory: at `/` of the server, with no build step, all files ours."""

from __future__ import annotations

from fastapi import FastAPI

from . import actions, login
from . import pages as views
from .request import pages, routes
from .sessions import Sessions

PARTS = (login, views, actions)  # which have put what they answer into `routes`


def mount(app: FastAPI) -> None:
    """Add the page to a server."""
    app.state.sessions = Sessions()
    for name in pages.list_templates():
        pages.get_template(name)  # read now, so that the first visitor does not wait for it
    for path, method, handle in routes:
        app.add_route(path, handle, methods=[method], include_in_schema=False)
