// Package catalog keeps a database of which archive has which file, and where in
// it, so that one of millions of files is found by one lookup and read by one
// request; and of which archives are yet to be made of what, and who is at it.
//
// It is for programs that spread files over many archives; whoever has one
// archive needs package holdall only, for an archive has its own index. The
// package stores what it is told and opens no archive: who adds one says what is
// in it.
package catalog
