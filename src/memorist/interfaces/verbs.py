"""The verb table: each entry becomes a REST route, a command, or both.

A verb is listed here if the interfaces only parse its arguments, call one method of the client and
render what it returns. `rest/table.py` builds the routes and `cli/table.py` the commands. How a result
is printed depends on its type alone. Everything else is written by hand in those two packages.

This module imports nothing heavy, because `memorist --help` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal[
    "id",
    "name",
    "word",
    "text",
    "value",
    "count",
    "tokens",
    "days",
    "revision",
    "flag",
    "time",
    "node",
    "field",
]
REQUIRED: Any = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of a verb. Required arguments are positional on the command line."""

    name: str
    kind: Kind
    help: str
    default: Any = REQUIRED
    cli_default: Any = REQUIRED  # if it differs from `default`
    only: Literal["rest", "cli"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A method of the client with its route and its command."""

    name: str  # of the route, in OpenAPI
    method: str  # of a ScopedClient, such as `pin` or `consent.approve`
    help: str
    right: str = "read"
    route: str = ""  # such as `GET /stats`, below /v1/memory
    prefix: str = "/v1/memory"
    status: int = 200
    errors: tuple[int, ...] = ()  # HTTP statuses that are not common to all routes
    command: str = ""  # such as `stats` or `jobs purge`
    panel: str = ""  # of the help, for commands outside a group
    example: str = ""  # what stands behind the command
    arguments: tuple[Argument, ...] = ()
    all_users: bool = False  # the command has --all, which calls the same method of the client
    whole_client: bool = False  # a method of the client itself: not about one scope
    creates: bool = False  # the command may create the database
    one_document: bool = False  # --json prints a list as one document instead of one item per line
    empty: str = ""  # what the command notes if the result is empty


BROWSE, CHANGE = "Browse", "Change"
SAMPLE = "019a3c5e-7ddf-7926-adf6-688e0fc76dd8"

ID = Argument(name="id", kind="id", help="Id of the memory, or the first characters of it.")
LIMIT = Argument(name="limit", kind="count", help="Maximum number of results.", default=100)
DAYS = Argument(name="days", kind="days", help="Number of days to look back.", default=30)
DRY_RUN = Argument(
    name="dry_run", kind="flag", help="Only report what would be done.", default=False
)
PROPOSAL = Argument(name="id", kind="id", help="Id of the proposal, or its first characters.")
FIELD = Argument(name="field", kind="field", help="Name of the field.")
THREAD = Argument(name="thread", kind="name", help="A thread or session.")

VERBS: tuple[Verb, ...] = (
    Verb(
        name="get_entry",
        method="get",
        help="Return one memory, in any state.",
        route="GET /entries/{id}",
        errors=(404,),
        arguments=(ID,),
    ),
    Verb(
        name="pin",
        method="pin",
        help="Pin a memory. Pinned memories are never trimmed, expired or hidden for low importance.",
        right="write",
        route="POST /entries/{id}/pin",
        errors=(404,),
        command="pin",
        panel=CHANGE,
        example=SAMPLE,
        arguments=(ID,),
    ),
    Verb(
        name="unpin",
        method="unpin",
        help="Unpin a memory.",
        right="write",
        route="DELETE /entries/{id}/pin",
        errors=(404,),
        command="unpin",
        panel=CHANGE,
        example=SAMPLE,
        arguments=(ID,),
    ),
    Verb(
        name="restore",
        method="restore",
        help="Restore a memory that was hidden, trimmed, expired or archived.",
        right="write",
        route="POST /entries/{id}/restore",
        errors=(404, 409),
        command="restore",
        panel=CHANGE,
        example=SAMPLE,
        arguments=(ID,),
    ),
    Verb(
        name="why",
        method="why",
        help="Show the evidence of a memory: the messages and memories it was derived from.",
        route="GET /entries/{id}/why",
        errors=(404,),
        command="why",
        panel=BROWSE,
        example=SAMPLE,
        arguments=(ID,),
    ),
    Verb(
        name="why_not",
        method="why_not",
        help="Explain how a memory ranks for a question, and why it was returned or left out.",
        route="GET /entries/{id}/why_not",
        errors=(404,),
        command="why-not",
        panel=BROWSE,
        example=f'"where does she live?" {SAMPLE}',
        arguments=(
            Argument(name="query", kind="text", help="The question."),
            ID,
            Argument(name="limit", kind="count", help="Maximum number of memories.", default=None),
            Argument(name="budget", kind="tokens", help="Token budget.", default=None, only="cli"),
            Argument(
                name="as_of", kind="time", help="What held at that time.", default=None, only="cli"
            ),
            Argument(
                name="profile",
                kind="name",
                help="Ranking profile. [MEMORIST_PROFILE]",
                default=None,
                only="cli",
            ),
        ),
    ),
    Verb(
        name="related",
        method="related",
        help="List memories about the same topic, closest first.",
        route="GET /entries/{id}/related",
        errors=(404,),
        command="related",
        panel=BROWSE,
        example=SAMPLE,
        arguments=(
            ID,
            Argument(
                name="limit",
                kind="count",
                help="Maximum number of results.",
                default=100,
                cli_default=10,
            ),
        ),
        empty="Nothing is linked to it.",
    ),
    Verb(
        name="entry_history",
        method="history",
        help="List the history of a memory, newest first. It outlives the memory.",
        route="GET /entries/{id}/history",
        arguments=(ID, LIMIT),
    ),
    Verb(
        name="history",
        method="history",
        help="List the history of a space, newest first.",
        route="GET /history",
        arguments=(LIMIT,),
    ),
    Verb(
        name="memory_history",
        method="history",
        help="List the history of a memory, newest first.",
        route="GET /memory/{id}/history",
        prefix="",
        arguments=(ID, LIMIT),
    ),
    Verb(
        name="delta",
        method="delta",
        help="Show what changed in a thread after a revision.",
        route="GET /delta",
        command="agent delta",
        example="thread-1 --since 4",
        arguments=(
            THREAD,
            Argument(
                name="since",
                kind="revision",
                help="Revision to start from; by default where the last call ended.",
                default=0,
                cli_default=None,
            ),
        ),
    ),
    Verb(
        name="conflicts",
        method="conflicts",
        help="List newer statements that replaced older ones and await a decision, newest first.",
        route="GET /conflicts",
        command="conflicts list",
        example="--limit 5",
        arguments=(LIMIT,),
        empty="No conflicts await a decision.",
    ),
    Verb(
        name="confirm",
        method="confirm",
        help="Keep the newer statement of a conflict.",
        right="write",
        route="POST /conflicts/{id}/confirm",
        errors=(404,),
        command="conflicts confirm",
        example=SAMPLE,
        arguments=(ID,),
    ),
    Verb(
        name="reject",
        method="reject",
        help="Restore the older statement of a conflict instead of the newer one.",
        right="write",
        route="POST /conflicts/{id}/reject",
        errors=(404,),
        command="conflicts reject",
        example=SAMPLE,
        arguments=(ID,),
    ),
    Verb(
        name="consent",
        method="consent.list",
        help="List proposals about the person that await their consent, oldest first.",
        route="GET /consent",
        command="consent list",
        empty="No proposals await your consent.",
    ),
    Verb(
        name="approve",
        method="consent.approve",
        help="Approve a proposal: its value takes effect.",
        right="write",
        route="POST /consent/{id}/approve",
        errors=(404,),
        command="consent approve",
        example=SAMPLE,
        arguments=(PROPOSAL,),
    ),
    Verb(
        name="deny",
        method="consent.deny",
        help="Erase a proposal for good. The same value is not proposed again.",
        right="write",
        route="POST /consent/{id}/deny",
        errors=(404,),
        command="consent deny",
        example=SAMPLE,
        arguments=(PROPOSAL,),
    ),
    Verb(
        name="about",
        method="consent.about",
        help="Show the person's name, pronouns, city, language, tone and goals, as far as consented.",
        route="GET /about",
        command="consent about",
    ),
    Verb(
        name="set_about",
        method="consent.set",
        help="Set a field about the person in their own words. It takes effect at once.",
        right="write",
        route="PUT /about/{field}",
        command="consent set",
        example="tone brief",
        arguments=(FIELD, Argument(name="value", kind="value", help="The new value.")),
    ),
    Verb(
        name="checkpoints",
        method="checkpoints.list",
        help="List threads that have a checkpoint, the most recently saved first.",
        route="GET /checkpoints",
        arguments=(LIMIT,),
    ),
    Verb(
        name="load_checkpoint",
        method="checkpoints.load",
        help="Return the last checkpoint of a thread.",
        route="GET /checkpoints/{thread}",
        errors=(404,),
        arguments=(THREAD,),
    ),
    Verb(
        name="delete_checkpoint",
        method="checkpoints.delete",
        help="Delete the checkpoint of a thread.",
        right="write",
        route="DELETE /checkpoints/{thread}",
        status=204,
        errors=(404,),
        arguments=(THREAD,),
    ),
    Verb(
        name="stats",
        method="stats",
        help="Count what is stored.",
        route="GET /stats",
        command="stats summary",
        example="--all",
        all_users=True,
    ),
    Verb(
        name="events",
        method="events",
        help="List what the components did, newest first. Events contain no text of memories.",
        route="GET /events",
        command="stats events",
        example="--limit 20",
        arguments=(
            LIMIT,
            Argument(
                name="node",
                kind="node",
                help="Component: hotpath, context, episodic or worker.",
                default=None,
            ),
            Argument(
                name="op", kind="word", help="Operation: create, search, merge, …", default=None
            ),
        ),
    ),
    Verb(
        name="event_counts",
        method="event_counts",
        help="Count the events of the components by day.",
        route="GET /event_counts",
        command="stats event-counts",
        example="--days 7",
        arguments=(DAYS,),
    ),
    Verb(
        name="costs",
        method="llm_usage",
        help="List the tokens that the language model used, by day, task and model.",
        route="GET /costs",
        arguments=(DAYS,),
    ),
    Verb(
        name="backlog",
        method="backlog",
        help="Show how many jobs are waiting, since when, and which ones fail.",
        right="admin",
        route="GET /backlog",
        command="jobs backlog",
        example="--json",
        whole_client=True,
        one_document=True,
        empty="No jobs are waiting.",
    ),
    Verb(
        name="recall_shared",
        method="recall_shared",
        help="Recall what the person's other spaces share with this one: one answer per space.",
        route="POST /shared",
        arguments=(
            Argument(name="query", kind="text", help="The question."),
            Argument(name="limit", kind="count", help="Maximum number of memories.", default=None),
            Argument(name="budget", kind="tokens", help="Token budget.", default=None),
        ),
    ),
    Verb(
        name="purge",
        method="purge",
        help="Archive memories that have not been used for long, and erase those archived for long.",
        right="write",
        route="POST /purge",
        arguments=(DRY_RUN,),
    ),
    Verb(
        name="compress",
        method="compress",
        help="Summarize the oldest sessions, one memory each, if there are more than the threshold.",
        right="write",
        route="POST /compress",
        command="jobs compress",
        example="--dry-run",
        arguments=(
            Argument(
                name="threshold", kind="count", help="Number of sessions to keep.", default=None
            ),
            Argument(
                name="sessions",
                kind="count",
                help="Number of sessions to summarize; by default half the threshold.",
                default=None,
            ),
            DRY_RUN,
        ),
        creates=True,
    ),
    Verb(
        name="roll_up",
        method="roll_up",
        help="Summarize old memories, one memory per topic. The originals are archived.",
        right="write",
        route="POST /roll_up",
        command="jobs roll-up",
        example="--days 180 --dry-run",
        arguments=(
            Argument(name="days", kind="days", help="Days without use.", default=90),
            DRY_RUN,
        ),
        creates=True,
    ),
    Verb(
        name="extract",
        method="extract",
        help="Extract facts from a message now. Each fact keeps it as its evidence.",
        right="write",
        route="POST /entries/{id}/extract",
        errors=(404, 409),
        command="jobs extract",
        example=SAMPLE,
        arguments=(ID,),
        creates=True,
    ),
)
