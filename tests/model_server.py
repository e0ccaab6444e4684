"""A model for the tests of adapters: a local server that speaks the protocols of OpenAI, Anthropic and Gemini.

    with model_server.running() as model:
        model.reply = lambda said: "Hello"                     # a text, or a call of a tool:
        model.reply = lambda said: Call("recall", {"query": "Ghent"})

`said` is the whole request as JSON text. By default the model repeats what stands in a memory block, so that a test
sees whether the memory reached it.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

Body = dict[str, Any]
USED = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}


class Call(NamedTuple):
    """A call of a tool."""

    name: str
    arguments: Body


def repeat_memory(said: str) -> str:
    """Return the lines of the memory blocks in a request."""
    blocks = re.findall(r"<memory>(.*?)</memory>", said)
    return "I know: " + " ".join(blocks) if blocks else "I know nothing about that."


@dataclass
class Model:
    """What the model answers, and what it was asked. Change `reply` while it runs."""

    url: str
    reply: Callable[[str], str | Call] = repeat_memory
    requests: list[Body] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that send the clients of all providers to this server."""
        return {
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": "test",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "test",
            "GOOGLE_GEMINI_BASE_URL": self.url,
            "GOOGLE_API_KEY": "test",
        }


@contextmanager
def running() -> Iterator[Model]:
    """Run the server on a free port of this machine, for the length of a block."""
    with _Server(("127.0.0.1", 0), _Handler) as http:
        http.daemon_threads, http.block_on_close = True, False
        model = Model(url=f"http://127.0.0.1:{http.server_address[1]}")
        http.model = model  # type: ignore[attr-defined]
        thread = threading.Thread(
            target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        thread.start()
        try:
            yield model
        finally:
            http.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # connections at the same time; five by default


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        model: Model = self.server.model  # type: ignore[attr-defined]
        text = self.rfile.read(int(self.headers["content-length"])).decode()
        model.requests.append(json.loads(text))
        reply = model.reply(text)
        path = self.path.partition("?")[0]
        answer = next(write for end, write in PROTOCOLS.items() if path.endswith(end))
        content = json.dumps(answer(reply)).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing: the tests look at `requests`."""


def _responses(reply: str | Call) -> Body:
    if isinstance(reply, Call):
        item: Body = {"type": "function_call", "id": "fc_1", "call_id": "call_1"}
        item |= {"name": reply.name, "arguments": json.dumps(reply.arguments)}
    else:
        part = {"type": "output_text", "text": reply, "annotations": []}
        item = {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}
    details = {"input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}
    details["output_tokens_details"] = {"reasoning_tokens": 0}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "model": "test",
        "status": "completed",
        "output": [{**item, "status": "completed"}],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
        "usage": {**USED, **details},
    }


def _chat(reply: str | Call) -> Body:
    message: Body = {"role": "assistant", "content": reply}
    if isinstance(reply, Call):
        function = {"name": reply.name, "arguments": json.dumps(reply.arguments)}
        call = {"id": "call_1", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    ended = "tool_calls" if isinstance(reply, Call) else "stop"
    choice = {"index": 0, "message": message, "finish_reason": ended}
    used = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    head = {"id": "chat_1", "object": "chat.completion", "created": 0, "model": "test"}
    return {**head, "choices": [choice], "usage": used}


def _messages(reply: str | Call) -> Body:
    block: Body = {"type": "text", "text": reply}
    if isinstance(reply, Call):
        block = {"type": "tool_use", "id": "toolu_1", "name": reply.name, "input": reply.arguments}
    ended = "tool_use" if isinstance(reply, Call) else "end_turn"
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "test"}
    return {**head, "content": [block], "stop_reason": ended, "usage": USED}


def _gemini(reply: str | Call) -> Body:
    part: Body = {"text": reply}
    if isinstance(reply, Call):
        part = {"functionCall": {"name": reply.name, "args": reply.arguments}}
    content = {"role": "model", "parts": [part]}
    used = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return {
        "candidates": [{"index": 0, "content": content, "finishReason": "STOP"}],
        "usageMetadata": used,
    }


PROTOCOLS = {
    "/responses": _responses,
    "/chat/completions": _chat,
    "/messages": _messages,
    ":generateContent": _gemini,
}
