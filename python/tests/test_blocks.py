"""The cache on a disk: its files as the command has them, each block downloaded once, and nothing wrong whatever happens."""

import json
import multiprocessing
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from http.server import BaseHTTPRequestHandler

import pytest
from conftest import HttpServer

import holdall
from holdall import blocks, objects, web
from holdall.datasets import Samples, Stream

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Python takes no locks of ranges there")

LONG = int(os.environ.get("HOLDALL_LONG", "0"))
MIB = 1 << 20
VECTORS = pathlib.Path(__file__).parent.parent.parent / "internal/read/blocks/testdata/vectors.json"


def content(version, size):
    return random.Random(version).randbytes(size)


class Server:
    """A server of objects, which counts how often each of their blocks is requested."""

    def __init__(self):
        self.objects, self.etag = {}, '"one"'
        self.asked, self.blocks = [], {}
        self.then = lambda: None
        outer, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_HEAD(self):
                self.do_GET()

            def do_GET(self):
                data = outer.objects.get(self.path)
                wanted = self.headers.get("Range", "bytes=0-") if data is not None else ""
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                begin, end = (int(first), int(last or len(data) - 1) + 1) if first else (max(len(data or b"") - int(last or 0), 0), len(data or b""))
                end = min(end, len(data or b""))
                with lock:
                    outer.asked.append((self.command, self.path, wanted))
                    if first and end - begin > 1 and self.command == "GET":
                        for n in range(begin // blocks.BLOCK, (end - 1) // blocks.BLOCK + 1):
                            outer.blocks[n] = outer.blocks.get(n, 0) + 1
                        outer.then()
                part = data[begin:end] if data is not None else b""
                self.send_response(404 if data is None else 206 if "Range" in self.headers else 200)
                for k, v in {"Content-Length": len(part), "ETag": outer.etag, "Accept-Ranges": "bytes"}.items():
                    self.send_header(k, str(v))
                if data is not None and "Range" in self.headers:
                    self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(data)}")
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(part)

            def log_message(self, *_):
                pass

        self.http = HttpServer(("127.0.0.1", 0), Handler)
        self.http.handle_error = lambda *_: None
        self.address = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def requests(self):
        """The requests since the last call."""
        asked, self.asked = self.asked, []
        return asked


@pytest.fixture
def server():
    s = Server()
    yield s
    s.http.shutdown()
    s.http.server_close()


def taken(folder):
    """The size of all files."""
    n = 0
    for entry in os.scandir(folder):
        try:
            n += entry.stat().st_size
        except FileNotFoundError:
            pass
    return n


def far(address, folder, size):
    obj = web.WebObject(address, blocks.Cache(str(folder), size))
    obj.head(1)
    return obj


def work(address, folder, limit, version, size, passes, threads, seed):
    """Read all of an object in each pass, in runs in any order, and compare it."""
    want, rng = content(version, size), random.Random(seed)
    obj = far(address, folder, limit)

    def check(ranges):
        for (offset, length), data in zip(ranges, obj.read_many(ranges) if len(ranges) > 1 else [obj.read(*ranges[0])], strict=True):
            if data != want[offset : offset + length]:
                raise AssertionError(f"wrong bytes in {length} at {offset}")

    for _ in range(passes):
        starts = list(range(0, size, 100_000))
        rng.shuffle(starts)
        ranges = [(at, min(100_000 * rng.randint(1, 5), size - at)) for at in starts]
        groups = [ranges[at : at + n] for n in (1, 3) for at in range(len(ranges) // 2 * (n == 3), len(ranges) // (1 if n == 3 else 2), n)]
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(check, groups))


def process(*args, context="forkserver"):
    p = multiprocessing.get_context(context).Process(target=work, args=args)
    p.start()
    return p


# The same files as the command has


def test_vectors(tmp_path):
    v = json.loads(VECTORS.read_text())
    folder = tmp_path / "cache"
    files = blocks.Cache(str(folder), v["limit"]).files(check=True)
    table = blocks.new_table(v["limit"], bytes.fromhex(v["id"]))
    assert table[: blocks.RECORD].hex() == v["header"]
    os.pwrite(files.table, table, 0)
    for b in v["blocks"]:
        key, begin, end = blocks.Blocks(blocks.Cache(str(folder), 0), b["size"], b["version"], b["identity"]).block(b["block"])
        assert key.hex() == b["key"] and blocks.lock_of(key) == b["lock"] and files.head().places(key) == b["buckets"]
        data = bytes((i * 31 >> 3) & 255 for i in range(begin, end))
        files.write(key, data)
        assert files.read(key, len(data), [(0, len(data))]) == [data]
        assert os.pread(files.table, blocks.RECORD, b["slot_at"]).hex() == b["slot"]
    assert os.pread(files.table, blocks.RECORD, blocks.RECORD).hex() == v["state"]
    assert sha256((folder / v["segment"]).read_bytes()).hexdigest() == v["segment_sha256"]


FILES = {f"d{i % 3}/{i:03d}": random.Random(i).randbytes(20_000 if i else 5 * MIB) for i in range(100)}


@pytest.fixture
def archive(pack, server):
    server.objects["/x.caf"] = pack(FILES, "x.caf").read_bytes()
    return server.address + "/x.caf"


def cat(command, folder, address, limit="16MiB"):
    env = {k: v for k, v in os.environ.items() if k != "HOLDALL_CACHE_DIR"} | {"HOLDALL_CACHE": "none"}
    return subprocess.Popen([command, "--cache-dir", folder, "--cache-size", limit, "cat", address, *FILES], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)


def test_what_one_of_command_and_python_downloads_the_other_reads(server, archive, holdall_command, tmp_path):
    whole = b"".join(FILES.values())

    def by_command(folder):
        out, said = cat(holdall_command, folder, archive).communicate()
        assert out == whole, said

    def by_python(folder):
        a = holdall.open(archive, cache=folder, cache_size="16MiB")
        assert b"".join(a.read_many(FILES)) == whole and dict(a) == FILES

    for first, second in ((by_command, by_python), (by_python, by_command)):
        folder = tmp_path / first.__name__
        first(folder)
        assert sum(path == "/x.caf" for _, path, _ in server.requests()) > 2
        second(folder)
        assert [wanted for _, path, wanted in server.requests() if path == "/x.caf" and wanted != "bytes=-65536"] == []
        assert taken(folder) <= 16 * MIB and (folder.stat().st_mode & 0o777) == 0o700


# Processes and threads


def test_processes_fetch_each_block_once_also_with_the_command(server, archive, holdall_command, tmp_path):
    """Sixteen processes read a set that fits, four times each."""
    size, limit, folder = 10 * MIB + 12345, 24 * MIB, tmp_path / "cache"
    server.objects["/y"] = content("one", size)
    over = []
    server.then = lambda: over.append(taken(folder)) if taken(folder) > limit else None
    running = [process(server.address + "/y", folder, limit, "one", size, 4, 2, seed) for seed in range(16)]
    for p in running:
        p.join()
        assert p.exitcode == 0
    assert server.blocks == dict.fromkeys(range(size // blocks.BLOCK + 1), 1) and not over
    server.requests()
    work(server.address + "/y", folder, limit, "one", size, 1, 2, 0)
    assert len(server.requests()) == 1  # which says the version
    server.blocks.clear()
    commands = [cat(holdall_command, folder, archive, "24MiB") for _ in range(4)]
    a = holdall.open(archive, cache=folder)
    assert dict(a) == FILES
    assert {c.communicate()[0] for c in commands} == {b"".join(FILES.values())}
    # Each process has asked for up to 64 KiB without knowing the version.
    assert sum(w.startswith("bytes=") and not w.startswith("bytes=-") and int(w[6:].split("-")[1]) - int(w[6:].split("-")[0]) >= 65536 for _, _, w in server.asked) <= len(server.blocks)


def test_threads_fetch_each_block_once(server, tmp_path):
    size = 3 * MIB + 5
    server.objects["/y"] = data = content("one", size)
    obj = far(server.address + "/y", tmp_path, 16 * MIB)
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda i: obj.read(i, size - i) == data[i:], range(8)))
    assert server.blocks == dict.fromkeys(range(13), 1)
    server.requests()
    assert obj.head(300_000) == data[:300_000] and obj.tail(300_000) == data[-300_000:] and obj.read(5, 0) == b""
    with pytest.raises(holdall.DamagedError, match="ends at"):
        obj.read(1, size)
    with pytest.raises(holdall.DamagedError, match="ends at"):
        obj.read_many([(0, 5), (1, size)])
    assert server.requests() == []


def test_what_is_missing_is_requested_together(server, tmp_path):
    server.objects["/y"] = data = content("one", 10 * MIB)
    obj = far(server.address + "/y", tmp_path, 64 * MIB)
    server.requests()
    block = blocks.BLOCK
    ranges = [(at, 10) for at in (0, block - 5, 2 * block + 1, 5 * block, 30 * block)]
    assert obj.read_many(ranges) == [data[at : at + n] for at, n in ranges]
    assert sorted(w for _, _, w in server.requests()) == sorted(f"bytes={a * block}-{b * block - 1}" for a, b in ((0, 3), (5, 6), (30, 31)))
    assert obj.read(0, len(data)) == data
    assert [w for _, _, w in server.requests()] == [f"bytes={a * block}-{b * block - 1}" for a, b in ((3, 5), (6, 23), (23, 30), (31, 40))]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_a_forked_process_has_locks_of_its_own(tmp_path):
    files = blocks.Cache(str(tmp_path), 0).files(check=True)
    key = bytes(range(32))
    release, _ = files.hold(key, False)
    asks, answers = multiprocessing.Pipe()
    pid = os.fork()
    if not pid:
        mine = blocks.Cache(str(tmp_path), 0).files()
        answers.send((mine is not files, mine.hold(key, False)[0] is None))
        answers.recv()  # the parent has released it
        again, waited = mine.hold(key, False)
        answers.send((again is not None, waited))
        answers.recv()
        os._exit(0)
    try:
        assert asks.recv() == (True, True)
        release()
        asks.send(None)
        assert asks.recv() == (True, False)
        assert files.hold(key, False)[0] is None  # the child holds it
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert files.hold(key, False)[0] is not None


# Training


def test_the_second_epoch_takes_no_request(server, archive, tmp_path, monkeypatch):
    from torch.utils.data import DataLoader

    monkeypatch.setenv("HOLDALL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HOLDALL_CACHE_SIZE", "0.02GiB")
    stream = Stream(Samples(archive), seed=1, block=4)
    for epoch in range(3):
        assert sorted(stream) == sorted(FILES.items())
        assert bool(server.requests()) == (epoch == 0)
    assert all(n == 1 for n in server.blocks.values())
    loader = DataLoader(stream, batch_size=8, num_workers=3, collate_fn=list)  # which are forked from what is open
    for _ in range(2):
        assert sorted(s for batch in loader for s in batch) == sorted(FILES.items())
        assert server.requests() == []
    loader = DataLoader(stream, batch_size=8, num_workers=3, collate_fn=list, multiprocessing_context="spawn")
    assert sorted(s for batch in loader for s in batch) == sorted(FILES.items())
    assert all(path != "/x.caf" or wanted == "bytes=-65536" for _, path, wanted in server.requests())


def test_an_index_on_the_disk_is_not_in_memory_too(server, pack, holdall_command, tmp_path):
    files = {f"{i % 50:02d}/{i:05d}.bin": b"%d" % i for i in range(10_000)}
    server.objects["/x.caf"] = pack(files, "many.caf").read_bytes()
    out = tmp_path / "far.holdall"
    subprocess.run([holdall_command, "index", "-q", server.address + "/x.caf", "-o", str(out)], check=True)
    server.objects["/x.caf.holdall"] = out.read_bytes()
    for epoch in range(2):
        server.requests()
        a = holdall.open(server.address + "/x.caf", cache=tmp_path / "cache")
        assert a.index and not a._rows._fetched and a["07/00007.bin"] == b"7"
        assert a.read_many(files) == list(files.values()) and list(a) == sorted(files, key=lambda n: n.encode())
        asked = [path for _, path, _ in server.requests()]
        assert epoch == 0 or sorted(asked) == ["/x.caf", "/x.caf.holdall"]
        assert not a._rows._fetched


# Damage and kills


def test_killed_processes_leave_nothing_wrong(server, archive, holdall_command, tmp_path):
    """The set is larger than the cache, so segments are removed all the time. Every fourth process is the command."""
    size, limit, folder = 20 * MIB, 16 * MIB, tmp_path / "cache"
    server.objects["/y"] = content("one", size)
    whole, rng, over, wrong = b"".join(FILES.values()), random.Random(LONG), [], []
    running, turns, lock = {}, iter(range(200 if LONG else 40)), threading.Lock()

    def then():
        if taken(folder) > limit:
            over.append(taken(folder))
        with lock:
            if running and rng.randrange(6) == 0:
                running.pop(rng.choice(sorted(running)))()

    def one(turn):
        """Read until killed."""
        if turn % 4:
            p = process(server.address + "/y", folder, limit, "one", size, 1000, 2, turn)
            wait = lambda: p.join() or p.exitcode
        else:
            p = cat(holdall_command, folder, archive)
            wait = lambda: p.communicate() == (whole, b"") and -signal.SIGKILL or p.returncode
        with lock:
            running[turn] = p.kill
        if (code := wait()) not in (-signal.SIGKILL, 255):  # 255: it was killed so early that nobody knows how
            wrong.append((turn, code))
        with lock:
            running.pop(turn, None)

    def some(_):
        while (turn := next(turns, None)) is not None:
            one(turn)

    server.then = then
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(some, range(3)))
    assert (over, wrong) == ([], [])
    # What was left behind is gone, and a set that fits is kept.
    work(server.address + "/y", folder, limit, "one", size, 1, 2, 0)
    size = 12 * MIB
    server.objects["/z"] = content("two", size)
    for at in range(2):
        server.requests()
        work(server.address + "/z", folder, limit, "two", size, 1, 2, at)
    assert len(server.requests()) == 1 and taken(folder) <= limit


