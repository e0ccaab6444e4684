"""A CrewAI crew with a long-term memory: `python crewai_example.py memory.db`.

The model here only repeats its input. Replace it with yours.
"""

import os
import sys
from typing import Any

os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")
os.environ.setdefault("OTEL_SDK_DISABLED", "true")

from crewai import Agent, Crew, Task
from crewai.llms.base_llm import BaseLLM

import memorist
from memorist.integrations.crewai import MemoristMemory


class RepeatingLLM(BaseLLM):
    """Answers with the memories that are in its prompt."""

    def call(self, messages: Any, *args: Any, **kwargs: Any) -> str:
        prompt = messages if isinstance(messages, str) else str(messages[-1]["content"])
        known = [line for line in prompt.splitlines() if line.startswith("- (score=")]
        return f"Final Answer: {' '.join(known) or 'Nothing is known of the user.'}"

    def supports_function_calling(self) -> bool:
        return False


def plan_trip(scope: Any) -> str:
    """Run a crew of one agent over the memory of one user, and return its answer."""
    llm = RepeatingLLM(model="repeating")
    planner = Agent(role="Planner", goal="Plan trips", backstory="You plan trips.", llm=llm)
    task = Task(
        description="In which city does the user live?",
        expected_output="A city",
        agent=planner,
    )
    crew = Crew(agents=[planner], tasks=[task], memory=MemoristMemory(scope))
    return str(crew.kickoff().raw)


def main(path: str) -> None:
    with memorist.open(path) as memory:
        ana = memory.scope(user="ana")
        ana.remember("I moved to Lisbon in May.")
        print("ana:", plan_trip(ana))
        print("ben:", plan_trip(memory.scope(user="ben")))
        print("saved:", MemoristMemory(ana).list_records(limit=1)[0].content)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory.db")
