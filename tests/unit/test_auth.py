"""Who somebody is: by a key, by a token that was signed for us, and never by what they say of themselves."""

from __future__ import annotations

import asyncio
import base64
import hmac
import http.server
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

import memorist
from memorist.client import Client
from memorist.errors import (
    InvalidInput,
    KeyRefused,
    Misconfigured,
    NotAllowed,
    NotFound,
    ProviderFailed,
)
from memorist.interfaces import auth as tokens
from memorist.interfaces.auth import Authenticator, Caller
from memorist.interfaces.rest.app import create_app

SIGNER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
STRANGER = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
JWKS = {
    "keys": [
        {**RSAAlgorithm.to_jwk(SIGNER.public_key(), as_dict=True), "kid": "r1", "use": "sig"},
        {**ECAlgorithm.to_jwk(CURVE.public_key(), as_dict=True), "kid": "e1", "use": "sig"},
    ]
}
OWN, OWN_URL = (
    RSAAlgorithm.to_jwk(STRANGER.public_key(), as_dict=True),
    "http://127.0.0.1:9/jwks.json",
)
ISSUER, AUDIENCE = "https://id.example", "memorist"


def claims(**other: Any) -> dict[str, Any]:
    usual = {
        "sub": "ana",
        "iss": ISSUER,
        "aud": AUDIENCE,
        "exp": time.time() + 60,
        "scope": "read write",
    }
    return {name: value for name, value in {**usual, **other}.items() if value is not None}


def signed(
    key: Any = SIGNER, algorithm: str = "RS256", kid: str | None = "r1", **other: Any
) -> str:
    return jwt.encode(claims(**other), key, algorithm, headers={} if kid is None else {"kid": kid})


@pytest.fixture
def jwks(tmp_path: Path) -> Path:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(JWKS))
    return path


@pytest_asyncio.fixture
async def memory(jwks: Path) -> AsyncIterator[Client]:
    settings = {"jwt_jwks": str(jwks), "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    async with memorist.aio.open(":memory:", embedder="none", **settings) as opened:
        yield opened


async def test_a_token_says_who_somebody_is_and_what_they_may_do(memory: Client) -> None:
    found = await Authenticator(memory).verify(
        f"Bearer {signed(tenant='acme', space='work', scope='read other')}"
    )
    assert (found.user, found.tenant, found.space, found.rights) == (
        "ana",
        "acme",
        "work",
        ("read",),
    )
    with pytest.raises(NotAllowed):
        found.require("write")
    by_curve = await Authenticator(memory).verify(f"Bearer {signed(CURVE, 'ES256', 'e1')}")
    assert (by_curve.user, by_curve.tenant, by_curve.space) == ("ana", "default", None)


@pytest.mark.parametrize(("agent", "rights"), [(None, ("read", "owner")), ("coder", ("read",))])
async def test_no_token_lets_an_agent_act_as_the_owner(
    memory: Client, agent: str | None, rights: tuple[str, ...]
) -> None:
    found = await Authenticator(memory).verify(f"Bearer {signed(agent=agent, scope='read owner')}")
    assert found.rights == rights


def by_hand(secret: bytes, *, algorithm: str = "HS256", unsigned: bool = False) -> str:
    """A token with HS256, which the library would not sign with such a secret."""
    parts = ({"alg": algorithm, "typ": "JWT", "kid": "r1"}, claims())
    head = ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts
    )
    mark = b"" if unsigned else hmac.new(secret, head.encode(), "sha256").digest()
    return f"{head}.{base64.urlsafe_b64encode(mark).decode().rstrip('=')}"


def forged() -> dict[str, str]:
    public = SIGNER.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return {
        "signed by a stranger": signed(STRANGER),
        "of an unknown key": signed(kid="r9"),
        "of no key, where there are two": signed(kid=None),
        "of another's key": signed(CURVE, "ES256", "r1"),
        "unsigned": jwt.encode(claims(), None, "none", headers={"kid": "r1"}),
        "unsigned, spelled in another way": by_hand(b"", algorithm="None", unsigned=True),
        "with a key of its own": jwt.encode(
            claims(), STRANGER, "RS256", headers={"kid": "r1", "jwk": OWN, "jku": OWN_URL}
        ),
        "for a tenant that is a number": signed(tenant=5),
        "with rights in a list": signed(scope=["admin"]),
        "very long": "a.b.c" * 5000,
        "signed with the public key as a secret": by_hand(public),
        "over": signed(exp=time.time() - 1),
        "without end": signed(exp=None),
        "not yet good": signed(nbf=time.time() + 600),
        "of another issuer": signed(iss="https://evil.example"),
        "for somebody else": signed(aud="bank"),
        "for nobody": signed(aud=None),
        "of nobody": signed(sub=None),
        "of a number": signed(sub="", tenant=""),
        "for a space that is no text": signed(space=["work"]),
        "for a space without a name": signed(space=""),
        "cut off": signed()[:-4],
        "no token": "a.b.c",
    }