def test_damage_is_a_miss(server, tmp_path):
    size, rng = 2 * MIB + 77, random.Random(1)
    server.objects["/y"] = content("one", size)
    args = (server.address + "/y", tmp_path, 16 * MIB, "one", size, 1, 1, 0)
    work(*args)
    for _ in range(300 if LONG else 60):
        path = rng.choice(sorted(p for p in tmp_path.iterdir() if p.stat().st_size))
        data = bytearray(path.read_bytes())
        at = rng.randrange(len(data))
        if path.name == "blocks.table":  # not in the edition
            used = [i for i in range(128, len(data), 64) if any(data[i : i + 64])]
            at = rng.randrange(16, 128) if rng.randrange(2) or not used else rng.choice(used) + rng.randrange(64)
        with path.open("r+b") as f:
            f.seek(at)
            f.write(bytes([data[at] ^ rng.randrange(1, 256)]))
        work(*args)
    for _ in range(8):  # what replaces damaged blocks may take the room of others
        server.requests()
        work(*args)
        if len(server.requests()) == 1:
            return
    raise AssertionError("it does not recover")


def test_what_was_left_is_removed(server, tmp_path):
    server.objects["/y"] = content("one", MIB)
    folder = tmp_path / "cache"
    args = (server.address + "/y", folder, 16 * MIB, "one", MIB, 1, 1, 0)
    for harm in (
        lambda: (folder / "segment-00000001").write_bytes(bytes(MIB)),
        lambda: os.truncate(folder / "blocks.table", 5000),
        lambda: os.truncate(folder / "blocks.table", MIB),
        lambda: [p.unlink() for p in folder.iterdir()],
        lambda: (folder / "blocks.table").unlink(),
    ):
        work(*args)
        harm()
        blocks._opened.clear()  # as in another process
        work(*args)
        assert taken(folder) < MIB + 100_000
        server.requests()
        work(*args)
        assert len(server.requests()) == 1


