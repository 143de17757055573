// Package oak reads, checks, repairs and writes segment stores of Apache Oak, the content
// repository of AEM: tars of segments of at most 256 KiB each, which refer to each other. It is
// for the engine and for the verbs of "holdall oak"; programs open stores with package holdall.
//
// A store is a folder:
//
//	data00000a.tar …  segments, in the order of writing, with an index at the end
//	journal.log       revisions of the root, the newest last
//	manifest          the version of the store
//	gc.log            garbage collections
//
// A tar has a number, which grows, and a letter, which grows when a cleanup rewrites it without its
// garbage. If a number has several letters, the last one with an intact index is used. If the
// writer of a tar was killed, the tar has no index; it is then scanned, but not rewritten.
//
// The code: repository.go opens tars, live.go ensures that they belong to the same moment while
// another program writes to them, and reader.go presents their segments as entries. The tree of
// nodes is another view. tree_open.go chooses a revision, tree.go walks, tree_find.go finds a
// path, tree_names.go converts names to paths, and tree_value.go converts values to contents.
// tree_files.go presents the files in the tree as files, and tree_lucene.go those of indexes.
// search.go and where.go search nodes, and datastore.go finds contents in a data store. indexes.go
// finds definitions of indexes, index_check.go checks indexes, and index_entries.go compares them
// with the nodes. regions.go returns what is not content in any view.
//
// export.go writes nodes as JSON. changes.go and history.go compare revisions, and watch.go follows
// new ones. refs.go, blobs.go and sizes.go show what uses space. revise.go writes a new revision of
// a stopped store, for checkpoints.go, surgery.go and fix.go. backup.go copies what is new. copy.go
// and cloud.go are for stores whose segments are objects. transfer.go reads segments that get into
// another tar, and the internal package transfer writes it. verify.go, repair.go, salvage.go and cleanup.go use the internal packages, and
// inspect.go shows single segments and records.
//
// The bytes are in internal packages: tarfile, segment, repo (journal and other files), cloud
// (segments as objects), lucene (files of an index), nodejson, audit (checks), transfer (of segments
// to other tars), newstore (tars that follow others), rescue (recovery), salvage (of nodes) and sweep
// (garbage).
package oak
