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
	"github.com/holdall/holdall/internal/read/cache"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/internal/write/output"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// usualLoss is the default share of an archive that may be lost.
const usualLoss = 0.05

// ProtectOptions are the options of [Protect].
type ProtectOptions struct {
	// Store has the archives, and To gets the parity. Where one is nil, that is decided by the
	// address.
	Store store.Store `json:"-"`
	To    store.Store `json:"-"`
	// Loss is the share of the archive that may be lost; 0 means 0.05.
	Loss float64
	// Update rewrites the parity beside one archive if it belongs to an older version. This reads
	// the whole archive, and fails if it has damaged blocks. The place and the share stay the same.
	Update bool `json:"-"`
	// Force also replaces an object that is not parity.
	Force bool `json:"force,omitempty"`
	// Meter, if not nil, counts progress.
	Meter *Meter
}

// A Protection describes a parity file.
type Protection struct {
	At      string  `json:"at,omitempty"` // where the parity is
	Bytes   int64   `json:"bytes"`        // size of what is protected
	Parity  int64   `json:"parity_bytes"`
	Objects int     `json:"objects"`
	Loss    float64 `json:"loss"`
	Block   int     `json:"block"` // size of a block
	Blocks  int64   `json:"blocks"`
	Groups  int64   `json:"groups"`
	Spare   int64   `json:"parity_blocks"`
	// Updated says that ProtectOptions.Update found parity of an older version, and rewrote it.
	Updated bool `json:"-"`
	// Unused says why existing parity is not used: it is damaged, or belongs to another version
	// of the archive.
	Unused string `json:"unused,omitempty"`
}

func protection(s parity.Summary, size int64, loss float64) Protection {
	return Protection{Bytes: s.Bytes, Parity: size, Objects: s.Objects, Loss: loss, Block: s.Block, Blocks: s.Blocks, Groups: s.Groups, Spare: s.Parity}
}

// String returns a sentence that says how much can be lost, or why the parity is not used.
func (p Protection) String() string {
	if p.Unused != "" {
		return strings.TrimPrefix(p.At+" is not used: ", " is not used: ") + p.Unused
	}
	return fmt.Sprintf("%s: any %v%% can be lost (%d of %d blocks of %d KiB)", p.At, math.Round(p.Loss*1e4)/100, min(p.Spare, p.Blocks), p.Blocks, p.Block>>10)
}

// Protection describes the parity of the archive. It returns nil if there is none. The archive is
// not read for it, except for a few blocks if it was written after the parity.
func (a *Archive) Protection(ctx context.Context) *Protection {
	if a.IsDir() {
		return nil
	}
	g, err := parity.Seek(ctx, storekit.Under(a.src.Store), a.src.Name, a.asked.Parity, nil)
	if g == nil {
		if err == nil {
			return nil
		}
		return &Protection{Unused: err.Error()}
	}
	defer g.Close()
	f := g.File()
	p := protection(f.Summary(), f.Size(), f.Loss)
	if p.At = f.At; g.Suits != nil {
		p.Unused = g.Suits.Error()
	}
	return &p
}

// Protect writes parity of the archives at addresses to the address to. If to is empty, the parity
// is written beside them, under the name by which Open, Verify and Repair find it. Parity recovers
// lost and damaged blocks of the archive, up to the share o.Loss of all its blocks. If existing
// parity would be replaced and the archive no longer matches it, Protect returns an error; use
// [Repair] first.
//
// Several archives are protected as one set, so that a lost archive can be recovered if it is not
// larger than the share that may be lost. Archives of a set are in one folder, which also contains
// the parity.
//
// The parity of an encrypted archive is that of what is stored, and is not encrypted itself.
func Protect(ctx context.Context, addresses []string, to string, o ProtectOptions) (sum Protection, err error) {
	var st store.Store
	names := make([]string, len(addresses))
	for i, address := range addresses {
		was := st
		if st, names[i], err = at(ctx, o.Store, address); err != nil {
			return sum, err
		}
		if was != nil && storekit.AddressOf(was, names[0]) != storekit.AddressOf(st, names[0]) {
			return sum, fmt.Errorf("%s and %s are in different places: the archives of a set must be in one folder", addresses[0], address)
		}
	}
	switch {
	case len(names) == 0:
		return sum, errors.New("nothing to protect")
	case o.Update && (len(names) > 1 || to != "" || o.Loss != 0):
		return sum, errors.New("to update parity, name one archive, and neither a place nor a share")
	case o.Update:
		return renew(ctx, st, names[0], o.Meter)
	case to == "":
		if to = parity.NameOf(names); o.To == nil {
			o.To = storekit.Under(st)
		}
	}
	whole := st
	st = storekit.Under(st)
	toStore, toName, err := at(ctx, o.To, to)
	if err != nil {
		return sum, err
	}
	var objects []parity.Object
	if len(names) == 1 {
		objects, err = parity.Find(ctx, st, names[0])
	} else {
		objects, err = parity.Beside(ctx, st, names)
	}
	if err != nil {
		return sum, err
	}
	g := output.Guard{Kind: "parity", Ours: parity.Is, Force: o.Force}
	for i, obj := range objects {
		g.Inputs = append(g.Inputs, storekit.AddressOf(st, obj.NameBeside(names[0])))
		for _, other := range objects[:i] {
			if other.Name == obj.Name {
				return sum, fmt.Errorf("%s is listed twice", obj.Name)
			}
		}
	}
	if o.Loss == 0 {
		o.Loss = usualLoss
	}
	if err := g.Check(ctx, toStore, toName); err != nil {
		return sum, err
	}
	if err := damagedNow(ctx, whole, names[0], toStore, toName, o.Meter); err != nil {
		return sum, err
	}
	info, err := storekit.Write(ctx, toStore, toName, func(w store.Writer) error {
		s, err := parity.Protect(ctx, st, names[0], objects, o.Loss, o.Meter, w)
		sum = protection(s, 0, o.Loss)
		return err
	})
	sum.Parity = info.Size
	return sum, err
}

