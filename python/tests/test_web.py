"""Archives on servers, and servers that misbehave."""

import base64
import multiprocessing
import os
import socket
import subprocess
import threading
from http.server import BaseHTTPRequestHandler

import pytest
from conftest import HttpServer

import holdall
from holdall import table, web

FILES = {f"d{i % 3}/{i:03d}.bin": bytes([i]) * 1000 for i in range(200)}


class Server:
    """A server of objects in memory. ``odd(handler, content)`` may answer in another way: it returns True if it did."""

    def __init__(self):
        self.objects = {}
        self.asked = []
        self.odd = lambda handler, content: False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self):
                outer.asked.append((self.path, self.headers.get("Range"), dict(self.headers)))
                content = outer.objects.get(self.path)
                if outer.odd(self, content):
                    return
                if content is None:
                    self.answer(404, b"")
                    return
                first, last = span(self.headers.get("Range"), len(content))
                self.answer(206, content[first:last], {"Content-Range": f"bytes {first}-{last - 1}/{len(content)}", "ETag": '"1"'})

            def answer(self, status, body, headers=None):
                self.send_response(status)
                for k, v in {"Content-Length": str(len(body)), **(headers or {})}.items():
                    self.send_header(k, v)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.http = HttpServer(("127.0.0.1", 0), Handler)
        self.http.handle_error = lambda *_: None  # tests break connections
        self.address = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()


def span(wanted, size):
    first, _, last = wanted.removeprefix("bytes=").partition("-")
    if not first:
        return max(size - int(last), 0), size
    return int(first), min(int(last) + 1, size)


@pytest.fixture
def server(monkeypatch):
    paused = []
    monkeypatch.setattr(web, "pause", paused.append)
    s = Server()
    s.paused = paused
    yield s
    s.close()


@pytest.fixture
def caf(pack, server, holdall_command):
    """An archive at /x.caf, and the path that it was made at."""
    path = pack(FILES, "x.caf")
    server.objects["/x.caf"] = path.read_bytes()
    return path


@pytest.fixture
def indexed(caf, server, holdall_command, tmp_path):
    """The same with an index that was made of what the server has."""
    out = tmp_path / "far.holdall"
    subprocess.run([holdall_command, "index", "-q", server.address + "/x.caf", "-o", str(out)], check=True)
    server.objects["/x.caf.holdall"] = out.read_bytes()
    server.asked.clear()
    return out


def test_without_an_index_it_takes_two_requests(server, caf):
    a = holdall.open(server.address + "/x.caf", index=False)
    assert a["d0/000.bin"] == FILES["d0/000.bin"]
    assert [r for _, r, _ in server.asked] == ["bytes=-65536", "bytes=0-999"]
    assert all(h["Accept-Encoding"] == "identity" for _, _, h in server.asked)
    assert server.asked[1][2]["If-Match"] == '"1"'
    assert dict(a) == FILES


def test_by_an_index(server, indexed):
    a = holdall.open(server.address + "/x.caf", verify=False)
    assert a.index == server.address + "/x.caf.holdall"
    before = len(server.asked)
    assert dict(a) == FILES
    assert len(server.asked) < before + len(FILES) + 5  # the table is fetched once
    server.asked.clear()
    assert a.read_many(list(FILES)) == list(FILES.values())
    assert len(server.asked) == 1  # joined
    assert a.read("d0/000.bin", 3, 7) == FILES["d0/000.bin"][3:7]
    assert holdall.open(server.address + "/x.caf", verify=True)["d1/001.bin"] == FILES["d1/001.bin"]


def test_a_local_index_of_a_far_archive(server, indexed):
    a = holdall.open(server.address + "/x.caf", index=indexed)
    assert a.read_many(list(FILES)) == list(FILES.values())
    server.objects["/x.caf"] += b"x"
    with pytest.raises(holdall.StaleIndexError):
        holdall.open(server.address + "/x.caf", index=indexed)


def test_a_large_index_is_fetched_in_parts(server, pack, holdall_command, tmp_path, monkeypatch):
    monkeypatch.setattr(table, "MANY", 8)
    files = {f"{i % 50:02d}/{i:05d}.bin": b"%d" % i for i in range(10_000)}
    path = pack(files, "many.caf")
    server.objects["/x.caf"] = path.read_bytes()
    out = tmp_path / "far.holdall"
    subprocess.run([holdall_command, "index", "-q", server.address + "/x.caf", "-o", str(out)], check=True)
    server.objects["/x.caf.holdall"] = out.read_bytes()
    server.asked.clear()
    a = holdall.open(server.address + "/x.caf", verify=False)
    assert a["07/00007.bin"] == b"7"
    fetched = sum(last - first for p, r, _ in server.asked for first, last in [span(r, out.stat().st_size)] if p.endswith(".holdall"))
    assert len(server.asked) < 12 and fetched < out.stat().st_size
    for name in list(files)[::97]:
        assert a[name] == files[name]
    server.asked.clear()
    assert set(a) == set(files)
    assert not server.asked or len(server.asked) < 5


