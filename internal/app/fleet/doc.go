// Package fleet packs sources of any size into many archives, by any number of
// workers that may be killed at any time.
//
// It is for who moves millions of objects; one archive is package holdall's affair.
//
// A plan is a list of the source's objects, cut into chunks, in the catalogue's own
// database. A worker claims a chunk, packs what it lists into one archive, and then
// records at once, in one transaction: the archive, what is in it, and that the chunk
// is done. What was not recorded is not there for anybody, so the transaction is all
// that decides: it goes through only for the newest claim of the chunk.
//
// A claim lasts for a short while and is renewed. Who dies does not renew it, and the
// chunk is somebody else's then. Archives are created once, and never replaced: who
// finds that an earlier claim's archive is there already looks whether it is made of
// the chunk's objects, and records it.
package fleet
