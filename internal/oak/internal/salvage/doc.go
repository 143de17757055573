// Package salvage builds a tree from whatever nodes are left of an Apache Oak segment store. It
// does not read tars, journals or revisions.
//
// A [Salvager] merges the versions of a tree, the newest first: what the newest has lost comes from
// the newest older version of the same path. A child that the newest version certainly does not
// have is not restored. Then it finds the nodes that are in none of these versions, segment by
// segment. Nodes are written after what is below them, so from the last record to the first each
// unknown node is the top of a subtree of which nothing above is left. Maps are treated in the same
// way: the children of a lost node keep their names if a part of its map is left.
//
// Each of these nodes is written once.
//
// What can be read, [proof.Prover] decides. Nothing is shortened: a property that is not whole is
// left out. Subtrees that are whole are copied by [compact.Copier], and records that are shared
// stay shared. Memory is one bit for each record, and the children of the damaged nodes on one path.
package salvage