def test_ranges_are_read_at_once(server, caf):
    """Requests of read_many do not wait for each other."""
    gate = threading.Barrier(4, timeout=20)

    def odd(handler, content):
        gate.wait()
        return False

    obj = web.WebObject(server.address + "/x.caf")
    obj.head(1)
    server.odd = odd
    assert obj.read_many([(0, 10), (1000, 10), (2000, 10), (3000, 10)]) == [bytes(10), bytes([3]) * 10, bytes([6]) * 10, bytes([9]) * 10]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_what_passes_is_tried_again(server, caf, status):
    left = [3]

    def odd(handler, content):
        if left[0] and content:
            left[0] -= 1
            handler.answer(status, b"busy", {"Retry-After": "2"})
            return True
        return False

    server.odd = odd
    assert len(holdall.open(server.address + "/x.caf", index=False)) == 200
    assert server.paused == [2, 2, 2]
    left[0] = 100
    with pytest.raises(holdall.HoldallError, match=f"{status} .*, 5 times"):
        holdall.open(server.address + "/x.caf", index=False)


def test_broken_connections_are_tried_again(server, caf):
    left = [2]

    def odd(handler, content):
        if not left[0] or content is None:
            return False
        left[0] -= 1
        if left[0]:
            handler.send_response(206)
            handler.send_header("Content-Range", f"bytes 0-99/{len(content)}")
            handler.send_header("Content-Length", "100")
            handler.end_headers()
            handler.wfile.write(b"only some")
        handler.close_connection = True
        handler.connection.close()
        return True

    server.odd = odd
    assert len(holdall.open(server.address + "/x.caf", index=False)) == 200
    assert len(server.paused) == 2


def test_a_server_that_closes_is_asked_again_at_once(server, caf):
    def odd(handler, content):
        handler.close_connection = True  # without a word
        return False

    server.odd = odd
    a = holdall.open(server.address + "/x.caf", index=False, verify=False)
    assert [a[i] for i in range(5)] == a.read_many(range(5))
    assert not server.paused


@pytest.mark.parametrize("how", ["etag", "date", "size", "412"])
def test_an_object_that_changes_is_an_error(server, caf, how):
    later = []

    def odd(handler, content):
        if content is None:
            return False
        first, last = span(handler.headers["Range"], len(content))
        size, headers = len(content), {"ETag": '"1"', "Last-Modified": "Mon, 23 Nov 2026 06:00:00 GMT"}
        if later and how == "412":
            handler.answer(412 if handler.headers.get("If-Match") == '"1"' else 200, b"")
            return True
        if how == "date":
            del headers["ETag"]
        if later:
            headers.update({"etag": {"ETag": '"2"'}, "date": {"Last-Modified": "Mon, 23 Nov 2026 06:00:01 GMT"}, "size": {}}[how])
            size += how == "size"
        handler.answer(206, content[first:last], {**headers, "Content-Range": f"bytes {first}-{last - 1}/{size}"})
        return True

    server.odd = odd
    a = holdall.open(server.address + "/x.caf", index=False, verify=False)
    assert a[0] == FILES[a.name(0)]
    later.append(True)
    for read in (lambda: a[1], lambda: a.read_many([2, 150])):
        with pytest.raises(holdall.DamagedError, match="changed"):
            read()


@pytest.mark.parametrize(
    "headers, status, body",
    [
        ({"Content-Range": "bytes 1-1000/{size}"}, 206, 1000),
        ({"Content-Range": "bytes 0-999/{size}"}, 206, 999),
        ({"Content-Range": "nonsense"}, 206, 1000),
        ({}, 206, 1000),
        ({"Content-Encoding": "gzip", "Content-Range": "bytes 0-999/{size}"}, 206, 1000),
        ({"Content-Range": "bytes 0-1999/{size}"}, 206, 2000),
        ({}, 416, 0),
        ({}, 403, 0),
        ({}, 204, 0),
    ],
)
def test_wrong_answers_are_errors(server, caf, headers, status, body):
    a = holdall.open(server.address + "/x.caf", index=False, verify=False)

    def odd(handler, content):
        handler.answer(status, bytes(body), {k: v.format(size=len(content)) for k, v in headers.items()})
        return True

    server.odd = odd
    with pytest.raises(holdall.HoldallError):
        a["d0/000.bin"]


def test_servers_that_know_no_ranges(server, caf):
    def odd(handler, content):
        if content is None:
            return False
        handler.answer(200, content)
        return True

    server.odd = odd
    assert dict(holdall.open(server.address + "/x.caf", index=False)) == FILES  # it is short
    server.objects["/x.caf"] = bytes(2 << 20) + server.objects["/x.caf"]
    with pytest.raises(holdall.UnsupportedError, match="ignores ranges"):
        holdall.open(server.address + "/x.caf", index=False)