def test_versions_do_not_mix(server, tmp_path):
    server.objects["/y"] = content("one", MIB)
    args = [server.address + "/y", tmp_path, 0, "one", MIB, 2, 1, 0]
    work(*args)
    old = far(server.address + "/y", tmp_path, 0)
    server.objects["/y"], server.etag = content("two", MIB), '"two"'
    work(*args[:3], "two", *args[4:])
    assert old.read(300_000, 1000) == content("one", MIB)[300_000:301_000]
    server.objects["/y?a"] = content("a", MIB)
    work(server.address + "/y?a", tmp_path, 0, "a", *args[4:])


@pytest.mark.parametrize("etag", ["", 'W/"1"'])
def test_without_a_strong_etag_nothing_is_kept(server, tmp_path, etag):
    server.objects["/y"], server.etag = content("one", MIB), etag
    work(server.address + "/y", tmp_path, 0, "one", MIB, 1, 1, 0)
    assert list(tmp_path.iterdir()) == []


def test_objects_of_fsspec_are_kept_unless_they_change_meanwhile(server, tmp_path):
    fsspec = pytest.importorskip("fsspec")
    server.objects["/y"] = data = content("one", 2 * MIB)
    cache = blocks.Cache(str(tmp_path), 0)
    for epoch in range(2):
        obj = objects.open_object(fsspec.open(server.address + "/y", skip_instance_cache=True), cache)
        server.requests()
        assert isinstance(obj, objects.FsspecFile)
        assert obj.read(5, MIB) == data[5 : MIB + 5] and obj.read_many([(0, 5), (MIB, MIB)]) == [data[:5], data[MIB:]]
        assert bool(server.requests()) == (epoch == 0)
    server.etag = '"two"'
    obj = objects.open_object(fsspec.open(server.address + "/y"), cache)
    server.then = lambda: setattr(server, "etag", '"three"')
    obj.read(5, 10)
    server.then = lambda: None
    server.requests()
    obj.read(5, 10)
    assert server.requests()  # what was fetched meanwhile may be of another version


