package bucket

import (
	"errors"
	"io/fs"
	"net/url"

	"github.com/holdall/holdall/store/internal/far"
)

// unaddressed takes the address off a transport's error. What is left may pass by itself.
func unaddressed(err error) error {
	_, sent := errors.AsType[*url.Error](err)
	if err = far.Dropped(far.Unaddressed(err)); sent && !errors.Is(err, fs.ErrPermission) {
		return &far.Passing{Err: err}
	}
	return err
}

// fail makes err the error of a request for the named object.
func (st *Store) fail(op, name string, err error) error {
	return far.Fail(op, st.Address(name), -1, 0, err)
}
