"""Evals: short tasks that need memory, run with and without it, to judge settings by their effect.

A task is a conversation, a question asked later, and what an answer must and must not say.
Everything runs in a temporary memory. `memorist eval` is the command; from Python:

```python
report = await evals.evaluate(evals.packaged())
report.run("memory").accuracy
```
"""

from .sweeps import Point, SweepReport, sweep
from .tasks import (
    Answerer,
    EvalSession,
    EvalTask,
    EvalTurn,
    Report,
    Result,
    Run,
    evaluate,
    from_folder,
    packaged,
)

__all__ = [
    "Answerer",
    "EvalSession",
    "EvalTask",
    "EvalTurn",
    "Point",
    "Report",
    "Result",
    "Run",
    "SweepReport",
    "evaluate",
    "from_folder",
    "packaged",
    "sweep",
]