# It is only a cache


def test_reads_do_not_need_the_cache(server, archive, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    later = bytearray(blocks.new_table(16 * MIB, bytes(16)))
    later[8] += 1
    (other / "blocks.table").write_bytes(later)
    file = tmp_path / "file"
    file.write_text("text")
    for folder, size in ((file, 0), (other, 0), (tmp_path / "small", MIB), (tmp_path / "large", 1 << 51)):
        with pytest.warns(RuntimeWarning, match="is not used") as warned:
            assert dict(holdall.open(archive, cache=folder, cache_size=size)) == FILES
            assert dict(holdall.open(archive, cache=folder, cache_size=size)) == FILES
        assert len(warned) == 1 and "\n" not in str(warned[0].message)
    assert (other / "blocks.table").read_bytes() == later
    monkeypatch.setenv("HOLDALL_CACHE_DIR", str(tmp_path / "none"))
    assert dict(holdall.open(archive, cache=False)) == FILES
    assert not (tmp_path / "none").exists()


def test_a_local_archive_makes_no_cache_but_what_it_refers_to_is_kept(server, tmp_path):
    server.objects["/z"] = b"zzz" * 5
    path = tmp_path / "x.lindi.json"
    path.write_text(json.dumps({"refs": {"there": [server.address + "/z", 0, 3], "and": [server.address + "/z", 3, 3]}}))
    folder = tmp_path / "cache"
    a = holdall.open(path, view="zarr", external=True, cache=folder)
    assert not folder.exists()
    assert a["there"] == b"zzz" and folder.exists()
    assert a["and"] == b"zzz" and a["there"] == b"zzz"
    assert len(server.requests()) == 2


@pytest.mark.parametrize("text, size", [("4096", 4096), ("30GB", 30 * 10**9), ("64MiB", 64 * MIB), ("1.5k", 1536), (" 2 T ", 2 << 40), ("5b", 5), ("1e3kb", 10**6), ("", 0), ("0", 0)])
def test_sizes(text, size, monkeypatch):
    monkeypatch.setenv("HOLDALL_CACHE_SIZE", text)
    assert blocks.named("x", None).size == size
    for limit in (16 * MIB, 16 * MIB + 1, 100 * MIB, 1 << 30, blocks.USUAL, 1 << 40, blocks.MOST):
        h = blocks.Head(blocks.new_table(limit, b"\xff" * 16))
        assert 0 <= limit - h.size - h.segments * h.segment < h.segments and h.sound and h.next == 0


@pytest.mark.parametrize("text", ["-1", "x", "12XB", "1..2", "nan", "inf", "1e99", "9999999T"])
def test_a_size_that_is_none(text, monkeypatch):
    monkeypatch.setenv("HOLDALL_CACHE_SIZE", text)
    with pytest.raises(ValueError, match="expected a size"):
        blocks.named(None, None)


def test_another_size_empties_the_cache(server, tmp_path):
    server.objects["/y"] = content("one", MIB)
    for size, kept in ((32 * MIB, False), (32 * MIB, True), (0, True), (20 * MIB, False)):
        server.requests()
        work(server.address + "/y", tmp_path, size, "one", MIB, 1, 1, 0)
        assert (len(server.requests()) == 1) == kept


def test_tables_of_any_bytes():
    rng = random.Random(2)
    table = blocks.new_table(16 * MIB, bytes(16))
    for _ in range(3000):
        raw = bytearray(table)
        for _ in range(rng.randrange(1, 4)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        try:
            h = blocks.Head(bytes(raw[: rng.choice((len(raw), rng.randrange(len(raw) + 1)))]))
        except OSError:
            continue
        s = h.slot(blocks.seal(rng.randbytes(40) + h.current.to_bytes(4, "little") + rng.randbytes(16), h.seed))
        assert s is None or s[1] + s[3] <= h.segment
