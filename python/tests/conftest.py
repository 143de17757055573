"""The command that makes archives, servers that have them, and a torch where there is none."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import threading
import urllib.parse
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent

if importlib.util.find_spec("torch") is None:
    sys.path.insert(0, str(HERE / "standin"))

if importlib.util.find_spec("fsspec") is not None:  # as the entry point does once the package is installed
    import fsspec

    fsspec.register_implementation("holdall", "holdall.fsspec.HoldallFileSystem", clobber=True)


@pytest.fixture(scope="session")
def holdall_command(tmp_path_factory):
    """The command: HOLDALL names it, or it is built."""
    if command := os.environ.get("HOLDALL"):
        return command
    command = str(tmp_path_factory.mktemp("command") / "holdall")
    subprocess.run(["go", "build", "-o", command, "./cmd/holdall"], cwd=ROOT, check=True)
    return command


@pytest.fixture
def pack(holdall_command, tmp_path):
    """Makes an archive of files: pack({"a": b"…"}, "x.caf", *flags) -> its path. With index, an index beside it."""

    def make(files, name, *flags, index=False):
        folder = tmp_path / (name + ".files")
        for file, content in files.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        folder.mkdir(exist_ok=True)
        command = [holdall_command, "pack", "--no-sync", "-q", "-o", str(tmp_path / name), *flags, f"{folder}/."]
        if not files:  # only a conversion writes an archive without entries
            command = [holdall_command, "convert", "--no-sync", "-q", *flags, str(folder), str(tmp_path / name)]
        subprocess.run(command, check=True)
        if index:
            subprocess.run([holdall_command, "index", "-q", str(tmp_path / name)], check=True)
        return tmp_path / name

    return make


class HttpServer(ThreadingHTTPServer):
    """A server of tests. A shorter queue of connections is full on a busy machine, and then one waits for a minute."""

    request_queue_size = 128
    daemon_threads = True


class _Handler(SimpleHTTPRequestHandler):
    """Serves a folder with ranges and ETags, and counts what it is asked."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # what is answered in two packets comes at once

    def do_GET(self):
        self.do(body=True)

    def do_HEAD(self):
        self.do(body=False)

    def do(self, body):
        path = pathlib.Path(self.directory, urllib.parse.unquote(self.path.split("?")[0], errors="surrogateescape").lstrip("/"))
        self.server.asked.append((self.path, self.headers.get("Range")))
        if not path.is_file():
            self.send_error(self.server.start.missing)
            return
        content = path.read_bytes()
        status, part = 200, range(len(content))
        if wanted := self.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            if not first:
                part = part[-int(last) :]
            else:
                part = part[int(first) : int(last) + 1 if last else None]
            if not part:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            status = 206
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {part.start}-{part.stop - 1}/{len(content)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{len(content)}-{path.stat().st_mtime_ns}"')
        self.send_header("Last-Modified", self.date_time_string(path.stat().st_mtime))
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if body:
            self.wfile.write(content[part.start : part.stop])

    def log_message(self, *_):
        pass


@pytest.fixture
def serve():
    """Serves a folder: serve(folder) -> address; serve.asked has the requests, serve.missing is for what is not there."""
    servers = []

    def start(folder):
        server = HttpServer(("127.0.0.1", 0), lambda *a: _Handler(*a, directory=str(folder)))
        server.asked, server.start = start.asked, start
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    start.asked, start.missing = [], 404
    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
