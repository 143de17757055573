// Package proof proves that trees of nodes can be read completely: nodes, templates, children,
// and the values of all properties down to the blocks of binaries. It starts from the root node
// of a tree, and does not read tars, journals or revisions. For a single segment, use
// segment.Segment.Check.
//
// Revisions and checkpoints share nearly all of their nodes. So a [Prover] stores for each
// record, in two bits, whether everything below it was readable, and visits only the rest. It
// first walks a tree without names, and proves properties on several goroutines. If anything was
// lost, the parts that are not proven are walked again in the order of the tree, to find their
// paths. So its reports do not depend on the speed of goroutines.
package proof
