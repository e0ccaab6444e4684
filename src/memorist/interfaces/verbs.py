"""The verb table: each entry becomes a REST route, a command, or both.

A verb is listed here if the interfaces only parse its arguments, call one method of the client and
render what it returns. `rest/table.py` builds the routes and `cli/app.py` the commands. How a
result is printed depends on its type alone. Everything else is written by hand in those packages.

This module imports nothing heavy, because `memorist --help` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from inspect import Parameter
from typing import Any

REQUIRED: Any = Parameter.empty
SAMPLE = "019a3c5e-7ddf-7926-adf6-688e0fc76dd8"  # an id, for examples


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a verb. Required arguments are positional on the command line."""

    name: str
    kind: str  # `rest/table.py` and `cli/app.py` map it to a type
    help: str
    default: Any = REQUIRED
    cli_default: Any = REQUIRED  # if it differs from `default`
    cli_only: bool = False


@dataclass(frozen=True, slots=True)
class Verb:
    """A method of the client with its route and its command."""

    method: str  # of a ScopedClient, such as `pin` or `consent.approve`
    route: str  # such as `GET /stats`, below /v1/memory
    command: str  # such as `pin` or `jobs purge`; empty: no command
    help: str
    arguments: tuple[Argument, ...] = ()
    name: str = ""  # of the route in OpenAPI, if it differs from the last word of the method
    right: str = ""  # by default `read` for GET, else `write`
    may_be_missing: bool = False  # the route answers 404 if there is no such thing
    status: int = 200
    panel: str = ""  # of the help, for commands outside a group
    example: str = ""  # what follows the command
    whole_client: bool = False  # a method of the client itself: not about one scope
    creates: bool = False  # the command may create the database
    one_document: bool = False  # --json prints a list as one document instead of one item per line
    empty: str = ""  # what the command notes if the result is empty


BROWSE = "Browse"
CHANGE = "Change"
ID = Argument("id", "id", "Id of the memory, or the first characters of it.")
PROPOSAL = Argument("id", "id", "Id of the proposal, or the first characters of it.")
QUERY = Argument("query", "text", "The question.")
THREAD = Argument("thread", "name", "A thread or session.")
LIMIT = Argument("limit", "count", "Maximum number of results.", 100)
ANY_LIMIT = replace(LIMIT, default=None)
BUDGET = Argument("budget", "tokens", "Token budget.", None)
DAYS = Argument("days", "days", "Number of days to look back.", 30)
ALL = Argument("all", "flag", "For all users, not only for --user.", False, cli_only=True)
DRY_RUN = Argument("dry_run", "flag", "Only report what would be done.", False)


def _about_one(
    method: str,
    route: str,
    command: str,
    help: str,
    *more: Argument,
    of: Argument = ID,
    **rest: Any,
) -> Verb:
    """Return a verb about one memory or proposal, named by its id."""
    options = {"may_be_missing": True, "example": SAMPLE, **rest}
    return Verb(method, route, command, help, (of, *more), **options)


