package store

import (
	"context"
	"time"
)

// Wishes are options for a new object. The zero value replaces an existing object of the same
// name.
type Wishes struct {
	// Once requires that no object of that name exists. If there is one, Create or Commit returns
	// an error that wraps [fs.ErrExist]. If several writers commit, the first one wins. If the
	// store can prove that the existing object has exactly the bytes that were written, Commit
	// succeeds, because the response to an earlier Commit may have been lost.
	Once bool

	// Resume continues what an earlier writer of the same name sent before it was kept or killed.
	// The writer must be given all bytes from the beginning; those that the store is proven to
	// have are not sent again. The bytes may differ from the earlier ones; the parts that differ
	// are sent. If nothing was kept or the store does not support Resume, everything is sent.
	Resume bool

	// Headers are stored with the object, with names as in [ObjectAbilities.Headers], though a
	// service may also keep capital letters. They are ignored by stores without headers: disks
	// keep none, and they are not sent to S3 buckets.
	Headers map[string]string
}

// An Upload is an object that was begun and neither committed nor aborted. It takes up storage
// that is paid for.
type Upload struct {
	Name  string
	ID    string // the store's identifier
	Begun time.Time
	// Abandon discards the upload. If it no longer exists, Abandon returns nil.
	Abandon func(context.Context) error
}
