"""A server of ours that speaks the part of Weaviate's protocol that our adapter uses: REST for schemas, gRPC for data.

It keeps what it is given, honours the filters, compares texts as a property's tokenization says and vectors by the
distance that the collection was made with, so that a wrong filter, schema or metric shows in what comes back. It is no
Weaviate: the search is exact, and what a real server adds (clusters, modules, authorisation) is not here.
"""

from __future__ import annotations

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import numpy as np
import pytest

pytest.importorskip("weaviate", reason="the client brings the protocol's messages")

import grpc
from google.protobuf.json_format import MessageToDict
from weaviate.proto.v1 import (
    aggregate_pb2,
    base_pb2,
    batch_delete_pb2,
    batch_pb2,
    search_get_pb2,
    weaviate_pb2_grpc,
)


@dataclass
class Kept:
    """One object of a collection."""

    properties: dict[str, Any]
    vectors: dict[str, np.ndarray]


@dataclass
class Collection:
    schema: dict[str, Any]
    objects: dict[str, Kept] = field(default_factory=dict)

    def passes(self, id: str, where: Any) -> bool:
        """Whether an object passes a filter. An operator that is not known here is an error, never a pass."""
        operator = base_pb2.Filters.Operator.Name(where.operator).removeprefix("OPERATOR_")
        if operator == "AND":
            return all(self.passes(id, each) for each in where.filters)
        if operator == "EQUAL":
            tokens = self._tokens(where.target.property, where.value_text)
            kept = self.objects[id].properties.get(where.target.property, "")
            return bool(tokens) and tokens <= self._tokens(where.target.property, kept)
        assert (operator, where.target.property) == ("CONTAINS_ANY", "_id"), operator
        return id in where.value_text_array.values

    def _tokens(self, name: str, text: str) -> set[str]:
        how = {each["name"]: each.get("tokenization") for each in self.schema["properties"]}[name]
        return {text.strip()} - {""} if how == "field" else set(re.findall(r"\w+", text.lower()))

    def distances(self, ids: list[str], near: np.ndarray, target: str) -> np.ndarray:
        made = self.schema["vectorConfig"][target]
        assert made["vectorIndexType"] == "hnsw"
        rows = np.array([self.objects[id].vectors[target] for id in ids])
        if made["vectorIndexConfig"]["distance"] != "cosine":
            return np.square(rows - near).sum(1)
        return 1 - rows @ near / (np.linalg.norm(rows, axis=1) * np.linalg.norm(near))


class WeaviateServer(weaviate_pb2_grpc.WeaviateServicer):
    """Runs for the length of a `with` block. A subclass may answer worse."""

    def __init__(self, *, rest_port: int = 0, grpc_port: int = 0) -> None:
        self._ports = rest_port, grpc_port

    def __enter__(self) -> WeaviateServer:
        self.collections: dict[str, Collection] = {}
        self.asked: list[str] = []  # every request, as METHOD /path or the gRPC call
        self.searched: list[Any] = []
        self._threads = ThreadPoolExecutor(8)
        self._grpc = grpc.server(self._threads)
        weaviate_pb2_grpc.add_WeaviateServicer_to_server(self, self._grpc)
        port = self._grpc.add_insecure_port(f"127.0.0.1:{self._ports[1]}")
        self._grpc.start()
        self._http = ThreadingHTTPServer(
            ("127.0.0.1", self._ports[0]), type("Handler", (_Rest,), {"weaviate": self})
        )
        self._http.daemon_threads = True
        threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        self.url = f"http://127.0.0.1:{self._http.server_port}?grpc=127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._grpc.stop(None).wait()
        self._threads.shutdown()

    def Search(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self.searched.append(request)
        collection = self._collection(request.collection, context)
        ids = [
            id
            for id in collection.objects
            if not request.HasField("filters") or collection.passes(id, request.filters)
        ]
        near = np.frombuffer(request.near_vector.vectors[0].vector_bytes, "<f4")
        (target,) = request.near_vector.targets.target_vectors
        order = np.argsort(collection.distances(ids, near, target), kind="stable") if ids else []
        return self.reply([ids[place] for place in order][: request.limit])

    def reply(self, ids: list[str]) -> Any:
        """The ids as a client reads them."""
        found = [search_get_pb2.MetadataResult(id=id, id_as_bytes=UUID(id).bytes) for id in ids]
        return search_get_pb2.SearchReply(
            results=[search_get_pb2.SearchResult(metadata=each) for each in found]
        )

    def BatchObjects(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self.asked.append("BatchObjects")
        for each in request.objects:
            collection = self._collection(each.collection, context)
            vectors = {
                vector.name: np.frombuffer(vector.vector_bytes, "<f4") for vector in each.vectors
            }
            assert set(vectors) == set(collection.schema["vectorConfig"])
            collection.objects[each.uuid] = Kept(
                MessageToDict(each.properties.non_ref_properties), vectors
            )
        return batch_pb2.BatchObjectsReply()

    def BatchDelete(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self.asked.append("BatchDelete")
        collection = self._collection(request.collection, context)
        gone = [id for id in collection.objects if collection.passes(id, request.filters)]
        for id in gone:
            del collection.objects[id]
        return batch_delete_pb2.BatchDeleteReply(matches=len(gone), successful=len(gone))

    def Aggregate(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self.asked.append("Aggregate")
        count = len(self._collection(request.collection, context).objects)
        return aggregate_pb2.AggregateReply(
            single_result=aggregate_pb2.AggregateReply.Single(objects_count=count)
        )

    def _collection(self, name: str, context: grpc.ServicerContext) -> Collection:
        if name not in self.collections:
            context.abort(grpc.StatusCode.UNKNOWN, f"could not find class {name} in schema")
        return self.collections[name]

    def rest(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """The status and the document that answer a request."""
        self.asked.append(f"{method} {path}")
        name = path.removeprefix("/v1/schema").strip("/")
        if path == "/v1/meta":
            return 200, {"version": "1.33.0", "hostname": "ours", "modules": {}}
        if method == "POST" and path == "/v1/schema":
            return self._made(body)
        if method == "DELETE":
            self.collections.pop(name, None)
            return 200, None
        if name in self.collections:
            return 200, self.collections[name].schema
        return 404, None

    def _made(self, schema: dict[str, Any]) -> tuple[int, Any]:
        if schema["class"] in self.collections or not re.fullmatch(
            r"[A-Z][_0-9A-Za-z]*", schema["class"]
        ):
            return 422, {
                "error": [{"message": f"class name {schema['class']} is taken or invalid"}]
            }
        assert all(each["vectorizer"] == {"none": {}} for each in schema["vectorConfig"].values())
        self.collections[schema["class"]] = Collection(schema)
        return 200, schema


class _Rest(BaseHTTPRequestHandler):
    weaviate: WeaviateServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        status, document = self.weaviate.rest(self.command, self.path, body)
        said = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_POST = do_DELETE = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass
