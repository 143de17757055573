package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/fleet/queue"
)

// A Fleet packs into the archives of a catalogue. Its queue hands out the work, and knows nothing that
// cannot be planned again.
type Fleet struct {
	Book  *book.Book
	Queue Queue
}

// A Queue is what a fleet needs of a [queue.Queue].
type Queue interface {
	Add(ctx context.Context, jobs ...queue.Job) (added int, err error)
	Jobs(ctx context.Context, plan string) iter.Seq2[queue.State, error]
	Counts(ctx context.Context, plan string) (map[string]map[queue.Status]int, error)
	Cancel(ctx context.Context, plan string) (int, error)
	Retry(ctx context.Context, plan string) (int, error)
	Work(ctx context.Context, o queue.WorkOptions, do func(context.Context, queue.Job) error) error
}

// A Plan says what is packed, and into what. The catalogue has it.
type Plan struct {
	Name     string
	Target   string // any bytes
	Format   string
	Settings json.RawMessage

	first int64 // the commit that has recorded it, and begun its first listing
}

// storedPlan is a plan in the form that the catalogue stores.
type storedPlan struct {
	Target   string          `json:"target"` // escaped
	Format   string          `json:"format"`
	Settings json.RawMessage `json:"settings"`
}

func (p Plan) stored() (book.Plan, error) {
	b, err := json.Marshal(storedPlan{format.Escape(p.Target), p.Format, p.Settings})
	return book.NewPlan(p.Name, b), err
}

func planOf(is book.Plan) (Plan, error) {
	var s storedPlan
	if err := json.Unmarshal(is.Spec, &s); err != nil {
		return Plan{}, fmt.Errorf("plan %s: %w", format.Escape(string(is.Name)), err)
	}
	return Plan{string(is.Name), naming.Unescape(s.Target), s.Format, s.Settings, is.Commit}, nil
}

// Plans returns all plans of a catalogue, the oldest first.
func Plans(ctx context.Context, b *book.Book) (all []Plan, err error) {
	s, err := b.State(ctx)
	if err != nil {
		return nil, err
	}
	for _, is := range s.Plans {
		p, err := planOf(is)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// PlanNamed returns a plan, or an error that wraps [fs.ErrNotExist].
func PlanNamed(ctx context.Context, b *book.Book, name string) (Plan, error) {
	all, err := Plans(ctx, b)
	if i := slices.IndexFunc(all, func(p Plan) bool { return p.Name == name }); i >= 0 {
		return all[i], nil
	}
	if err == nil {
		err = &fs.PathError{Op: "plan", Path: name, Err: fs.ErrNotExist}
	}
	return Plan{}, err
}

// Forget removes a plan from the catalogue. Its archives stay.
func Forget(ctx context.Context, f Fleet, p Plan) error {
	if _, err := Cancel(ctx, f, p); err != nil {
		return err
	}
	_, err := f.Book.Do(ctx, book.Step{Plans: []book.Plan{book.NewPlan(p.Name, nil)}})
	return err
}

// A Member is an object that is to be packed.
type Member struct {
	Path    string // in the archive, byte for byte
	Origin  int    // which of the plan's sources it is from
	Size    int64
	Version string // as listed; any bytes
	// Modified is when the object was written, as listed or as packed, and Headers is the length of the text
	// of its headers. They are zero if that is not known.
	Modified time.Time
	Headers  int
	Outcome  Outcome
	Note     string // the reason, for people
}

// An Outcome is why a member is not packed.
type Outcome string

const (
	Vanished  Outcome = "vanished"  // it was not there any more
	Changed   Outcome = "changed"   // it differs from the planned version
	SetAside  Outcome = "set aside" // it could not be read or stored
	Damaged   Outcome = "damaged"   // its bytes differ from the checksum of its service
	Elsewhere Outcome = "elsewhere" // of a rewrite: it was deleted or moved meanwhile
)

// errGone is for work that need not be done any more.
var errGone = errors.New("it is not planned any more")
