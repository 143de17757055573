# Writes the files of this folder, with pyarrow 26.0.1.
import datetime

import pyarrow as pa
import pyarrow.parquet as pq

N = 700
when = datetime.datetime(2026, 5, 1, tzinfo=datetime.timezone.utc)
schema = pa.schema([
    pa.field("bucket", pa.string(), nullable=False),
    pa.field("key", pa.string(), nullable=False),
    pa.field("version_id", pa.string()),
    pa.field("is_latest", pa.bool_()),
    pa.field("is_delete_marker", pa.bool_()),
    pa.field("size", pa.int64()),
    pa.field("last_modified_date", pa.timestamp("ms", tz="UTC")),
    pa.field("e_tag", pa.string()),
    pa.field("storage_class", pa.string()),
])
table = pa.table({
    "bucket": ["from"] * N,
    "key": ["in/é %d%%41/%d" % (i % 9, i) for i in range(N)],
    "version_id": ["v%d" % i if i % 3 else None for i in range(N)],
    "is_latest": [i % 5 != 0 for i in range(N)],
    "is_delete_marker": [i % 7 == 0 if i % 2 else None for i in range(N)],
    "size": [i * i if i % 11 else None for i in range(N)],
    "last_modified_date": [when] * N,
    "e_tag": ["%032x" % (i * 7919) if i % 13 else None for i in range(N)],
    "storage_class": ["STANDARD"] * N,
}, schema)
for name, how in {
    "v1-snappy": dict(compression="snappy"),
    "v2-gzip": dict(compression="gzip", data_page_version="2.0"),
    "v1-zstd": dict(compression="zstd", row_group_size=300),
    "v1-plain": dict(compression="none", use_dictionary=False),
    "v2-small": dict(compression="snappy", data_page_version="2.0", data_page_size=100, dictionary_pagesize_limit=1000, write_batch_size=50),
}.items():
    pq.write_table(table, name + ".parquet", write_statistics=False, store_schema=False, **how)
pq.write_table(table.select(["bucket", "key"]), "keys.parquet", write_statistics=False, store_schema=False)
pq.write_table(table.slice(0, 50), "brotli.parquet", compression="brotli", write_statistics=False, store_schema=False)
pq.write_table(table.slice(0, 50), "delta.parquet", use_dictionary=False, column_encoding={"size": "DELTA_BINARY_PACKED"}, write_statistics=False, store_schema=False)
