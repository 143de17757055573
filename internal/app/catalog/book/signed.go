package book

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/holdall/holdall/internal/base/minisign"
	"github.com/holdall/holdall/internal/read/root"
)

// Signed is a state that is signed. With it, a catalogue is what it was then, and all that is read of it is
// compared with digests, which the state has of runs, and runs of their pages.
type Signed struct {
	Sum  string // BLAKE3 of the state, in hex
	File []byte // the signature
}

func signedName(sum string) string { return "signed/" + sum }

// Seal stores the state for a signature, and returns its BLAKE3. It first checks all of the catalogue, so the
// state is what the commits make. With the hash of the last commit, it stands for all commits before.
func (b *Book) Seal(ctx context.Context) (sum string, err error) {
	var found error
	s, err := b.check(ctx, func(problem string) {
		if found == nil {
			found = errors.New(problem)
		}
	})
	if err == nil && found == nil && s == nil {
		found = errors.New("the commits do not lead to its head")
	}
	if err = errors.Join(err, found); err != nil {
		return "", fmt.Errorf("it is damaged, so it is not signed: %w", err)
	}
	for i := range s.Runs {
		if r := &s.Runs[i]; r.Sum == "" {
			return "", b.fail(r.Object, errors.New("a program that knew no signatures has written it: 'holdall catalog rebuild' makes a new catalogue of the archives"))
		}
	}
	o, err := s.encode(0)
	if err != nil {
		return "", err
	}
	sum = hashOf(o)
	if err = b.put(ctx, signedName(sum), o, true); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", b.fail(signedName(sum), err)
	}
	_, err = b.sealed(ctx, sum)
	return sum, err
}

// sealed returns a state that was stored for a signature.
func (b *Book) sealed(ctx context.Context, sum string) (*State, error) {
	o, err := b.get(ctx, signedName(sum), mostObject)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("what was signed is there no more, so it must be signed again: %w", err)
	}
	if err == nil && hashOf(o) != sum {
		err = errors.New("it is not what was signed")
	}
	var s *State
	if err == nil {
		s, err = parseState(o)
	}
	return s, b.fail(signedName(sum), err)
}

// isSigned returns the state that the signature beside the catalogue names, and its object. Without a
// signature, it is nil. The key does not matter here: readers who do not trust it do not read the state.
func (b *Book) isSigned(ctx context.Context) (s *State, object string, err error) {
	name := b.Name() + root.Suffix
	file, err := b.getBeside(ctx, name, minisign.MaxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	var of root.Statement
	var sig minisign.Signature
	if err == nil {
		sig, err = minisign.ParseSignature(file)
	}
	if err == nil {
		of, err = root.ParseComment(sig.Comment)
	}
	if err != nil {
		return nil, "", &Error{name, err}
	}
	if of.Archive == "" {
		return nil, "", nil
	}
	s, err = b.sealed(ctx, of.Archive)
	if errors.Is(err, fs.ErrNotExist) { // it was erased
		err = nil
	}
	return s, signedName(of.Archive), err
}
