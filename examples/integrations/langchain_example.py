"""LangChain with a long-term memory: `python langchain_example.py memory.db`.

A chain with a chat history, a retriever over what was said in other conversations, and a vector store for
documents. The model here only repeats its input. Replace it with yours.
"""

import sys
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

import memorist
from memorist.integrations.langchain import (
    MemoristChatMessageHistory,
    MemoristRetriever,
    MemoristVectorStore,
)

PROMPT = ChatPromptTemplate.from_messages(
    [
        ("system", "What is known about the user:\n{known}"),
        MessagesPlaceholder("history"),
        ("human", "{question}"),
    ]
)


def reply(prompt: Any) -> AIMessage:
    """Stand in for a chat model: repeat what is known."""
    known = prompt.to_messages()[0].content.partition("\n")[2]
    return AIMessage(known or "Noted.")


def build_chain(scope: Any) -> RunnableWithMessageHistory:
    """Return a chain that reads what is known, answers, and keeps the history of each session."""
    retriever = MemoristRetriever(scope, k=3)

    def add_known(given: dict[str, Any]) -> dict[str, Any]:
        found = retriever.invoke(given["question"])
        return {**given, "known": "\n".join(document.page_content for document in found)}

    return RunnableWithMessageHistory(
        RunnableLambda(add_known) | PROMPT | RunnableLambda(reply),
        lambda session_id: MemoristChatMessageHistory(session_id, scope),
        input_messages_key="question",
        history_messages_key="history",
    )


def main(path: str) -> None:
    with memorist.open(path) as memory:
        ana = memory.scope(user="ana")
        chain = build_chain(ana)
        monday: Any = {"configurable": {"session_id": "monday"}}
        chain.invoke({"question": "I moved to Lisbon in May."}, monday)
        chain.invoke({"question": "Thanks, good night!"}, monday)
        kept = MemoristChatMessageHistory("monday", ana).messages
        print(f"history of monday: {len(kept)} messages")

        tuesday: Any = {"configurable": {"session_id": "tuesday"}}
        question = {"question": "In which city do I live?"}
        print("ana:", chain.invoke(question, tuesday).content)
        ben = build_chain(memory.scope(user="ben")).invoke(question, tuesday)
        print("ben knows nothing" if ben.content == "Noted." else ben.content)

        documents = MemoristVectorStore(memory.scope(user="ana", space="documents"))
        documents.add_documents(
            [
                Document("The flat has a balcony that faces south.", metadata={"page": 1}),
                Document("The rent is due on the first of the month.", metadata={"page": 2}),
            ]
        )
        found = documents.similarity_search("Does it have a balcony?", k=1, filter={"page": [1, 2]})
        print("documents:", found[0].page_content)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory.db")
