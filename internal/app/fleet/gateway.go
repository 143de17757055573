package fleet

import (
	"context"
	"encoding/json"
	"io/fs"
	"iter"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/store"
)

// gateways begins the source of what a gateway has packed. Nothing is there.
const gateways = "gateway:"

// OfGateway returns the plan by which a fleet compacts what a gateway has packed for a bucket, and the roots of the
// gateway's archives. target is the address of an archive, from which the names of compacted ones are made.
func OfGateway(bucket, target string) (book.Plan, catalog.Roots, error) {
	source := gateways + bucket
	b, err := json.Marshal(settings{Sources: []string{source}, ChunkSize: defaultChunkSize, ChunkObjects: defaultChunkObjects})
	if err != nil {
		return book.Plan{}, "", err
	}
	p, err := Plan{Name: bucket, Target: target, Format: "caf", Settings: b}.stored()
	return p, catalog.RootsOf([]catalog.Root{{Address: source + "/"}}), err
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