@pytest.mark.parametrize("kind", list(forged()))
async def test_a_token_that_is_not_meant_for_us_is_refused(memory: Client, kind: str) -> None:
    with pytest.raises(KeyRefused):
        await Authenticator(memory).verify(f"Bearer {forged()[kind]}")


@pytest.mark.parametrize("sub", [" ", "a\0b", "a" * 5000], ids=["blank", "NUL", "long"])
async def test_a_token_for_a_name_that_is_none_reaches_no_memory(memory: Client, sub: str) -> None:
    caller = await Authenticator(memory).verify(f"Bearer {signed(sub=sub)}")
    with pytest.raises(InvalidInput):
        caller.scope(memory)


async def test_a_token_without_rights_may_do_nothing(memory: Client) -> None:
    caller = await Authenticator(memory).verify(f"Bearer {signed(scope=None)}")
    for right in ("read", "write", "admin", "ask", "remember"):
        with pytest.raises(NotAllowed):
            caller.require(right)


@pytest.fixture
def published() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []

    class Publisher(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if self.path == "/moved":
                self.send_response(302)
                self.send_header("Location", "/jwks.json")
                self.end_headers()
                return
            if self.path == "/noise":
                self.wfile.write(b"nothing of HTTP\r\n")
                return
            self.send_response(200)
            self.end_headers()
            blanks = b" " * (1 << 20) if self.path == "/large" else b""
            self.wfile.write(blanks + json.dumps(JWKS).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Publisher) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


async def test_public_keys_are_read_over_http_once_for_many_tokens(
    published: tuple[str, list[str]],
) -> None:
    url, asked = published
    settings = {"jwt_jwks": f"{url}/jwks.json", "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    async with memorist.aio.open(":memory:", embedder="none", **settings) as memory:
        authenticator = Authenticator(memory)
        for _ in range(5):
            await authenticator.verify(f"Bearer {signed()}")
        with pytest.raises(KeyRefused):
            await authenticator.verify(f"Bearer {signed(kid='made-up')}")
    assert asked == ["/jwks.json"], "a stranger cannot make us ask again and again"


async def test_keys_that_moved_or_are_away_or_more_than_a_mebibyte_let_nobody_in(
    published: tuple[str, list[str]], tmp_path: Path
) -> None:
    (tmp_path / "list.json").write_text("[]")
    files = [str(tmp_path / "nothing.json"), str(tmp_path / "list.json")]
    for place in (*(f"{published[0]}/{name}" for name in ("moved", "noise", "large")), *files):
        settings = {"jwt_jwks": place, "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
        async with memorist.aio.open(":memory:", embedder="none", **settings) as memory:
            with pytest.raises(ProviderFailed):
                await Authenticator(memory).verify(f"Bearer {signed()}")


async def test_public_keys_are_good_while_those_who_publish_them_are_away(
    memory: Client, jwks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticator = Authenticator(memory)
    await authenticator.verify(f"Bearer {signed()}")
    monkeypatch.setattr(tokens, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(tokens, "RETRY_SECONDS", 0.0)
    await asyncio.to_thread(jwks.unlink)
    assert (await authenticator.verify(f"Bearer {signed()}")).user == "ana"
    with pytest.raises(ProviderFailed):
        await authenticator.verify(f"Bearer {signed(kid='r9')}")
    await asyncio.to_thread(jwks.write_text, json.dumps({"keys": JWKS["keys"][1:]}))
    with pytest.raises(KeyRefused):
        await authenticator.verify(f"Bearer {signed()}")


async def test_many_unknown_tokens_at_once_ask_once_for_public_keys(
    published: tuple[str, list[str]],
) -> None:
    url, asked = published
    settings = {"jwt_jwks": f"{url}/jwks.json", "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    async with memorist.aio.open(":memory:", embedder="none", **settings) as memory:
        shown = [f"Bearer {signed(kid=f'r{number}')}" for number in range(12)]
        found = await asyncio.gather(
            *map(Authenticator(memory).verify, shown), return_exceptions=True
        )
    assert [isinstance(each, Caller) for each in found] == [number == 1 for number in range(12)]
    assert asked == ["/jwks.json"]


async def test_no_two_people_are_counted_under_one_name(memory: Client) -> None:
    people = (
        {"sub": "b/c", "tenant": "a"},
        {"sub": "c", "tenant": "a/b"},
        {"sub": "c", "tenant": "a/b", "space": "s"},
    )
    shown = [f"Bearer {signed(**claimed)}" for claimed in (*people, people[0])]
    names = [(await Authenticator(memory).verify(each)).name for each in shown]
    assert len(set(names)) == 3
    assert names[0] == names[3]
    assert all(name.startswith("jwt:") and len(name) < 50 for name in names)


@pytest.mark.parametrize(
    "settings",
    [
        {"jwt_jwks": "keys.json", "jwt_issuer": ISSUER},
        {"jwt_jwks": "keys.json", "jwt_audience": AUDIENCE},
        {"jwt_jwks": "http://id.example/jwks.json", "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE},
    ],
)
async def test_settings_that_would_let_too_many_in_are_refused(settings: dict[str, str]) -> None:
    async with memorist.aio.open(":memory:", embedder="none", **settings) as memory:
        with pytest.raises(Misconfigured):
            Authenticator(memory)


async def test_a_key_is_known_in_every_way_that_clients_show_it(memory: Client) -> None:
    key, token = await memory.create_key(
        "laptop", user="ana", space="work", agent="coder", rights=["write", "read"]
    )
    for header in (f"Bearer {token}", f"bearer  {token}", f"Token {token}", token):
        found = await Authenticator(memory).verify(header)
        assert (found.name, found.user, found.space, found.agent) == (
            key.id,
            "ana",
            "work",
            "coder",
        )
    assert key.rights == ("read", "write")


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic YTpi", "rk__", "rk_a_b_c", "Bearer rk_é_ü", "x" * 9999],
)
async def test_nonsense_is_refused(memory: Client, header: str) -> None:
    with pytest.raises(KeyRefused):
        await Authenticator(memory, Caller(name="local", user="ana", tenant="default")).verify(
            header
        )


@pytest.mark.parametrize(
    "given",
    [
        {"rights": ()},
        {"rights": ("root",)},
        {"rights": "read"},
        {"user": ""},
        {"space": " "},
        {"agent": "a\0"},
        {"days": -1},
    ],
)
async def test_a_key_that_means_nothing_is_not_made(memory: Client, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        await memory.create_key("k", **{"user": "ana", **given})
    assert await memory.keys() == []


async def test_a_key_is_revoked_once(memory: Client) -> None:
    key, token = await memory.create_key("k", user="ana")
    await memory.revoke_key(key.id)
    with pytest.raises(KeyRefused):
        await memory.authenticate(token)
    with pytest.raises(NotFound):
        await memory.revoke_key(key.id)


async def test_a_bound_caller_cannot_name_another_space_or_agent(memory: Client) -> None:
    caller = Caller(name="k", user="ana", tenant="acme", space="work", agent="coder")
    mine = caller.scope(memory, session="s1")
    assert (mine.scope.tenant, mine.scope.user, mine.scope.space, mine.labels.agent) == (
        "acme",
        "ana",
        "work",
        "coder",
    )
    for named in ({"space": "home"}, {"space": ""}, {"agent": "other"}):
        with pytest.raises(NotAllowed):
            caller.scope(memory, **named)


async def test_who_shows_nothing_is_told_how_and_a_missing_right_is_one_that_can_be_granted(
    memory: Client,
) -> None:
    with pytest.raises(KeyRefused, match="Missing API key: send `Authorization: Bearer"):
        await Authenticator(memory).verify(None)
    with pytest.raises(KeyRefused, match="Invalid, expired or revoked API key"):
        await Authenticator(memory).verify("Bearer rk_a_b")
    nobody = Caller(name="k", user="ana", tenant="acme", rights=())
    for needed, granted in {"remember": "write", "ask": "read", "admin": "admin"}.items():
        with pytest.raises(NotAllowed, match=f"needs the right '{granted}'"):
            nobody.require(needed)


@pytest.mark.parametrize("path", ["", "/mcp"])
async def test_a_client_without_a_token_is_told_who_issues_them(memory: Client, path: str) -> None:
    app = create_app(memory)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="https://memory.example") as client,
    ):
        refused = await client.get(path or "/v1/memory/stats")
        challenge = refused.headers["www-authenticate"]
        url = f"https://memory.example/.well-known/oauth-protected-resource{path}"
        assert (refused.status_code, challenge) == (401, f'Bearer resource_metadata="{url}"')
        described = (await client.get(url)).json()
    assert described == {
        "resource": f"https://memory.example{path}",
        "resource_name": "Memorist",
        "authorization_servers": [ISSUER],
        "scopes_supported": ["read", "write", "owner", "admin", "service"],
        "bearer_methods_supported": ["header"],
    }


async def test_a_server_of_keys_alone_names_no_issuer() -> None:
    async with memorist.aio.open(":memory:", embedder="none") as memory:
        transport = httpx.ASGITransport(create_app(memory))
        async with httpx.AsyncClient(transport=transport, base_url="https://m.example") as client:
            assert (await client.get("/v1/memory/stats")).headers["www-authenticate"] == "Bearer"
            found = await client.get("/.well-known/oauth-protected-resource")
    assert found.status_code == 404
