"""Evals: short tasks that need memory, run with and without it, so that a setting can be judged by what it does.

A task is a conversation, a question asked later, and what an answer must and must not say. Everything runs in a memory
of its own that is thrown away. `memorist eval` is the command; from Python:

```python
report = await evals.evaluate(evals.packaged())
report.run("memory").accuracy
```
"""

from .run import Answerer, Report, Result, Run, evaluate
from .sweeps import Point, Swept, sweep
from .tasks import Session, Task, Turn, from_folder, packaged

__all__ = [
    "Answerer",
    "Point",
    "Report",
    "Result",
    "Run",
    "Session",
    "Swept",
    "Task",
    "Turn",
    "evaluate",
    "from_folder",
    "packaged",
    "sweep",
]
