package holdall

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/cache"
	"github.com/holdall/holdall/internal/parity"
	"github.com/holdall/holdall/store"
)

// ParitySuffix is what the name of a parity file has after its archive's.
const ParitySuffix = parity.Suffix

// NoParity as OpenOptions.Parity looks for no parity file.
const NoParity = parity.None

// UsualLoss is which share of an archive can be lost where nobody says.
const UsualLoss = 0.05

// ProtectOptions are wishes for a parity file.
type ProtectOptions struct {
	// Loss is which share of the archive may be lost; 0 is UsualLoss.
	Loss float64
	// Meter counts.
	Meter *Meter
}

// A Protection says what a parity file has.
type Protection struct {
	At      string  `json:"at,omitempty"` // where it is
	Bytes   int64   `json:"bytes"`        // that are protected
	Parity  int64   `json:"parity_bytes"`
	Objects int     `json:"objects"`
	Loss    float64 `json:"loss"`
	Block   int     `json:"block"` // bytes of each
	Blocks  int64   `json:"blocks"`
	Groups  int64   `json:"groups"`
	Spare   int64   `json:"parity_blocks"`
	// Unused is why parity that is there is not used: it is damaged, or of another version.
	Unused string `json:"unused,omitempty"`
}

func protection(s parity.Summary, size int64, loss float64, objects int) Protection {
	return Protection{Bytes: s.Bytes, Parity: size, Objects: objects, Loss: loss, Block: s.Block, Blocks: s.Blocks, Groups: s.Groups, Spare: s.Parity}
}

// String says how much can be lost, or why the parity is not used.
func (p Protection) String() string {
	if p.Unused != "" {
		return strings.TrimPrefix(p.At+" is not used: ", " is not used: ") + p.Unused
	}
	return fmt.Sprintf("%s: any %v%% can be lost (%d of %d blocks of %d KiB)", p.At, math.Round(p.Loss*1e4)/100, min(p.Spare, p.Blocks), p.Blocks, p.Block>>10)
}

// Protection says what parity protects the archive; nil if there is none. The archive itself
// is not read for it, but for a few blocks if it was written since.
func (a *Archive) Protection(ctx context.Context) *Protection {
	if a.IsDir() {
		return nil
	}
	g, err := parity.Seek(ctx, a.src.Store, a.src.Name, a.asked.Parity)
	if g == nil {
		if err == nil {
			return nil
		}
		return &Protection{Unused: err.Error()}
	}
	defer g.Close()
	f := g.File()
	p := protection(f.Summary(), f.Size(), f.Loss, len(f.Objects))
	if p.At = f.At; g.Suits != nil {
		p.Unused = g.Suits.Error()
	}
	return &p
}

// Protect writes the parity of the archive at an address to another: blocks from which any
// part of the archive can be computed again that is no longer than a share of it.
func Protect(ctx context.Context, address, to string, o ProtectOptions) (Protection, error) {
	st, name, err := store.OpenAddress(ctx, address)
	if err != nil {
		return Protection{}, err
	}
	toStore, toName, err := store.OpenAddress(ctx, to)
	if err != nil {
		return Protection{}, err
	}
	return ProtectStore(ctx, st, []string{name}, toStore, toName, o)
}

// ProtectStore is Protect of archives in st to a given store. Several are protected as one
// set, so that one of them that is lost comes back, if it is no more than the share. They
// are files beside each other, and beside the parity.
func ProtectStore(ctx context.Context, st store.Store, names []string, to store.Store, toName string, o ProtectOptions) (sum Protection, err error) {
	var objects []parity.Object
	switch len(names) {
	case 0:
		return sum, errors.New("nothing to protect")
	case 1:
		objects, err = parity.Find(ctx, st, names[0])
	default:
		objects, err = parity.Beside(ctx, st, names)
	}
	if err != nil {
		return sum, err
	}
	at := store.AddressOf(to, toName)
	for i, obj := range objects {
		if own := store.AddressOf(st, obj.NameBeside(names[0])); own != "" && own == at {
			return sum, fmt.Errorf("%s: the parity cannot replace a file that it protects", store.Redact(at))
		}
		for _, other := range objects[:i] {
			if other.Name == obj.Name {
				return sum, fmt.Errorf("%s is listed twice", obj.Name)
			}
		}
	}
	if o.Loss == 0 {
		o.Loss = UsualLoss
	}
	if err := damagedNow(ctx, st, names[0], to, toName, o.Meter); err != nil {
		return sum, err
	}
	info, err := store.Write(ctx, to, toName, func(w store.Writer) error {
		s, err := parity.Protect(ctx, st, names[0], objects, o.Loss, o.Meter, w)
		sum = protection(s, 0, o.Loss, len(objects))
		return err
	})
	sum.Parity = info.Size
	return sum, err
}

// damagedNow is an error if parity that is going to be replaced is the last that knows what
// the archive was: of what is damaged, parity would say that it is right.
func damagedNow(ctx context.Context, st store.Store, name string, to store.Store, toName string, m *Meter) error {
	at := store.AddressOf(to, toName)
	if at == "" || !slices.ContainsFunc(parity.Names(name), func(beside string) bool { return store.AddressOf(st, beside) == at }) {
		return nil
	}
	g, _ := parity.Seek(ctx, st, name, "")
	if g == nil || g.Suits != nil {
		return nil // whatever it is, it is of no use
	}
	defer g.Close()
	r, err := g.Check(ctx, false, m)
	if err == nil && r.Damaged > 0 {
		err = fmt.Errorf("%s: %d blocks do not match the parity: 'holdall repair' restores them; if they were changed on purpose, remove %s first: %w",
			name, r.Damaged, g.File().At, ErrDamaged)
	}
	return err
}

