"""A chat loop with memory: load the context before each reply, remember the turn after it.

Replace `answer` with a call to your model. Run it twice with a file: the second run remembers the first.
"""

import sys

import memorist


def answer(prompt: str) -> str:
    """Stand in for an LLM: repeat the memory block."""
    return f"I know this much:\n{prompt}" if prompt else "I know nothing about that yet."


def main(db: str) -> None:
    with memorist.open(db) as memory:
        ana = memory.scope(user="ana", session="chat")
        for message in (
            "My sister Mira lives in Ghent and breeds whippets.",
            "Where does Mira live?",
        ):
            found = ana.context(message, budget=500)
            reply = answer(found.text)
            print(f"> {message}\n{reply}\n")
            turn = [{"content": message, "role": "user"}, {"content": reply, "role": "assistant"}]
            ana.remember(turn)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ":memory:")
