"""A circuit breaker: a language model that failed several times is not asked for a while, so that
nobody waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..errors import BadModelAnswer, ModelUnavailable
from ..ports import LanguageModel
from ..providers.http import Circuit
from ..results import Answer, Ask


class Breaker:
    """Wraps a LanguageModel: after three failures in a row, it is not asked for 30 s or more."""

    def __init__(
        self, inner: LanguageModel, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.inner = inner
        self._circuit = Circuit(clock)

    @property
    def name(self) -> str:
        return self.inner.name

    def check(self) -> None:
        """Raise ModelUnavailable while the model is not asked."""
        if wait := self._circuit.wait:
            error = ModelUnavailable(
                f"The language model {self.name} failed and is asked again in {wait:.0f} s"
            )
            error.cost = (0, 0)
            raise error

    async def answer(self, ask: Ask) -> Answer:
        """Return the answer of the inner model.

        Raises ModelUnavailable at once while it is not asked.
        """
        self.check()
        is_trial, worked = self._circuit.begin(), None
        try:
            answer = await self.inner.answer(ask)
            worked = True
            return answer
        except BadModelAnswer:
            worked = True  # the model is up; a bad answer may be the fault of the text
            raise
        except ModelUnavailable:
            worked = False
            raise
        finally:
            self._circuit.end(is_trial, worked=worked)

    async def close(self) -> None:
        await self.inner.close()