VERBS: tuple[Verb, ...] = (
    _about_one(
        "get", "GET /entries/{id}", "", "Return one memory, in any state.", name="get_entry"
    ),
    _about_one(
        "pin",
        "POST /entries/{id}/pin",
        "pin",
        "Pin a memory. Pinned memories are never trimmed, expired or hidden for low importance.",
        panel=CHANGE,
    ),
    _about_one("unpin", "DELETE /entries/{id}/pin", "unpin", "Unpin a memory.", panel=CHANGE),
    _about_one(
        "restore",
        "POST /entries/{id}/restore",
        "restore",
        "Restore a memory that was hidden, trimmed, expired or archived.",
        panel=CHANGE,
    ),
    _about_one(
        "why",
        "GET /entries/{id}/why",
        "why",
        "Show the evidence of a memory: the messages and memories it was derived from.",
        panel=BROWSE,
    ),
    Verb(
        "why_not",
        "GET /entries/{id}/why_not",
        "why-not",
        "Explain how a memory ranks for a question, and why it was returned or left out.",
        (
            QUERY,
            ID,
            ANY_LIMIT,
            replace(BUDGET, cli_only=True),
            Argument("as_of", "time", "What held at that time.", None, cli_only=True),
            Argument("profile", "name", "Ranking profile. [MEMORIST_PROFILE]", None, cli_only=True),
        ),
        may_be_missing=True,
        panel=BROWSE,
        example=f'"where does she live?" {SAMPLE}',
    ),
    _about_one(
        "related",
        "GET /entries/{id}/related",
        "related",
        "List memories about the same topic, closest first.",
        replace(LIMIT, cli_default=10),
        panel=BROWSE,
        empty="Nothing is linked to it.",
    ),
    Verb(
        "history",
        "GET /entries/{id}/history",
        "",
        "List the history of a memory, newest first. It outlives the memory.",
        (ID, LIMIT),
        name="entry_history",
    ),
    Verb("history", "GET /history", "", "List the history of a space, newest first.", (LIMIT,)),
    Verb(
        "history",
        "GET //memory/{id}/history",
        "",
        "List the history of a memory, newest first.",
        (ID, LIMIT),
        name="memory_history",
    ),
    Verb(
        "delta",
        "GET /delta",
        "agent delta",
        "Show what changed in a thread after a revision.",
        (
            THREAD,
            Argument(
                "since",
                "revision",
                "Revision to start from; by default where the last call ended.",
                0,
                None,
            ),
        ),
        example="thread-1 --since 4",
    ),
    Verb(
        "conflicts",
        "GET /conflicts",
        "conflicts list",
        "List newer statements that replaced older ones and await a decision, newest first.",
        (LIMIT,),
        example="--limit 5",
        empty="No conflicts await a decision.",
    ),
    _about_one(
        "confirm",
        "POST /conflicts/{id}/confirm",
        "conflicts confirm",
        "Keep the newer statement of a conflict.",
    ),
    _about_one(
        "reject",
        "POST /conflicts/{id}/reject",
        "conflicts reject",
        "Restore the older statement of a conflict instead of the newer one.",
    ),
    Verb(
        "consent.list",
        "GET /consent",
        "consent list",
        "List proposals about the person that await their consent, oldest first.",
        name="consent",
        empty="No proposals await your consent.",
    ),
    _about_one(
        "consent.approve",
        "POST /consent/{id}/approve",
        "consent approve",
        "Approve a proposal: its value takes effect.",
        of=PROPOSAL,
    ),
    _about_one(
        "consent.deny",
        "POST /consent/{id}/deny",
        "consent deny",
        "Erase a proposal for good. The same value is not proposed again.",
        of=PROPOSAL,
    ),
    Verb(
        "consent.about",
        "GET /about",
        "consent about",
        "Show the person's name, pronouns, city, language, tone and goals, as far as consented.",
    ),
    Verb(
        "consent.set",
        "PUT /about/{field}",
        "consent set",
        "Set a field about the person in their own words. It takes effect at once.",
        (
            Argument("field", "field", "Name of the field."),
            Argument("value", "value", "The new value."),
        ),
        name="set_about",
        example="tone brief",
    ),
    Verb(
        "checkpoints.list",
        "GET /checkpoints",
        "",
        "List threads that have a checkpoint, the most recently saved first.",
        (LIMIT,),
        name="checkpoints",
    ),
    Verb(
        "checkpoints.load",
        "GET /checkpoints/{thread}",
        "",
        "Return the last checkpoint of a thread.",
        (THREAD,),
        name="load_checkpoint",
        may_be_missing=True,
    ),
    Verb(
        "checkpoints.delete",
        "DELETE /checkpoints/{thread}",
        "",
        "Delete the checkpoint of a thread.",
        (THREAD,),
        name="delete_checkpoint",
        may_be_missing=True,
        status=204,
    ),
    Verb(
        "stats",
        "GET /stats",
        "stats summary",
        "Count what is stored.",
        (ALL,),
        example="--all",
    ),
    Verb(
        "events",
        "GET /events",
        "stats events",
        "List what the components did, newest first. Events contain no text of memories.",
        (
            LIMIT,
            Argument("node", "node", "Component: hotpath, context, episodic or worker.", None),
            Argument("op", "word", "Operation: create, search, merge, …", None),
        ),
        example="--limit 20",
    ),
    Verb(
        "event_counts",
        "GET /event_counts",
        "stats event-counts",
        "Count the events of the components by day.",
        (DAYS,),
        example="--days 7",
    ),
    Verb(
        "llm_usage",
        "GET /costs",
        "",
        "List the tokens that the language model used, by day, task and model.",
        (DAYS,),
        name="costs",
    ),
    Verb(
        "backlog",
        "GET /backlog",
        "jobs backlog",
        "Show how many jobs are waiting, since when, and which ones fail.",
        right="admin",
        example="--json",
        whole_client=True,
        one_document=True,
        empty="No jobs are waiting.",
    ),
    Verb(
        "recall_shared",
        "POST /shared",
        "",
        "Recall what the person's other spaces share with this one: one answer per space.",
        (QUERY, ANY_LIMIT, BUDGET),
        right="read",
    ),
    Verb(
        "purge",
        "POST /purge",
        "",
        "Archive memories that have not been used for long, and erase those archived for long.",
        (DRY_RUN,),
    ),
    Verb(
        "compress",
        "POST /compress",
        "jobs compress",
        "Summarize the oldest sessions, one memory each, if there are more than the threshold.",
        (
            Argument("threshold", "count", "Number of sessions to keep.", None),
            Argument(
                "sessions", "count", "Number to summarize; default: half the threshold.", None
            ),
            DRY_RUN,
        ),
        example="--dry-run",
        creates=True,
    ),
    Verb(
        "roll_up",
        "POST /roll_up",
        "jobs roll-up",
        "Summarize old memories, one memory per topic. The originals are archived.",
        (Argument("days", "days", "Days without use.", 90), DRY_RUN),
        example="--days 180 --dry-run",
        creates=True,
    ),
    _about_one(
        "extract",
        "POST /entries/{id}/extract",
        "jobs extract",
        "Extract facts from a message now. Each fact keeps it as its evidence.",
        creates=True,
    ),
)
