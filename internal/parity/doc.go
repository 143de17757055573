// Package parity writes and reads parity files: blocks beside an archive from which lost
// blocks of it are computed again.
//
// The bytes are specified in docs/parity.md. An [Encoder] takes the bytes of an archive as
// they pass by. [Seek] finds the parity of an archive and binds it to what is there: the
// [Guard] that comes back checks blocks and heals them. [Guard.Store] shows the archive
// healed.
package parity