// UpdateParity brings the parity beside an archive up to date, if it is of an older version.
// All of the archive is read for that. It reports whether there was anything to do.
func UpdateParity(ctx context.Context, st store.Store, name string, m *Meter) (sum Protection, updated bool, err error) {
	seek := func() (*parity.Guard, error) {
		g, err := parity.Seek(ctx, st, name, "")
		if err == nil && g == nil {
			err = &fs.PathError{Op: "open", Path: parity.NameOf([]string{name}), Err: fs.ErrNotExist}
		}
		return g, err
	}
	g, err := seek()
	if err != nil {
		return sum, false, err
	}
	// Of a folder nothing says that nothing came to it.
	if updated = !g.Same || IsFolder(ctx, st, name); updated {
		if err := damagedNow(ctx, st, name, st, parity.NameOf([]string{name}), m); err != nil {
			return sum, false, errors.Join(err, g.Close())
		}
		err = g.File().Renew(ctx, st, name, m)
		if g.Close(); err == nil {
			g, err = seek()
		}
		if err != nil {
			return sum, false, err
		}
	}
	defer g.Close()
	f := g.File()
	sum = protection(f.Summary(), f.Size(), f.Loss, len(f.Objects))
	sum.At = f.At
	return sum, updated, nil
}

// IsFolder reports whether what is called name in st is no object, but has some below it.
func IsFolder(ctx context.Context, st store.Store, name string) bool {
	objects, err := parity.Find(ctx, st, name)
	return err == nil && len(objects) > 0 && objects[0].Name != ""
}

// Healing says what parity did while the archive was read.
type Healing struct {
	// Blocks is how many damaged blocks were computed again.
	Blocks int64
	By     string // the parity
	// Ignored is why parity that is there was not used.
	Ignored error
}

// Healing says what parity did while the archive was read.
func (a *Archive) Healing() Healing {
	n, by, why := a.src.Healed()
	return Healing{n, by, errors.Join(a.parity, why)}
}

// A ParityReport says what was found of an archive by its parity.
type ParityReport struct {
	At   string  `json:"at"`   // where it is
	Loss float64 `json:"loss"` // the share that was asked for
	// NotUsed is why it was not used: it is of another version of the archive.
	NotUsed string `json:"not_used,omitempty"`
	// Of a set, how many files have it together.
	Objects int `json:"objects"`
	parity.Report
	// Lost are objects that are not there.
	Lost []string `json:"lost,omitempty"`
	// Files are files that are damaged, though all that the parity can heal is healed: the
	// first thousand. FilesBeyond counts them all.
	Files       []string `json:"files,omitempty"`
	FilesBeyond int64    `json:"files_beyond,omitempty"`

	broken bool // nothing of it can be used
}

// Harmed reports whether anything of the archive is damaged or lost.
func (r *ParityReport) Harmed() bool { return r.Damaged > 0 || len(r.Lost) > 0 }

// seekParity finds the parity of an archive. The guard is nil if there is none, or none that
// can be used; the report says why.
func seekParity(ctx context.Context, st store.Store, name, at string) (*parity.Guard, *ParityReport, error) {
	g, err := parity.Seek(ctx, st, name, at)
	if damage, ok := errors.AsType[*format.CorruptError](err); ok && at == "" {
		return nil, &ParityReport{At: damage.Volume, NotUsed: damage.Message, broken: true}, nil
	}
	if g == nil || err != nil {
		return nil, nil, err
	}
	f := g.File()
	r := &ParityReport{At: f.At, Loss: f.Loss, Objects: len(f.Objects), Report: g.Size()}
	if g.Suits != nil {
		r.NotUsed = g.Suits.Error()
		return nil, r, g.Close()
	}
	r.Lost = g.Lost()
	return g, r, nil
}

// mostFiles is how many files a ParityReport names.
const mostFiles = 1000

// beyond finds the files of an archive that are damaged when all is healed that can be. It
// returns the archive's format, empty if the archive cannot be read.
func (r *ParityReport) beyond(ctx context.Context, g *parity.Guard, name string, o OpenOptions) (string, error) {
	r.Files, r.FilesBeyond = nil, 0
	named := map[string]bool{}
	c := check{o: VerifyOptions{OpenOptions: o}, left: g, told: map[Problem]bool{}, report: func(p Problem) {
		if !p.HasEntry || p.Severity != format.Error || named[p.Entry] {
			return
		}
		if r.FilesBeyond++; len(r.Files) < mostFiles {
			r.Files = append(r.Files, p.Entry)
			named[p.Entry] = true
		}
	}}
	defer func() { slices.Sort(r.Files) }()
	err := c.archive(ctx, cache.Far(g.Rest(), o.CacheBytes), name)
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil && store.Temporary(err) {
		return "", err
	}
	return c.sum.Format, nil
}