// damagedNow returns an error if toName is parity that is in use for the archive, and the archive
// no longer matches it. New parity would protect the damaged state, and the old one is needed to
// repair it.
func damagedNow(ctx context.Context, whole store.Store, name string, to store.Store, toName string, m *Meter) error {
	st, at := storekit.Under(whole), storekit.AddressOf(to, toName)
	if at == "" || !slices.ContainsFunc(parity.Names(name), func(beside string) bool { return storekit.AddressOf(st, beside) == at }) {
		return nil
	}
	g, _ := parity.Seek(ctx, st, name, "", opening{st: whole, name: name}.unsoundAnywhere)
	if g == nil || g.Suits != nil {
		return nil // it cannot be used anyway
	}
	defer g.Close()
	r, err := g.Check(ctx, false, m)
	if err == nil && r.Damaged > 0 {
		err = fmt.Errorf("%s: %d blocks do not match the parity: 'holdall repair' restores them; if they were changed on purpose, remove %s first: %w",
			name, r.Damaged, g.File().At, ErrDamaged)
	}
	return err
}

// renew is Protect with ProtectOptions.Update.
func renew(ctx context.Context, whole store.Store, name string, m *Meter) (sum Protection, err error) {
	st := storekit.Under(whole)
	g, err := parity.Seek(ctx, st, name, "", nil)
	if err == nil && g == nil {
		err = &fs.PathError{Op: "open", Path: parity.NameOf([]string{name}), Err: fs.ErrNotExist}
	}
	if err != nil {
		return sum, err
	}
	defer g.Close()
	f := g.File()
	s, size := f.Summary(), f.Size()
	// Nothing shows whether files were added to a folder.
	updated := !g.Same || parity.IsFolder(ctx, st, name)
	if updated {
		if err := damagedNow(ctx, whole, name, st, parity.NameOf([]string{name}), m); err != nil {
			return sum, err
		}
		if s, size, err = f.Renew(ctx, st, name, m); err != nil {
			return sum, err
		}
	}
	sum = protection(s, size, f.Loss)
	sum.At, sum.Updated = f.At, updated
	return sum, nil
}

// Healing returns how many damaged blocks have been computed again from parity so far, where the
// parity is, and why existing parity was ignored.
func (a *Archive) Healing() (blocks int64, by string, ignored error) {
	blocks, by, why := a.src.Healed()
	if g := a.below(); g != nil {
		blocks, by = g.Healed()
		why = g.Suits
	}
	return blocks, by, errors.Join(a.parity, why)
}

// A ParityReport is the result of a check of an archive against its parity.
type ParityReport struct {
	At   string  `json:"at"`   // where the parity is
	Loss float64 `json:"loss"` // share that may be lost
	// NotUsed says why the parity was not used: it is damaged, or belongs to another version of
	// the archive.
	NotUsed string `json:"not_used,omitempty"`
	// Objects is the number of files that the parity protects together.
	Objects int `json:"objects"`
	parity.Report
	// Lost names protected objects that do not exist.
	Lost []string `json:"lost,omitempty"`
	// Files names the files that stay damaged after everything that parity can repair is
	// repaired, up to 1000 of them. FilesBeyond counts all of them.
	Files       []string `json:"files,omitempty"`
	FilesBeyond int64    `json:"files_beyond,omitempty"`

	broken bool // nothing of it can be used
}

// Harmed reports whether any part of the archive is damaged or lost.
func (r *ParityReport) Harmed() bool { return r.Damaged > 0 || len(r.Lost) > 0 }

// seekParity finds the parity of an archive. If the guard is nil, there is no parity, or it
// cannot be used and the report says why.
func seekParity(ctx context.Context, st store.Store, name, at string, o OpenOptions) (*parity.Guard, *ParityReport, error) {
	g, err := parity.Seek(ctx, storekit.Under(st), name, at, opening{st, name, o}.unsoundAnywhere)
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

// mostFiles is the largest number of files that a ParityReport names.
const mostFiles = 1000

// beyond finds the files of an archive that stay damaged after everything that parity can repair
// is repaired. It returns the archive's format, or "" if the archive cannot be read.
func (r *ParityReport) beyond(ctx context.Context, st store.Store, g *parity.Guard, name string, o OpenOptions) (string, error) {
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
	err := c.archive(ctx, cache.Shared(storekit.Over(st, g.Rest()), o.CacheBytes), name)
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil && storekit.Temporary(err) {
		return "", err
	}
	return c.sum.Format, nil
}
