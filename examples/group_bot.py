"""A bot in a group chat, such as Discord or Slack: many people, several channels, private messages.

    python examples/group_bot.py bot.db

Each channel has a memory that all of its members share and that knows who said what. Each person
also has a private one. What someone tells the bot in private never turns up in a channel. Connect
`on_message` to the events of your chat library, and replace `answer` with a call to your model.
"""

import sys

import memorist
from memorist.sync import Blocking

GUILD = "rowing club"
SAID = [  # who, channel (none: a private message), text
    ("Ana", "general", "The regatta starts on Saturday at nine."),
    ("Bo", "general", "I bring the spare oars."),
    ("Ana", None, "I am afraid of deep water, please don't tell the others."),
    ("Cy", "general", "bot, who brings the spare oars?"),
    ("Cy", "general", "bot, who is afraid of deep water?"),
    ("Ana", None, "bot, what am I afraid of?"),
    ("Bo", "boats", "bot, when does the regatta start?"),
]


def answer(prompt: str) -> str:
    """Stand in for a model: repeat what is known."""
    lines = [line for line in prompt.splitlines() if not line.startswith("<")]
    return " ".join(lines) or "I don't know."


class Bot:
    """Remembers every message, and answers those that begin with its name."""

    def __init__(self, memory: Blocking) -> None:
        self.memory = memory

    def on_message(self, author: str, channel: str | None, text: str) -> str | None:
        if channel is None:
            here = self.memory.scope(user=author, space="private")
            message = {"role": "user", "content": text}
        else:
            here = self.memory.scope(user=GUILD, space=channel)
            message = {"role": "user", "name": author, "content": text}
        if not text.startswith("bot, "):
            here.remember([message])
            return None
        question = text.removeprefix("bot, ")
        return answer(here.recall(question, limit=1, min_confidence=0.6).text)


def main(db: str) -> None:
    with memorist.open(db) as memory:
        bot = Bot(memory)
        for author, channel, text in SAID:
            reply = bot.on_message(author, channel, text)
            print(f"#{channel or 'private'} {author}: {text}")
            if reply:
                print(f"#{channel or 'private'} bot: {reply}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ":memory:")
