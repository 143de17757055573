// Package parity writes and reads parity files: blocks beside an archive from which its lost
// blocks can be computed.
//
// docs/bytes/parity.md specifies the bytes. An [Encoder] reads an archive while it is written. [Seek]
// finds the parity of an archive and returns a [Guard], which checks blocks and heals them.
// [Guard.Store] presents the archive in its healed state.
package parity
