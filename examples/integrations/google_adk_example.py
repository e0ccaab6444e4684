"""An agent of Google's Agent Development Kit that remembers earlier sessions.

`preload_memory` searches the memory before each request; `load_memory` would let the model decide when to search.
"""

import asyncio
import sys

from google.adk.agents import Agent
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.preload_memory_tool import preload_memory_tool
from google.genai.types import Content, Part

import memorist
from memorist.integrations.google_adk import MemoristMemoryService


async def ask(runner: Runner, question: str) -> str:
    """Hold one conversation of one turn, and remember it."""
    session = await runner.session_service.create_session(app_name="helper", user_id="ana")
    message = Content(role="user", parts=[Part(text=question)])
    answer = ""
    async for event in runner.run_async(user_id="ana", session_id=session.id, new_message=message):
        if event.is_final_response() and event.content:
            answer = "".join(part.text or "" for part in event.content.parts or [])
    done = await runner.session_service.get_session(
        app_name="helper", user_id="ana", session_id=session.id
    )
    await runner.memory_service.add_session_to_memory(done)
    return answer


async def main(db: str) -> None:
    async with memorist.aio.open(db) as memory:
        agent = Agent(
            name="helper",
            model="gemini-2.5-flash",
            instruction="Answer in one sentence.",
            tools=[preload_memory_tool],
        )
        runner = Runner(
            app_name="helper",
            agent=agent,
            session_service=InMemorySessionService(),
            memory_service=MemoristMemoryService(memory),
        )
        print(await ask(runner, "My sister Mira lives in Ghent."))
        print(await ask(runner, "Where does Mira live?"))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "memory.db"))
