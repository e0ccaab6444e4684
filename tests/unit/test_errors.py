"""Which errors say that the same call may work later."""

import recollect
from recollect import RecollectError


def errors_below(parent: type[RecollectError]) -> set[type[RecollectError]]:
    children = parent.__subclasses__()
    return {parent, *children}.union(*map(errors_below, children))


def test_an_error_that_may_go_away_by_itself_says_so() -> None:
    own = [each for each in errors_below(RecollectError) if each.__module__ == recollect.errors.__name__]
    assert {each.__name__ for each in own if each.retry} == {
        "Conflict",
        "EmbedderUnavailable",
        "IndexUnavailable",
        "ModelUnavailable",
        "StoreFull",
        "StoreUnavailable",
    }
