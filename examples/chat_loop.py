"""A chat that remembers: what is known goes before the question, and what was said is kept afterwards.

Replace `answer` by a call to your model. Run it twice: the second run remembers the first.
"""

import sys

import memorist


def answer(prompt: str) -> str:
    """Stands for a language model: it repeats what it was given."""
    return f"I know this much:\n{prompt}" if prompt else "I know nothing about that yet."


def main(db: str) -> None:
    with memorist.open(db) as memory:
        ana = memory.scope(user="ana", session="chat")
        for said in ("My sister Mira lives in Ghent and breeds whippets.", "Where does Mira live?"):
            found = ana.recall(said, budget=500)
            reply = answer(found.prompt())
            print(f"> {said}\n{reply}\n")
            ana.remember({"content": said, "role": "user"})


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ":memory:")
