"""A language model that is left alone for a while after it failed a few times, so that nobody waits for it in vain."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..errors import BadModelAnswer, ModelUnavailable
from ..ports import LanguageModel, ModelAnswer, Prompt
from ..providers.http import Circuit


class Breaker:
    """The same port around another model: after three failures in a row it is not asked for 30 s, later longer."""

    def __init__(
        self, inner: LanguageModel, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.inner = inner
        self._circuit = Circuit(clock)

    @property
    def name(self) -> str:
        return self.inner.name

    def check(self) -> None:
        """Raises ModelUnavailable while the model is left alone."""
        if wait := self._circuit.wait:
            error = ModelUnavailable(
                f"The language model {self.name} failed and is asked again in {wait:.0f} s"
            )
            error.cost = (0, 0)
            raise error

    async def answer(self, ask: Prompt) -> ModelAnswer:
        """As the inner model answers. Raises ModelUnavailable at once while it is left alone."""
        self.check()
        is_trial, worked = self._circuit.begin(), None
        try:
            answer = await self.inner.answer(ask)
            worked = True
            return answer
        except BadModelAnswer:
            worked = True  # it is there; what it makes of a text may be the fault of the text
            raise
        except ModelUnavailable:
            worked = False
            raise
        finally:
            self._circuit.end(is_trial, worked=worked)

    async def close(self) -> None:
        await self.inner.close()
