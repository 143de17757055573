package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	"github.com/holdall/holdall/internal/app/explore"
	"github.com/holdall/holdall/internal/app/explore/nodes"
	"github.com/holdall/holdall/internal/app/serve"
	"github.com/holdall/holdall/internal/read/outside"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/store"
)

func init() { format.Register(shelf.Format) }

const catalogScheme = "catalog:"

// catalogued finds the catalogue that an address names, and the part of it:
// the tree of all files, or a bucket in its original layout. It returns nil
// for any other address.
func (a *app) catalogued(ctx context.Context, address string) (st *shelf.Shelf, name string, err error) {
	at, isOne := strings.CutPrefix(address, catalogScheme)
	bucket := ""
	switch {
	case isOne:
		if s := store.Scheme(at); (s == "s3" || s == "gs" || s == "az") && !isBook(at) {
			at, bucket = "", strings.TrimRight(at, "/")
		}
	case isBook(address):
		at = address
	default:
		return nil, "", nil
	}
	s, err := a.shelf(ctx, at)
	if err != nil {
		return nil, "", err
	}
	if bucket == "" {
		a.address = "catalog " + s.Called()
		return s, shelf.Tree, nil
	}
	all, err := s.Buckets(ctx)
	for _, b := range all {
		if b.Address == bucket {
			return s, b.Of, nil
		}
	}
	if err == nil {
		err = &fs.PathError{Op: "open", Path: format.Escape(address), Err: errors.New("no archive in the catalogue was packed from this bucket")}
	}
	return nil, "", err
}

// shelf opens the catalogue at an address, once for the verb. With no address,
// or only the scheme, it opens the user's.
func (a *app) shelf(ctx context.Context, address string) (*shelf.Shelf, error) {
	address = strings.TrimPrefix(address, catalogScheme)
	is, _, err := a.catalogAddress()
	if address == "" {
		if address = is; err != nil {
			return nil, err
		}
	}
	return a.shelfAt(ctx, address, address == is)
}

func (a *app) shelfAt(ctx context.Context, address string, own bool) (*shelf.Shelf, error) {
	if s := a.shelves[address]; s != nil {
		return s, nil
	}
	c, err := a.openCatalog(ctx, address, forReading)
	if err != nil {
		return nil, err
	}
	s, err := a.shelfOf(ctx, c, address, own)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	a.cleanup = append(a.cleanup, func() {
		s.Close()
		c.Close()
	})
	if a.shelves == nil {
		a.shelves = map[string]*shelf.Shelf{}
	}
	a.shelves[address] = s
	return s, nil
}

// shelfOf returns an open catalogue in the form of a store. The user's own may have archives anywhere;
// others are archives that lead to archives.
func (a *app) shelfOf(ctx context.Context, c *book.Book, address string, own bool) (*shelf.Shelf, error) {
	o := shelf.Options{Address: shownCatalog(address), Open: a.storeOf, Through: a.through, NoVerify: a.noVerify, Blocks: a.blocks()}
	if !own {
		o.Open = outside.Rule{Store: c.Store(), Name: c.Name(), Allowed: a.mayLead()}.Find
	}
	return shelf.New(ctx, c, o)
}

func (a *app) openTree(ctx context.Context, c *book.Book) (*holdall.Archive, func(), error) {
	address, _, err := a.catalogAddress()
	if err != nil {
		return nil, nil, err
	}
	s, err := a.shelfOf(ctx, c, address, true)
	if err != nil {
		return nil, nil, err
	}
	in, err := holdall.Open(ctx, shelf.Tree, ofCatalog(a.openOptions()).In(s))
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	return in, func() {
		in.Close()
		s.Close()
	}, nil
}

// ofCatalog adapts the options for an archive to a catalogue: it is its own
// index.
func ofCatalog(o holdall.OpenOptions) holdall.OpenOptions {
	o.Format, o.Index, o.Param, o.Parity = shelf.Format.Name, holdall.UseIndex{}, nil, parity.None
	return o
}

// bucketsToServe returns the buckets that the archives of a catalogue were
// packed from, in their original layout.
func (a *app) bucketsToServe(ctx context.Context, address string) (placed, error) {
	s, err := a.shelfAt(ctx, address, true) // who serves it names it
	if err != nil {
		return placed{}, err
	}
	list := func(ctx context.Context) (all []serve.Source, err error) {
		buckets, err := s.Buckets(ctx)
		for _, b := range buckets {
			all = append(all, a.sourceIn(s, b.Of, b.Name, catalogScheme+b.Address, store.Info{}))
		}
		return all, err
	}
	if all, err := list(ctx); err != nil {
		return placed{}, err
	} else if len(all) == 0 {
		return placed{}, fmt.Errorf("%s: no archive in the catalogue records the bucket it was packed from", shownCatalog(address))
	}
	return placed{folder: &serve.Folder{List: list, Every: 2 * time.Second}}, nil
}

// extraOf returns what the explorer shows of an archive besides its entries.
// For a catalogue, this is a summary of its contents.
func (a *app) extraOf(in *holdall.Archive) explore.Extra {
	x := nodes.Of(in)
	if in.Format() != shelf.Format || in.Name() != shelf.Tree {
		return x
	}
	for _, s := range a.shelves {
		if address := in.Store().Can().Address; address != nil && address(shelf.Tree) == s.Can().Address(shelf.Tree) {
			x.Tables = func(ctx context.Context) ([]explore.Table, error) {
				sum, err := s.Summary(ctx)
				return tablesOf(sum), err
			}
		}
	}
	return x
}

// notCatalog returns an error if an archive is a catalogue.
func (a *app) notCatalog(st store.Store, why string) error {
	if _, is := st.(*shelf.Shelf); is {
		return usage("%s is a catalogue: %s", format.Escape(a.address), why)
	}
	return nil
}

func tablesOf(sum shelf.Summary) []explore.Table {
	buckets := explore.Table{Title: "Buckets", Columns: []explore.Column{{Name: "Packed from"}, {Name: "Archives", Kind: "count"}, {Name: "Files", Kind: "count"}, {Name: "Stored", Kind: "size"}, {Name: "Verified", Kind: "count"},
		{Name: "Replaced or deleted", Kind: "count"}, {Name: "Deleted", Kind: "count"}, {Name: "Originals removed", Kind: "count"}}, Rows: [][]any{}}
	for _, b := range sum.Buckets {
		var gone, left any
		if sum.Counted {
			gone, left = b.Gone, b.Left
		}
		where := explore.Place{Text: cmp.Or(format.Escape(store.Redact(b.Address)), "no bucket recorded"), Path: format.Escape(strings.TrimSuffix(b.Prefix, "/"))}
		buckets.Rows = append(buckets.Rows, []any{where, b.Archives, b.Files, b.Bytes, b.Verified, b.Dead, gone, left})
	}
	if !sum.Counted {
		buckets.Note = "There are too many files to count deleted files and removed originals."
	}
	return []explore.Table{buckets}
}
