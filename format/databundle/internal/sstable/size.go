package sstable

// Size is how long all files of the directory are together, tables by what the
// manifest says of them.
func (db *DB) Size() (n int64) {
	for _, g := range db.groups {
		for _, t := range g.tables {
			n += t.size
		}
	}
	for _, files := range [][]File{db.heads, db.logs} {
		for _, f := range files {
			n += max(f.Size, 0)
		}
	}
	return n
}
