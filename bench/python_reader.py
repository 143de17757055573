"""What bench lets the Python package do, and what it is compared with: one step a process,
timed without the start of Python. Prints wall and CPU seconds and bytes of RSS.

  ready FILE INDEX NAME   open, and ask for a name
  random FILE N           N files at random, by name
  files DIR FILE N        the same files of a folder
  epoch FILE N            all N files, shuffled; prints null if there is no decoder
  tar FILE                all files of a tar as they come, through a buffer of 1,000
  webdataset FILE         the same by webdataset; prints null if it is not installed
  each URL N              N files at random, one after the other
  many URL N              the same at once
"""

import json
import random
import resource
import sys
import tarfile
import time

import holdall
from holdall.datasets import Samples, Stream


def timed(f):
    wall, cpu = time.perf_counter(), time.process_time()
    f()
    return time.perf_counter() - wall, time.process_time() - cpu


def some(archive, n):
    rnd = random.Random(1)
    return [archive.name(rnd.randrange(len(archive))) for _ in range(n)]


def ready(file, index, name):
    def step():
        assert name in holdall.open(file, index=index)

    return timed(step)


def random_(file, n):
    a = holdall.open(file, verify=False)
    names = some(a, int(n))

    def step():
        for name in names:
            a[name]

    return timed(step)


def files(folder, file, n):
    names = [f"{folder}/{name}" for name in some(holdall.open(file), int(n))]

    def step():
        for name in names:
            with open(name, "rb") as f:
                f.read()

    return timed(step)


def epoch(file, n):
    archive = holdall.open(file, verify=False)
    stream = Stream(Samples(archive), seed=1)
    try:
        archive[0]
    except holdall.UnsupportedError:
        return None

    def step():
        count = sum(1 for _ in stream)
        assert count == int(n), count

    return timed(step)


def tar(file):
    def step():
        rnd, held = random.Random(1), []
        with tarfile.open(file, "r|") as stream:
            for member in stream:
                if not member.isfile():
                    continue
                sample = member.name, stream.extractfile(member).read()
                if len(held) < 1000:
                    held.append(sample)
                else:
                    held[rnd.randrange(1000)] = sample

    return timed(step)


def webdataset(file):
    try:
        import webdataset as wds
    except ImportError:
        return None
    return timed(lambda: sum(1 for _ in wds.WebDataset(file, shardshuffle=False).shuffle(1000)))


def each(url, n):
    a = holdall.open(url, verify=False)
    names = some(a, int(n))
    return timed(lambda: [a[name] for name in names])


def many(url, n):
    a = holdall.open(url, verify=False)
    names = some(a, int(n))
    return timed(lambda: a.read_many(names))


took = {f.__name__.rstrip("_"): f for f in (ready, random_, files, epoch, tar, webdataset, each, many)}[sys.argv[1]](*sys.argv[2:])
rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
print(json.dumps(took and {"Wall": took[0], "CPU": took[1], "RSS": rss}))
