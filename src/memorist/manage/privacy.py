"""Whether memory is on, decided by the person: for a space, and for one session that is to leave no trace.

Any off wins: the environment, the settings, the space, or a session that is incognito. Where memory is off, nothing is
taken in by itself and nothing is recalled; looking, correcting, forgetting and saving on purpose still work. Of an
incognito session nothing is kept at all, and nothing is recalled in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..context import Context
from ..errors import InvalidInput, Refused
from ..ingest import validation
from ..ingest.privacy import INCOGNITO as INCOGNITO
from ..ingest.privacy import OFF as OFF
from ..ingest.privacy import Disabled, load, load_with_revision, note
from ..storage import space_settings
from ..storage.queries import SpaceSettings
from ..types import Labels, Scope

SHARED = "share:"  # begins the tag of what another space may recall; the name of that space follows


class Privacy:
    """The verbs for what a person decides about remembering, for one scope."""

    def __init__(self, ctx: Context, scope: Scope, labels: Labels) -> None:
        self._ctx, self._scope, self._labels = ctx, scope, labels

    async def settings(self) -> SpaceSettings:
        """What holds in this space."""
        return (await self._ctx.store.space_settings(self._scope, ()))[0]

    async def set(
        self,
        *,
        memory_enabled: bool | None = None,
        incognito_default: bool | None = None,
        sharing: bool | None = None,
        actor: str | None = None,
    ) -> SpaceSettings:
        """Turn memory in this space on or off, say whether its sessions begin incognito, and whether it shares.

        Of a space that shares, the person's other spaces may recall what was tagged `share:` and their name. Raises
        InvalidInput.
        """
        given = {
            "memory_enabled": memory_enabled,
            "incognito_default": incognito_default,
            "sharing": sharing,
        }
        for name, value in given.items():
            if not isinstance(value, bool | None):
                raise InvalidInput(f"{name} is True or False, not {value!r:.60}")
        validation.fields({"actor": actor})
        now = self._ctx.clock()
        async with self._ctx.store.transaction(self._scope) as tx:
            for name, value in given.items():
                if value is not None:
                    await space_settings.save(tx, name, value, at=now, actor=actor)
        return await self.settings()

    async def disabled_reason(self, session: str | None = None) -> str:
        """Why nothing is taken in or recalled in a session, this one unless another is named; empty if memory is on."""
        asked = self._labels.session if session is None else session
        return await disabled_reason(self._ctx, self._scope, asked)

    async def start_incognito(self, session: str | None = None) -> None:
        """Keep nothing of a session, this one unless another is named; recall nothing in it. Raises InvalidInput."""
        await self._incognito(session, is_on=True)

    async def end_incognito(self, session: str | None = None) -> None:
        """Remember and recall in a session as in any other from now on. Raises InvalidInput."""
        await self._incognito(session, is_on=False)

    async def _incognito(self, given: str | None, *, is_on: bool) -> None:
        session = self._labels.session if given is None else given
        if session is None:
            raise InvalidInput("Say which session: name it, or open the scope with `session`")
        session = validation.name("session", session)
        if is_on:  # from this moment on, whether the store can be reached or not
            note(self._ctx, self._scope, session, INCOGNITO)
        async with self._ctx.store.transaction(self._scope) as tx:
            await space_settings.set_incognito(tx, session, is_on, at=self._ctx.clock())
        if not is_on:
            note(self._ctx, self._scope, session, "")


async def load_disabled(ctx: Context, scope: Scope, sessions: Iterable[str | None]) -> Disabled:
    """Return in which of the sessions memory is disabled, and why."""
    return await load(ctx, ctx.store, scope, sessions)


async def disabled_reason(ctx: Context, scope: Scope, session: str | None) -> str:
    """Return why memory is off in a session; empty if it is on."""
    return (await load_disabled(ctx, scope, [session])).get(session, "")


async def check_recall(ctx: Context, scope: Scope, session: str | None) -> tuple[str, int | None]:
    """Return why nothing is recalled in a session, if so, and the revision of the scope."""
    disabled, revision = await load_with_revision(ctx, ctx.store, scope, [session])
    return disabled.get(session, ""), revision


async def traceable_session(ctx: Context, scope: Scope, session: str | None) -> str | None:
    """Return the session as the history may name it: None if it is incognito."""
    reason = await disabled_reason(ctx, scope, session)
    return None if reason == INCOGNITO else session


async def is_space_off(ctx: Context, scope: Scope) -> bool:
    """Whether memory is disabled in a space; one whose sessions are incognito still holds memories."""
    reasons = await load_disabled(ctx, scope, [None])
    return reasons.get(None, "") not in ("", INCOGNITO)


async def list_sharing(ctx: Context, scope: Scope) -> list[Scope]:
    """The other spaces of the same person that share something."""
    mine = [
        each
        for each in await ctx.store.scopes()
        if each == replace(scope, space=each.space) != scope
    ]
    return [each for each in mine if (await ctx.store.space_settings(each, ()))[0].sharing]


async def refuse_incognito(ctx: Context, scope: Scope, session: str | None) -> None:
    """Raises Refused in a session that leaves no trace."""
    if await disabled_reason(ctx, scope, session) == INCOGNITO:
        raise Refused(f"Not done: {INCOGNITO}")
