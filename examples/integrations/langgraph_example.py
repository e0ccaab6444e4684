"""A LangGraph agent with memory: `python langgraph_example.py memory.db`.

The checkpointer keeps each conversation, the store what the agent notes down, and `recall` finds what was said in any
conversation. The model here only repeats what is known. Replace it with yours.
"""

import sys
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore

import memorist
from memorist.integrations.langgraph import MemoristSaver, MemoristStore


def build_agent(scope: Any) -> Any:
    """Return a graph that answers with what is known, and keeps what is said."""

    def answer(state: MessagesState, *, store: BaseStore) -> dict[str, Any]:
        asked = state["messages"][-1]
        known = [hit.memory.text for hit in scope.recall(asked.text, limit=1)]
        scope.remember(asked)
        store.put(("questions",), str(asked.id), {"text": asked.text})
        return {"messages": [AIMessage(known[0] if known else "Noted.")]}

    graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
    return graph.compile(checkpointer=MemoristSaver(scope), store=MemoristStore(scope))


def main(db: str) -> None:
    with memorist.open(db) as memory:
        ana = memory.scope(user="ana")
        agent = build_agent(ana)
        for thread, text in [
            ("monday", "My sister Mira lives in Ghent."),
            ("friday", "Where does Mira live?"),  # a new conversation
        ]:
            config = {"configurable": {"thread_id": thread}}
            state = agent.invoke({"messages": [HumanMessage(text)]}, config)
            print(f"{thread}: {state['messages'][-1].text}")
        monday = agent.get_state({"configurable": {"thread_id": "monday"}})
        print("Messages on Monday:", len(monday.values["messages"]))
        print("Noted:", len(MemoristStore(ana).search(("questions",))))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory.db")
