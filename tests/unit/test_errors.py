"""Which errors say that the same call may work later."""

import memorist
from memorist import MemoristError


def errors_below(parent: type[MemoristError]) -> set[type[MemoristError]]:
    children = parent.__subclasses__()
    return {parent, *children}.union(*map(errors_below, children))


def test_an_error_that_may_go_away_by_itself_says_so() -> None:
    own = [
        each for each in errors_below(MemoristError) if each.__module__ == memorist.errors.__name__
    ]
    assert {each.__name__ for each in own if each.retry} == {
        "Busy",
        "EmbedderUnavailable",
        "IndexUnavailable",
        "ModelUnavailable",
        "RevisionConflict",
        "StoreFull",
        "StoreUnavailable",
    }
