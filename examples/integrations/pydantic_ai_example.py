"""A Pydantic AI agent that remembers each of its users between conversations."""

import sys

from pydantic_ai import Agent

import memorist
from memorist.integrations.pydantic_ai import MemoristCapability


def main(db: str) -> None:
    with memorist.open(db) as memory:
        agent = Agent(
            "openai:gpt-5-mini",
            deps_type=str,  # the name of the user
            instructions="Answer in one sentence.",
            capabilities=[MemoristCapability(lambda run: memory.scope(user=run.deps))],
        )
        agent.run_sync("My sister Mira lives in Ghent.", deps="ana")
        print(agent.run_sync("Where does Mira live?", deps="ana").output)
        print(agent.run_sync("Where does Mira live?", deps="bo").output)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory.db")
