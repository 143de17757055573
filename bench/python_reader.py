"""What bench lets the Python package do, and what it is compared with: one step a process,
timed without the start of Python. Prints wall and CPU seconds and bytes of RSS.

  ready FILE INDEX NAME   open, and ask for a name
  together PATTERN N      open N samples in archives
  random FILE N           N files at random, by name
  proven FILE N           the same, compared with their digests
  zip FILE N DIR          the same of a zip, which is made of a folder if it is not there
  files DIR FILE N        the same files of a folder
  epoch FILE N            all N files, shuffled; prints null if there is no decoder
  train FILE N            all N files, shuffled and compared with their digests; also of a server
  uniform FILE N          the same in a uniform shuffle
  mds OUT DIR             makes what MosaicML streaming reads of a folder; prints null if it is not installed
  mosaicml OUT N          all N of those, shuffled; also of a server, by its address
  tar FILE                all files of a tar as they come, through a buffer of 1,000
  webdataset FILE         the same by webdataset; prints null if it is not installed
  each URL N              N files at random, one after the other
  many URL N              the same at once
"""

import glob
import json
import os
import random
import resource
import shutil
import sys
import tarfile
import tempfile
import time
import zipfile

import holdall
from holdall.datasets import Samples, Stream


def timed(f):
    wall, cpu = time.perf_counter(), time.process_time()
    f()
    return time.perf_counter() - wall, time.process_time() - cpu


def together(pattern, n):
    def step():
        assert len(Stream(Samples(pattern), seed=1, rank=3, world=64)) == int(n) // 64

    return timed(step)


def some(archive, n):
    rnd = random.Random(1)
    return [archive.name(rnd.randrange(len(archive))) for _ in range(n)]


def ready(file, index, name):
    def step():
        assert name in holdall.open(file, index=index)

    return timed(step)


def random_(file, n, verify=False):
    a = holdall.open(file, verify=verify)
    names = some(a, int(n))

    def step():
        for name in names:
            a[name]

    return timed(step)


def proven(file, n):
    return random_(file, n, True)


def zip_(file, n, folder):
    if not os.path.exists(file):
        with zipfile.ZipFile(file, "w") as z:
            for path in sorted(glob.glob(f"{folder}/*/*")):
                z.write(path, os.path.relpath(path, folder))
    z = zipfile.ZipFile(file)
    rnd, all_ = random.Random(1), z.namelist()
    names = [all_[rnd.randrange(len(all_))] for _ in range(int(n))]

    def step():
        for name in names:
            z.read(name)

    return timed(step)


def files(folder, file, n):
    names = [f"{folder}/{name}" for name in some(holdall.open(file), int(n))]

    def step():
        for name in names:
            with open(name, "rb") as f:
                f.read()

    return timed(step)


def train(file, n):
    return epoch(file, n, True)


def uniform(file, n):
    with tempfile.TemporaryDirectory() as cache:
        return epoch(file, n, True, cache, exact=True)


def epoch(file, n, verify=False, cache=False, **how):
    archive = holdall.open(file, verify=verify, cache=cache)
    stream = Stream(Samples(archive), seed=1, **how)
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


def mds(out, folder):
    try:
        from streaming import MDSWriter
    except ImportError:
        return None
    if not os.path.exists(out):
        with MDSWriter(out=out + ".tmp", columns={"name": "str", "content": "bytes"}) as w:
            for path in sorted(glob.glob(f"{folder}/*/*")):
                with open(path, "rb") as f:
                    w.write({"name": os.path.relpath(path, folder), "content": f.read()})
        os.rename(out + ".tmp", out)
    return 0, 0


def mosaicml(out, n):
    from streaming import StreamingDataset

    how = {"local": out}
    if out.startswith("http://"):  # a server of the folder is a server of buckets as far as is needed
        server, _, bucket = out.rpartition("/")
        os.environ |= {"S3_ENDPOINT_URL": server, "AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench-secret", "AWS_DEFAULT_REGION": "us-east-1"}
        how = {"local": tempfile.mkdtemp(), "remote": "s3://" + bucket}
    dataset = StreamingDataset(**how, shuffle=True, shuffle_seed=1, batch_size=256)  # with 1 it takes six times as long

    def step():
        count = sum(1 for _ in dataset)
        assert count == int(n), count

    try:
        return timed(step)
    finally:
        if "remote" in how:
            shutil.rmtree(how["local"])


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


steps = ready, together, random_, proven, zip_, files, epoch, train, uniform, tar, mds, mosaicml, webdataset, each, many
took = {f.__name__.rstrip("_"): f for f in steps}[sys.argv[1]](*sys.argv[2:])
rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
print(json.dumps(took and {"Wall": took[0], "CPU": took[1], "RSS": rss}))
