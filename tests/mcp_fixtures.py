"""What the conformance suite of the protocol expects beside our own tools: `python mcp_fixtures.py PORT`."""

from __future__ import annotations

import asyncio
import json
import sys
import warnings
from typing import Any, Literal

import mcp_types as types
import uvicorn
from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPDeprecationWarning
from pydantic import BaseModel, Field

import memorist
from memorist.interfaces.auth import Caller
from memorist.interfaces.mcp import build_http_server, serve_http
from memorist.interfaces.rest.app import create_app

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
Asked = types.InputRequiredResult


def text(words: str) -> types.TextContent:
    return types.TextContent(type="text", text=words)


def image() -> types.ImageContent:
    return types.ImageContent(type="image", data=PNG, mime_type="image/png")


def embedded(uri: str, media: str, words: str) -> types.EmbeddedResource:
    inner = types.TextResourceContents(uri=uri, mime_type=media, text=words)
    return types.EmbeddedResource(type="resource", resource=inner)


def elicit(message: str, **fields: str) -> types.ElicitRequest:
    properties = {name: {"type": kind} for name, kind in fields.items()}
    schema = {"type": "object", "properties": properties, "required": list(fields)}
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=message, requested_schema=schema)
    )


def sample(words: str, most: int = 100) -> types.CreateMessageRequest:
    said = types.SamplingMessage(role="user", content=text(words))
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[said], max_tokens=most)
    )


