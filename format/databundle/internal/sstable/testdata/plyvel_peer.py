"""LevelDB, by way of plyvel, as the other party of peer_test.go.

    plyvel_peer.py write OUT FIRST COUNT   makes databases OUT/SEED by random
                                           operations, and prints what is in them
    plyvel_peer.py list DIR...             prints what LevelDB reads in DIR

A line is: directory, number of rows, SHA-256 of all rows in order of key, each as
u32 length and key, u32 length and value, big-endian. What LevelDB opens it changes;
so it gets copies.
"""
import hashlib, os, random, re, shutil, struct, sys, tempfile
import plyvel


def digest(rows):
    h, n = hashlib.sha256(), 0
    for k, v in rows:
        h.update(struct.pack('>I', len(k)) + k + struct.pack('>I', len(v)) + v)
        n += 1
    return '%d %s' % (n, h.hexdigest())


def random_key(r):
    k = bytes(r.choice(b'ab\0\xff') for _ in range(r.randrange(12)))
    return k + str(r.randrange(3000)).encode() if r.random() < .7 else k


def random_value(r):
    c = r.random()
    if c < .05:
        return b''
    if c < .10:
        return bytes([r.randrange(97, 123)]) * r.randrange(20000)
    if c < .15:
        return r.randbytes(r.randrange(60000))
    return str(r.randrange(10 ** 6)).encode()


def state(db, work):
    """The size of each file, and whether no compaction is under way: then the
    directory has just the tables that LevelDB knows."""
    files = {f.name: f.stat().st_size for f in os.scandir(work)}
    tables = {int(name.split('.')[0]) for name in files if name.endswith(('.ldb', '.sst'))}
    live = re.findall(rb'^ (\d+):', db.get_property(b'leveldb.sstables'), re.M)
    return files, tables == set(map(int, live))


def copy_open(db, work, d):
    """Copies a database that is open. LevelDB may start a compaction at any time,
    even after compact_range, so a copy counts only if nothing changed meanwhile."""
    while True:
        try:
            before, quiet = state(db, work)
            if quiet:
                shutil.copytree(work, d)
                if state(db, work) == (before, True):
                    return
        except (FileNotFoundError, shutil.Error):
            pass
        shutil.rmtree(d, ignore_errors=True)


def make(out, seed):
    r = random.Random(seed)
    d = os.path.join(out, str(seed))
    options = dict(
        write_buffer_size=r.choice([64 << 10, 256 << 10, 4 << 20]),
        max_file_size=1 << 20,
        block_size=r.choice([256, 4096, 65536]),
        block_restart_interval=r.choice([1, 2, 16, 100]),
        compression=r.choice([None, 'snappy']),
        bloom_filter_bits=r.choice([0, 10]),
    )
    work = tempfile.mkdtemp()
    rows = {}
    db = plyvel.DB(work, create_if_missing=True, **options)
    for _ in range(r.randrange(1, 3000)):
        c = r.random()
        if c < .60:
            k, v = random_key(r), random_value(r)
            db.put(k, v)
            rows[k] = v
        elif c < .80:
            k = r.choice(list(rows)) if rows and r.random() < .8 else random_key(r)
            db.delete(k)
            rows.pop(k, None)
        elif c < .99:
            with db.write_batch() as b:
                for _ in range(r.randrange(40)):
                    k = random_key(r)
                    if r.random() < .3:
                        b.delete(k)
                        rows.pop(k, None)
                    else:
                        v = random_value(r)
                        b.put(k, v)
                        rows[k] = v
        elif c < .996:
            db.compact_range()
        else:
            db.close()
            db = plyvel.DB(work, **options)
    if r.random() < .5:
        db.close()
        shutil.copytree(work, d)
    else:  # as a crash leaves it
        db.compact_range()
        db.put(b'last', b'words')
        rows[b'last'] = b'words'
        copy_open(db, work, d)
        db.close()
    shutil.rmtree(work)
    print(d, digest(sorted(rows.items())), flush=True)


def show(d):
    t = tempfile.mkdtemp()
    c = os.path.join(t, 'db')
    shutil.copytree(d, c)
    db = plyvel.DB(c, paranoid_checks=True)
    print(d, digest(db.iterator(verify_checksums=True)), flush=True)
    for k, v in db.iterator():
        assert db.get(k) == v
    db.close()
    shutil.rmtree(t)


if sys.argv[1] == 'write':
    for seed in range(int(sys.argv[3]), int(sys.argv[3]) + int(sys.argv[4])):
        make(sys.argv[2], seed)
else:
    for d in sys.argv[2:]:
        show(d)
