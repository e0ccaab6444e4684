"""An agent of the OpenAI Agents SDK that remembers between conversations.

The session keeps the transcript of one conversation; `with_memory` adds memories of all conversations to the
instructions.
"""

import sys

from agents import Agent, Runner

import memorist
from memorist.integrations.openai_agents import MemoristSession, with_memory


def main(db: str) -> None:
    with memorist.open(db) as memory:
        ana = memory.scope(user="ana")
        agent = Agent(name="Assistant", instructions=with_memory(ana, "Answer in one sentence."))

        monday = MemoristSession("monday", ana)
        Runner.run_sync(agent, "My sister Mira lives in Ghent.", session=monday)

        friday = MemoristSession("friday", ana)  # a new conversation: its transcript is empty
        result = Runner.run_sync(agent, "Where does Mira live?", session=friday)
        print(result.final_output)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory.db")
