"""A program that reads, forks, and reads in the other process: multiprocessing's way on Linux.

The program is a process of its own, because what it does to obstore is for good.
"""

from __future__ import annotations

import pytest

from tests.support import forks

SERVER = """
import json, os, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from coldstream.adapters.place import Place, client
from coldstream.adapters.s3 import S3ObjectStore

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.answer(206, b"0123456789", {"Content-Range": "bytes 0-9/10", "ETag": '"e"',
                                         "Last-Modified": "Wed, 25 Nov 2026 00:00:00 GMT"})
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, json.dumps({"TableNames": [str(self.client_address[1])]}).encode(),
                    {"Content-Type": "application/x-amz-json-1.0"})
    def answer(self, code, body, headers):
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_address[1]}"
"""
STORE = 'store = S3ObjectStore(bucket="bucket", region="eu-west-1", endpoint=url)\n'
READ = "bytes(store.get('key', 0, 10))"


def printed(program: str) -> list[str]:
    return forks.printed(
        SERVER + program, AWS_REGION="eu-west-1", AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b"
    )


def test_who_has_read_before_is_told_in_a_forked_process_that_nothing_will_come() -> None:
    """It waited for ever, for threads that only the other process has."""
    again = "S3ObjectStore(bucket='other', region='eu-west-1', endpoint=url).get('key', 0, 10)"
    found = printed(
        f"{STORE}print({READ}, flush=True)\n"
        f"in_child(lambda: {READ})\nin_child(lambda: {again})\nprint({READ})\n"
    )
    assert found == [
        "b'0123456789'", "ForkedError False", "ForkedError False", "b'0123456789'",
    ]  # fmt: skip


def test_who_has_only_opened_a_tier_before_reads_in_a_forked_process() -> None:
    assert printed(f"{STORE}in_child(lambda: {READ})\nprint({READ})\n") == ["b'0123456789'"] * 2


@pytest.mark.parametrize("other", ["in_child(lambda: PORT)", "in_child(lambda: (PORT, PORT))"])
def test_two_processes_never_ask_dynamodb_by_one_connection(other: str) -> None:
    """The answer to one could be given to the other."""
    port = "table.list_tables()['TableNames'][0]"
    ours, theirs, again = printed(
        f"table = client('dynamodb', Place('b', 't', region='eu-west-1', endpoint=url))\n"
        f"print({port}, flush=True)\n{other.replace('PORT', port)}\nprint({port})\n"
    )
    assert ours == again
    assert ours not in theirs
    assert len(set(theirs.strip("()").split(", "))) == 1
