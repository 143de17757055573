// Package rows keeps what a catalogue knows of files in immutable runs: rows sorted by name. A name
// is found by reading one page of a run. Several runs are read as one, and merged into one.
//
//	"holdall run 1\n"
//	pages         rows, in the order of name; see appendPage
//	filter        blocks of bits that tell which names are not there
//	nodes         where pages are, if there are more than one node can have
//	index         where pages or nodes are, with the first names of each
//	root          JSON: how many rows there are, and where the parts above are
//	24 bytes      where index and root are, their CRC-32, and "holdrun1"
//
// A page, a block of the filter, and a node end in their CRC-32. Nothing in a run depends on the
// number of the commit that adds it: 0 stands for it. docs/bytes/catalog.md describes the bytes.
package rows
