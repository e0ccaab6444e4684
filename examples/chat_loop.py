"""A chat loop with memory: load the context before each reply, remember the message after it.

    python examples/chat_loop.py chat.db

Type something, and an empty line to end. Run it again: it still knows what you told it. Replace
`answer` with a call to your model.
"""

import sys
from datetime import UTC, datetime

import memorist


def answer(prompt: str, message: str) -> str:
    """Stand in for a model, which would get the prompt as its system message."""
    return f"I know this:\n{prompt}" if prompt else "I know nothing about that yet."


def main(db: str) -> None:
    with memorist.open(db) as memory:
        # The session is this chat: "yes", "undo" and "the second one" refer to what was said in it.
        me = memory.scope(user="me", session=f"chat {datetime.now(UTC):%Y-%m-%d %H:%M:%S}")
        print("> ", end="", flush=True)
        for line in sys.stdin:
            message = line.strip()
            if not message:
                break
            command = me.command(message)  # "what do you know about me?", "forget that …"
            reply = command.say if command else answer(me.context(message).text, message)
            print(f"{reply}\n> ", end="", flush=True)
            if not command:
                me.remember([{"role": "user", "content": message}])
        print()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "chat.db")
