"""Claude with its memory tool. Its files are stored in the database, separately for each user."""

import sys

from anthropic import Anthropic

import memorist
from memorist.integrations.anthropic import MemoristMemoryTool


def ask(client: Anthropic, tool: MemoristMemoryTool, question: str) -> str:
    """Run one conversation until Claude has no more commands for its memory."""
    runner = client.beta.messages.tool_runner(
        model="claude-sonnet-5",
        max_tokens=1024,
        betas=["context-management-2025-06-27"],
        tools=[tool],
        messages=[{"role": "user", "content": question}],
    )
    answer = runner.until_done()
    return "".join(block.text for block in answer.content if block.type == "text")


def main(db: str) -> None:
    client = Anthropic()
    with memorist.open(db) as memory:
        tool = MemoristMemoryTool(memory.scope(user="ana"))
        print(ask(client, tool, "Please remember: my sister Mira lives in Ghent."))
        print(ask(client, tool, "Where does Mira live?"))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory.db")
