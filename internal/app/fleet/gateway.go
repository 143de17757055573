package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/catalog/survey"
	"github.com/holdall/holdall/store"
)

// gateways begins the source of what a gateway has packed. Nothing is there.
const gateways = "gateway:"

// A Packing says how a gateway packs what is written into a bucket, so that a fleet can compact it.
type Packing struct {
	Plan  book.Plan
	Roots catalog.Roots // of archives
	// Name returns the name of an archive, without its folder. No other one has the number.
	Name func(number int64) string
	// Head begins the names that Name returns, and Owns reports whether a name is one of them.
	Head string
	Owns func(name string) bool
	// Protect ensures that an archive has the parity that was asked for, and adds it to what is recorded.
	Protect func(ctx context.Context, name string, s *survey.Survey) error
}

// OfGateway returns the packing for a bucket. target is the address of an archive, from which the names of all others
// are made. protect is the share of each archive that its parity restores; 0 means none.
func OfGateway(ctx context.Context, bucket, target string, protect float64) (p Packing, err error) {
	source := gateways + bucket
	b, err := json.Marshal(settings{Sources: []string{source}, ChunkSize: defaultChunkSize, ChunkObjects: defaultChunkObjects, Protect: protect})
	if err != nil {
		return p, err
	}
	plan := Plan{Name: bucket, Target: target, Format: "caf", Settings: b}
	j, err := open(ctx, plan)
	if err != nil {
		return p, err
	}
	p.Name = func(number int64) string { return path.Base(j.chunk(0, int(number-1))) } // no listing has the number 0
	in := func(name string) string { return path.Join(path.Dir(j.name), name) }
	p.Head, _, _ = strings.Cut(p.Name(0), "00000.")
	p.Owns = func(name string) bool { return strings.HasPrefix(name, p.Head) && j.owns(in(name)) }
	p.Protect = func(ctx context.Context, name string, s *survey.Survey) error {
		if err := j.protected(ctx, in(name)); err != nil {
			return err
		}
		return j.withParity(ctx, s)
	}
	p.Roots = j.roots()
	p.Plan, err = plan.stored()
	return p, err
}

// A WrittenError reports that a gateway takes what clients write into a catalogue. What a plan finds at its sources
// later could be older than that, and would count as newer.
type WrittenError struct{ Catalog string }

func (e *WrittenError) Error() string {
	return fmt.Sprintf("%s: clients write into this catalogue through a gateway, so its sources may be older: plan them into another catalogue", format.Escape(e.Catalog))
}

// notWritten returns an error if a gateway writes, or has written, into a catalogue.
func notWritten(ctx context.Context, b *book.Book) error {
	all, err := Plans(ctx, b)
	for _, p := range all {
		var set settings
		if json.Unmarshal(p.Settings, &set) == nil && slices.ContainsFunc(set.Sources, func(s string) bool { return strings.HasPrefix(s, gateways) }) {
			return &WrittenError{b.Name()}
		}
	}
	return err
}

// nowhere is a store without objects.
type nowhere struct{}

func (nowhere) Can() store.Abilities {
	return store.Abilities{Near: true, List: func(context.Context, string) iter.Seq2[store.Info, error] {
		return func(func(store.Info, error) bool) {}
	}}
}

func (nowhere) Open(_ context.Context, name string) (store.Object, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}
