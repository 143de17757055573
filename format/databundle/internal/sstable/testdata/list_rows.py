"""Writes rows.txt: what an independent reader finds in the directories beside it.

    list_rows.py DIR-OF-BUNDLELIB >rows.txt

bundlelib.py reads them in Python, from the specification. A line is the name of a
directory, how many rows it has, and the SHA-256 of all rows in order of key, each
as u32 length and key, u32 length and value, big-endian; or its class of error.
"""
import hashlib, os, struct, sys
sys.path.insert(0, sys.argv[1])
from bundlelib import edb_read, BErr

here = os.path.dirname(os.path.abspath(__file__))
for name in sorted(os.listdir(here)):
    d = os.path.join(here, name)
    if not os.path.isfile(os.path.join(d, 'CURRENT')):
        continue
    try:
        rows = edb_read(d)
    except BErr as e:
        print(name, e.cls)
        continue
    h = hashlib.sha256()
    for k in sorted(rows):
        h.update(struct.pack('>I', len(k)) + k + struct.pack('>I', len(rows[k])) + rows[k])
    print(name, len(rows), h.hexdigest())
