"""A stand-in for W&B's server: takes what is sent, until it is told to drop connections."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from mirror.readback import Curves


class Server(ThreadingHTTPServer):
    """What it was sent: runs by their upserts, history lines, and exit statuses.

    With `last`, it holds every run that is asked for already, up to the row of that step.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.dropping = False
        self.last: int | None = None
        self.runs: dict[str, dict[str, Any]] = {}
        self.curves: Curves = {}
        self.exits: list[int] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def take(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("/graphql"):
            variables = body.get("variables") or {}
            if body.get("operationName") == "UpsertBucket":
                known = self.runs.setdefault(variables["name"], {})
                known |= {key: value for key, value in variables.items() if value is not None}
            if self.last is not None and "name" in variables:
                held = _held(variables["name"], self.last)
                project = {"id": "p", "name": "p", "entity": {"id": "e", "name": "e"}}
                upserted = {"bucket": held | {"project": project}, "inserted": False}
                return {"data": {"model": {**project, "bucket": held}, "upsertBucket": upserted}}
            return {"data": {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": []}}}
        lines = body.get("files", {}).get("wandb-history.jsonl", {}).get("content", [])
        for row in map(json.loads, lines):
            self.curves |= {(row["_step"], k): v for k, v in row.items() if k.startswith(("train/", "val/"))}
        if body.get("complete"):
            self.exits.append(body.get("exitcode", 0))
        return {}


def _held(run: str, last: int) -> dict[str, Any]:
    tail = json.dumps([json.dumps({"_step": last, "_runtime": 1.0})])
    lines = {"logLineCount": 0, "historyLineCount": last + 1, "eventsLineCount": 0}
    texts = {
        "historyTail": tail,
        "eventsTail": json.dumps([json.dumps({"_runtime": 1.0})]),
        "summaryMetrics": "{}",
        "config": "{}",
    }
    return {
        "id": run,
        "name": run,
        "displayName": run,
        "tags": [],
        "notes": "",
        "wandbConfig": '{"t": 1}',
        **lines,
        **texts,
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.dropping:
            self.close_connection = True
            return
        plain = self.headers.get_content_type() == "application/json"  # its own statistics are not
        answer = json.dumps(self.server.take(self.path, json.loads(body or b"{}") if plain else {})).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_PUT = _answer  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        return


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
