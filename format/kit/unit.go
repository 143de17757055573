package kit

import "hash/crc32"

// EndsUnit reports whether a unit that is compressed alone should end before a file of so many bytes, if it has so many
// already and at most most. It should be at least half full, if the file does not fit any more. A file that takes more
// than one unit begins with one, so that it is cut in the same way if what is before it changes.
func EndsUnit(size, has, most int64) bool { return size >= most || has >= most/2 && has+size > most }

// EndsUnitAfter reports whether a unit should end after the file called name. From a quarter on, units end by the names
// of files, at one half on average. So if a file has another size, the units soon begin with the same files as before, and
// are the same bytes: a copy of the archive needs only one or two new ones. This takes one or two percent more room.
func EndsUnitAfter(name string, size, has, most int64) bool {
	if has < most/4 || has >= most {
		return has >= most
	}
	return int64(crc32.ChecksumIEEE([]byte(name))) < min(size, most)<<32/max(most/8*3, 1)
}
