"""A coding agent that keeps what it learns about a project.

    python examples/coding_agent.py agent.db

Each project is a space. Before a task the agent reads its context: rules that the person gave in
earlier sessions, decisions, and how a similar task was done. After a task it stores the steps that
worked. Claude Code, Codex and others need no code for this: `memorist mcp install claude-code`.
"""

import sys

import memorist

FIRST = [
    "Always run `make check` before you commit.",
    "We use PostgreSQL 17 in this project, no other database.",
]


def work(task: str, context: str) -> list[str]:
    """Stand in for a model with tools: return the steps that it took."""
    steps = [f"edit the code for: {task}"]
    if "make check" in context:
        steps.append("run make check")
    return [*steps, "commit"]


def main(db: str) -> None:
    with memorist.open(db) as memory:
        monday = memory.scope(user="dev", space="shop-api", session="monday")
        monday.remember([{"role": "user", "content": rule} for rule in FIRST])
        monday.remember("Add an index to a table", steps=["write a migration", "run make check"])

        tuesday = memory.scope(user="dev", space="shop-api", session="tuesday")
        task = "Commit the fix for the login page."
        found = tuesday.context(task, budget=400)
        print(f"Task: {task}\nContext:\n{found.text}")
        print("Steps:", ", ".join(work(task, found.text)))

        question = "How do I add an index to the orders table?"
        for known in tuesday.query(question, agent="planner", categories=["procedural"]):
            print(f"Known way: {known['text']}")

        other = memory.scope(user="dev", space="website", session="tuesday")
        print("In another project:", other.recall(task).prompt())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ":memory:")
