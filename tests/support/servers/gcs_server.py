"""A server of Google's storage on 127.0.0.1, and what its users have in their environment."""

import json
import logging
import socketserver
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from typing import Any
from unittest.mock import patch


@contextmanager
def gcs_server(*, is_conditional: bool = True) -> Iterator[dict[str, str]]:
    """The environment of its users; it ends with the block. is_conditional: it heeds `ifGenerationMatch=0`, as Google's does and the
    emulator by itself does not: https://cloud.google.com/storage/docs/request-preconditions."""
    from gcp_storage_emulator import server as emulator

    logging.getLogger("gcp_storage_emulator").setLevel(logging.ERROR)
    logging.getLogger("api").setLevel(logging.CRITICAL)
    handlers = tuple((where, {how: _heeding(do) for how, do in what.items()}) for where, what in emulator.HANDLERS)
    with (
        patch.object(emulator, "HANDLERS", handlers if is_conditional else emulator.HANDLERS),
        patch.object(emulator, "_read_data", _whole(emulator._read_data)),
        # A client that has what it wants closes the connection; the emulator's traceback would be among the command's lines.
        patch.object(socketserver.BaseServer, "handle_error", lambda *_: None),
    ):
        server = emulator.create_server("127.0.0.1", 0, in_memory=True)
        server.start()
        try:
            host, port = server._api._httpd.server_address[:2]
            # Of an emulator gcsfs needs not ask which kind of bucket one is, by a client of its own that wants credentials.
            yield {"STORAGE_EMULATOR_HOST": f"http://{host}:{port}", "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
        finally:
            server.stop()


def _whole(read: Callable[..., Any]) -> Callable[..., Any]:
    """Return what reads a request, to the last byte: the emulator takes a carriage return at the end of an object for a line's."""

    def read_data(handler: Any, query: Any) -> Any:
        kind = handler.headers.get("Content-Type") or ""
        if not kind.startswith("multipart/related"):
            return read(handler, query)
        parts = handler.rfile.read(int(handler.headers["Content-Length"])).split(b"--==0==")
        (_, meta), (head, content) = (part.split(b"\n\n", 1) for part in parts[1:3])
        return {"meta": json.loads(meta), "content": content[:-1], "content-type": head.split(b": ")[1].decode()}

    return read_data


def _heeding(do: Callable[..., None]) -> Callable[..., None]:
    """What a request does, where it does not create what is there. Requests are answered one after the other."""
    if do.__name__ != "insert":
        return do

    def insert(request: Any, response: Any, storage: Any, *rest: Any, **more: Any) -> None:
        from gcp_storage_emulator.exceptions import NotFound

        if request.query.get("ifGenerationMatch") == ["0"]:
            name = (request.query.get("name") or [request.data["meta"].get("name")])[0]
            with suppress(NotFound):
                storage.get_file_obj(request.params["bucket_name"], name)
                response.status = HTTPStatus.PRECONDITION_FAILED
                response.json({"error": {"code": 412, "message": "conditionNotMet"}})
                return
        do(request, response, storage, *rest, **more)

    return insert