def test_servers_that_refuse_the_last_bytes(server, caf):
    def odd(handler, content):
        wanted = handler.headers["Range"]
        if content and wanted.startswith("bytes=-"):
            handler.answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
            return True
        return False

    server.odd = odd
    assert dict(holdall.open(server.address + "/x.caf", index=False)) == FILES


def test_redirects_are_followed_and_forgotten_when_they_expire(server, caf):
    signed = ["/signed-1"]

    def odd(handler, content):
        if handler.path == "/x.caf":
            handler.answer(307, b"", {"Location": signed[0]})
        elif handler.path == signed[0]:
            content = server.objects["/x.caf"]
            first, last = span(handler.headers["Range"], len(content))
            handler.answer(206, content[first:last], {"Content-Range": f"bytes {first}-{last - 1}/{len(content)}"})
        else:
            handler.answer(403, b"expired")
        return True

    server.odd = odd
    a = holdall.open(server.address + "/x.caf", index=False, verify=False)
    assert a[0] == FILES[a.name(0)]
    assert sum(p == "/x.caf" for p, _, _ in server.asked) == 1
    signed[0] = "/signed-2"
    assert a[1] == FILES[a.name(1)]
    signed[0] = "/x.caf"
    server.odd = lambda handler, content: handler.answer(302, b"", {"Location": "/x.caf"}) or True
    with pytest.raises(holdall.HoldallError, match="redirects"):
        holdall.open(server.address + "/x.caf")
    server.odd = lambda handler, content: handler.answer(302, b"", {"Location": "file:///etc/passwd"}) or True
    with pytest.raises(holdall.HoldallError, match="not followed"):
        holdall.open(server.address + "/x.caf")


def test_secrets_are_sent_to_their_server_and_not_shown(server, caf):
    address = server.address.replace("//", "//me:pass%20word@") + "/x.caf?sig=secret"
    server.objects["/x.caf?sig=secret"] = server.objects["/x.caf"]
    a = holdall.open(address, index=False)
    assert a[0] == FILES[a.name(0)]
    assert server.asked[0][2]["Authorization"] == "Basic " + base64.b64encode(b"me:pass word").decode()
    server.objects.clear()
    with pytest.raises(holdall.NotFoundError) as err:
        a[1]
    for text in (a.address, repr(a), str(err.value)):
        assert "secret" not in text and "pass" not in text


def test_by_way_of_a_proxy(server, caf, monkeypatch):
    monkeypatch.setenv("http_proxy", server.address)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    server.objects["http://archives.invalid:81/x.caf?q=1"] = server.objects["/x.caf"]
    assert dict(holdall.open("http://archives.invalid:81/x.caf?q=1", index=False)) == FILES


def test_external_volumes_of_ones_own_server(server):
    server.objects["/a/x.lindi.json"] = b'{"refs": {"in": ["b/y.bin", 1, 2], "there": ["%s/z", 0, 3]}}' % server.address.encode()
    server.objects["/a/b/y.bin"] = b"0123"
    server.objects["/z"] = b"zzz"
    a = holdall.open(server.address + "/a/x.lindi.json", view="zarr")
    assert dict(a) == {"in": b"12", "there": b"zzz"}
    server.objects["/a/x.lindi.json"] = b'{"refs": {"out": ["//127.0.0.1:1/y", 1, 2], "there": ["http://127.0.0.1:1/z", 0, 3]}}'
    a = holdall.open(server.address + "/a/x.lindi.json", view="zarr")
    for name in a:
        with pytest.raises(holdall.UnsupportedError, match="leads to"):
            a[name]


def test_bytes_that_no_request_can_have_are_escaped(server):
    server.objects["/%C3%BC%20b%FF%2Fc.caf?x=%C3%A4"] = b"content"
    assert web.WebObject(f"{server.address}/ü b\udcff%2Fc.caf?x=ä").read(0, 7) == b"content"


def test_what_is_not_there(server):
    with pytest.raises(holdall.NotFoundError, match="404"):
        holdall.open(server.address + "/x.caf")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"http://127.0.0.1:{free.getsockname()[1]}/x.caf"
    with pytest.raises(holdall.HoldallError, match="no answer"):
        holdall.open(address)
    with pytest.raises(holdall.HoldallError):
        holdall.open("http:///x.caf")


def _count(a, out):
    out.put(sum(len(a[i]) for i in range(20)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_forked_processes_have_connections_of_their_own(server, caf):
    a = holdall.open(server.address + "/x.caf", index=False, verify=False)
    a.read_many([0, 100, 199])
    context = multiprocessing.get_context("fork")
    out = context.Queue()
    children = [context.Process(target=_count, args=(a, out)) for _ in range(4)]
    for c in children:
        c.start()
    assert [out.get(timeout=60) for _ in children] == [20_000] * 4
    for c in children:
        c.join()
    assert a[5] == FILES[a.name(5)]
