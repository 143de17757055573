"""Archives in threads and in other processes."""

import multiprocessing
import os
import random
import subprocess
import threading
import zlib

import pytest

import holdall

WORKERS = 8


def files():
    return {f"{i % 7}/{i:04d}": random.Random(i).randbytes(500) + bytes(500) for i in range(400)}


@pytest.fixture(params=["x.caf", "x.rvn", "own"])
def archive(request, pack, holdall_command):
    name = "x.caf" if request.param == "own" else request.param
    path = pack(files(), name)
    if request.param != "own":
        subprocess.run([holdall_command, "index", "-q", str(path)], check=True)
    return holdall.open(path)


def sums(a, seed, out):
    """Read all in an order of one's own, in several ways."""
    order = list(range(len(a)))
    random.Random(seed).shuffle(order)
    total = 0
    for i in order:
        total += zlib.crc32(a[i] if i % 2 else a[a.name(i)])
    for at in range(0, len(order), 50):
        total += sum(map(zlib.crc32, a.read_many(order[at : at + 50])))
    out.put(total)


def expected():
    return 2 * sum(map(zlib.crc32, files().values()))


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_workers_of_a_parent_that_has_read(archive, method):
    """The parent has read before, and goes on reading in threads while workers are started."""
    context = multiprocessing.get_context(method)
    out = context.Queue()
    for i in range(50):
        archive[i]
    stop = threading.Event()
    wrong = []

    def read():
        while not stop.is_set():
            try:
                archive.read_many(random.sample(range(len(archive)), 20))
                archive[random.randrange(len(archive))]
            except Exception as err:
                wrong.append(err)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for t in threads:
        t.start()
    try:
        for _ in range(3 if method == "fork" else 1):
            # Others than forked ones start Python anew, which takes a while.
            children = [context.Process(target=sums, args=(archive, seed, out)) for seed in range(WORKERS if method == "fork" else 3)]
            for c in children:
                c.start()
            assert [out.get(timeout=120) for _ in children] == [expected()] * len(children)
            for c in children:
                c.join()
                assert c.exitcode == 0
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert not wrong


def test_threads(archive):
    import queue

    out = queue.Queue()
    threads = [threading.Thread(target=sums, args=(archive, seed, out)) for seed in range(WORKERS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [out.get() for _ in threads] == [expected()] * WORKERS


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_an_open_file_in_forked_processes(pack):
    """A file object has a position, which forked processes would share: each read sets it under a lock."""
    path = pack(files(), "x.caf")
    context = multiprocessing.get_context("fork")
    out = context.Queue()
    import io

    a = holdall.open(io.BytesIO(path.read_bytes()))
    with a.source._lock:  # as if a thread read just now
        children = [context.Process(target=sums, args=(a, seed, out)) for seed in range(2)]
        for c in children:
            c.start()
        assert [out.get(timeout=60) for _ in children] == [expected()] * 2
    for c in children:
        c.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
def test_a_file_that_is_read_on_in_forked_processes(archive):
    f = archive.open("0/0000")
    f.read(10)
    content = files()["0/0000"]
    reading, writing = os.pipe()
    for _ in range(3):
        pid = os.fork()
        if not pid:
            os.write(writing, b"1" if f.read() == content[10:] else b"0")
            os._exit(0)
        os.waitpid(pid, 0)
    assert f.read() == content[10:]
    assert os.read(reading, 3) == b"111"
    os.close(reading)
    os.close(writing)