class Plain:
    """Tools that answer at once."""

    async def test_simple_text(self) -> list[types.TextContent]:
        return [text("This is a simple text response for testing.")]

    async def test_image_content(self) -> list[types.ImageContent]:
        return [image()]

    async def test_audio_content(self) -> list[types.AudioContent]:
        return [types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")]

    async def test_embedded_resource(self) -> list[types.EmbeddedResource]:
        return [
            embedded(
                "test://embedded-resource", "text/plain", "This is an embedded resource content."
            )
        ]

    async def test_multiple_content_types(self) -> list[types.ContentBlock]:
        mixed = embedded(
            "test://mixed-content-resource", "application/json", '{"test":"data","value":123}'
        )
        return [text("Multiple content types test:"), image(), mixed]

    async def test_error_handling(self) -> list[types.TextContent]:
        raise ToolError("This tool intentionally returns an error for testing")


class Choices(BaseModel):
    """Fields with defaults."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


def titled(words: str) -> list[dict[str, str]]:
    return [
        {"const": f"value{number}", "title": f"{place} {words}"}
        for number, place in ((1, "First"), (2, "Second"))
    ]


ENUMS = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": titled("Option")},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2"],
            "enumNames": ["Option One", "Option Two"],
        },
        "untitledMulti": {
            "type": "array",
            "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
        },
        "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice")}},
    },
}


class Person(BaseModel):
    """What a form asks."""

    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


class Talking:
    """Tools that say something to the client on their way."""

    async def test_tool_with_logging(self, ctx: Context) -> str:
        for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.info(words)
            await asyncio.sleep(0.05)
        return "done"

    async def test_logging_tool(self, ctx: Context) -> str:
        await ctx.info("a line")
        return "done"

    async def test_tool_with_progress(self, ctx: Context) -> str:
        for done in (0, 50, 100):
            await ctx.report_progress(done, 100)
            await asyncio.sleep(0.05)
        return "done"

    async def test_sampling(self, prompt: str, ctx: Context) -> str:
        told = await ctx.session.send_request(sample(prompt), types.CreateMessageResult)
        return f"LLM response: {getattr(told.content, 'text', told.content)}"

    async def test_elicitation(self, message: str, ctx: Context) -> str:
        told = await ctx.elicit(message, Person)
        return f"User response: <action: {told.action}, content: {getattr(told, 'data', None)}>"

    async def test_elicitation_sep1034_defaults(self, ctx: Context) -> str:
        told = await ctx.elicit("Please look at these", Choices)
        return f"Elicitation completed: action={told.action}, content={getattr(told, 'data', None)}"

    async def test_elicitation_sep1330_enums(self, ctx: Context) -> str:
        asked = types.ElicitRequest(
            params=types.ElicitRequestFormParams(message="Choose", requested_schema=ENUMS)
        )
        told = await ctx.session.send_request(asked, types.ElicitResult)
        return f"Elicitation completed: action={told.action}, content={json.dumps(told.content)}"


def need_sampling(ctx: Context) -> None:
    """Refuse as the protocol says where the client cannot ask its model."""
    if ctx.client_capabilities is None or ctx.client_capabilities.sampling is None:
        missing = types.ClientCapabilities(sampling=types.SamplingCapability())
        data = types.MissingRequiredClientCapabilityErrorData(required_capabilities=missing)
        raise MCPError(
            code=types.MISSING_REQUIRED_CLIENT_CAPABILITY, message="The client cannot ask a model",
            data=data.model_dump(by_alias=True, mode="json", exclude_none=True),
        )  # fmt: skip


def answered(ctx: Context, *names: str) -> list[Any] | None:
    """The answers of these names, if all are there."""
    given = ctx.input_responses or {}
    return [given[name] for name in names] if all(name in given for name in names) else None


def content(answer: Any) -> dict[str, Any]:
    return getattr(answer, "content", None) or {}


class Asking:
    """Tools whose answer is a question."""

    async def test_missing_capability(self, ctx: Context) -> str:
        need_sampling(ctx)
        return "done"

    async def test_streaming_elicitation(self, ctx: Context) -> str | Asked:
        told = answered(ctx, "user_name")
        return (
            "done"
            if told
            else Asked(input_requests={"user_name": elicit("What is your name?", name="string")})
        )

    async def test_input_required_result_elicitation(self, ctx: Context) -> str | Asked:
        told = answered(ctx, "user_name")
        if told and isinstance(content(told[0]), dict) and "name" in content(told[0]):
            return f"Hello, {content(told[0])['name']}!"
        return Asked(input_requests={"user_name": elicit("What is your name?", name="string")})

    async def test_input_required_result_sampling(self, ctx: Context) -> str | Asked:
        told = answered(ctx, "capital_question")
        asked = {"capital_question": sample("What is the capital of France?")}
        return str(told[0].content) if told else Asked(input_requests=asked)

    async def test_input_required_result_list_roots(self, ctx: Context) -> str | Asked:
        told = answered(ctx, "client_roots")
        asked = {"client_roots": types.ListRootsRequest()}
        return (
            str([str(root.uri) for root in told[0].roots]) if told else Asked(input_requests=asked)
        )

    async def test_input_required_result_request_state(self, ctx: Context) -> str | Asked:
        if answered(ctx, "confirm") and ctx.request_state == "one":
            return "state-ok"
        return Asked(
            input_requests={"confirm": elicit("Please confirm", ok="boolean")}, request_state="one"
        )

    async def test_input_required_result_tampered_state(self, ctx: Context) -> str | Asked:
        return await self.test_input_required_result_request_state(ctx)

    async def test_input_required_result_multiple_inputs(self, ctx: Context) -> str | Asked:
        if answered(ctx, "user_name", "greeting", "client_roots"):
            return "all there"
        asked = {
            "user_name": elicit("What is your name?", name="string"),
            "greeting": sample("Generate a greeting", 50),
            "client_roots": types.ListRootsRequest(),
        }
        return Asked(input_requests=asked, request_state="many")

    async def test_input_required_result_multi_round(self, ctx: Context) -> str | Asked:
        if ctx.request_state == "two" and answered(ctx, "step2"):
            return "both told"
        if ctx.request_state == "one" and answered(ctx, "step1"):
            second = elicit("Step 2: What is your favorite color?", color="string")
            return Asked(input_requests={"step2": second}, request_state="two")
        first = elicit("Step 1: What is your name?", name="string")
        return Asked(input_requests={"step1": first}, request_state="one")

    async def test_input_required_result_capabilities(self, ctx: Context) -> str | Asked:
        need_sampling(ctx)
        return Asked(input_requests={"greeting": sample("Generate a greeting", 50)})


async def test_input_required_result_prompt(ctx: Context) -> Any:
    told = answered(ctx, "user_context")
    if told:
        return f"Use {content(told[0]).get('context')}"
    return Asked(
        input_requests={
            "user_context": elicit("What context should the prompt use?", context="string")
        }
    )


def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


def said(*blocks: Any) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": block.model_dump(by_alias=True, exclude_none=True)}
        for block in blocks
    ]


def test_prompt_with_embedded_resource(resourceUri: str) -> Any:  # noqa: N803 - the suite calls it so
    inner = embedded(resourceUri, "text/plain", "Embedded resource content for testing.")
    return said(inner, text("Please process the embedded resource above."))


def add_to(server: MCPServer[None]) -> MCPServer[None]:
    """Offer everything the suite asks for."""
    for group in (Plain(), Talking(), Asking()):
        for name in [name for name in dir(group) if name.startswith("test_")]:
            server.add_tool(
                getattr(group, name),
                description="For the conformance suite.",
                structured_output=False,
            )
    for prompt in (
        test_input_required_result_prompt,
        test_prompt_with_arguments,
        test_prompt_with_embedded_resource,
    ):
        server.prompt(description="For the conformance suite.")(prompt)
    server.prompt("test_simple_prompt", description="Simple.")(
        lambda: "This is a simple prompt for testing."
    )
    server.prompt("test_prompt_with_image", description="An image.")(
        lambda: said(image(), text("Please analyze the image above."))
    )
    _add_resources(server)
    _add_methods(server)
    return server


def _add_resources(server: MCPServer[None]) -> None:
    import base64

    about: dict[str, Any] = {"description": "For the conformance suite."}
    server.resource("test://static-text", mime_type="text/plain", name="text", **about)(
        lambda: "This is the content of the static text resource."
    )
    server.resource("test://static-binary", mime_type="image/png", name="binary", **about)(
        lambda: base64.b64decode(PNG)
    )
    server.resource("test://watched-resource", mime_type="text/plain", name="watched", **about)(
        lambda: "watched"
    )
    server.resource(
        "test://template/{id}/data", mime_type="application/json", name="template", **about
    )(lambda id: json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"}))


def _add_methods(server: MCPServer[None]) -> None:
    async def nothing(_ctx: Any, _params: Any) -> types.EmptyResult:
        return types.EmptyResult()

    @server.completion()
    async def complete(_ref: Any, _argument: Any, _context: Any) -> types.Completion:
        return types.Completion(values=["paris", "park", "party"], total=3, has_more=False)

    inner = server._lowlevel_server
    inner.add_request_handler("logging/setLevel", types.SetLevelRequestParams, nothing)
    inner.add_request_handler("resources/subscribe", types.SubscribeRequestParams, nothing)
    inner.add_request_handler("resources/unsubscribe", types.UnsubscribeRequestParams, nothing)


async def serve(port: int) -> None:
    """Serve it on this machine until told to stop."""
    async with memorist.aio.open(
        ":memory:", embedder="hashing", rate_limit=0, max_body_mb=1
    ) as engine:
        app = create_app(engine, local=Caller(name="local", user="ana", tenant="default"))
        server = add_to(build_http_server(engine))
        app.router.lifespan_context = lambda app: serve_http(app, server)
        await uvicorn.Server(uvicorn.Config(app, port=port, log_level="error")).serve()


if __name__ == "__main__":
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    asyncio.run(serve(int(sys.argv[1])))
