"""A LlamaIndex chat engine with a long-term memory: `python llama_index_example.py memory.db`.

The model here only repeats its input. Replace it with yours.
"""

import asyncio
import sys
from typing import Any

from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.memory import Memory

import memorist
from memorist.integrations.llama_index import MemoristMemoryBlock


class RepeatingLLM(CustomLLM):
    """Answers with the lines about the user that are in its prompt."""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="repeating")

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        known = [line for line in prompt.splitlines() if line.startswith("[")]
        return CompletionResponse(text="\n".join(["I know:", *known]) if known else "Noted.")

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        yield self.complete(prompt, formatted, **kwargs)


async def chat(scope: Any, session: str, *messages: str) -> str:
    """Chat in one session, and return the last reply."""
    block = MemoristMemoryBlock(scope)
    # With so little room, all but the newest message leave the history and are remembered.
    memory = Memory.from_defaults(session_id=session, token_limit=60, memory_blocks=[block])
    engine = SimpleChatEngine.from_defaults(llm=RepeatingLLM(), memory=memory)
    reply = ""
    for message in messages:
        reply = str(await engine.achat(message))
    return reply


def main(path: str) -> None:
    with memorist.open(path) as memory:
        ana = memory.scope(user="ana")
        small_talk = "And now something else: the weather has been grey and windy all week. " * 5
        asyncio.run(chat(ana, "monday", "I moved to Lisbon in May.", small_talk, "Good night."))
        print("ana:", asyncio.run(chat(ana, "tuesday", "In which city do I live?")))
        ben = memory.scope(user="ben")
        print("ben:", asyncio.run(chat(ben, "tuesday-too", "In which city do I live?")))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory.db")
