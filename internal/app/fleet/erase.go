package fleet

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/internal/app/catalog/book"
	"github.com/holdall/holdall/internal/app/fleet/queue"
	"github.com/holdall/holdall/internal/read/kept"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// A person may ask that objects are erased: their contents, and their names. Erasing is the only thing that changes
// what was written, and that gives up earlier states of a catalogue.

// erasedKind is where the proofs are, in the catalogue's folder.
const erasedKind = "erased"

// A BusyError reports that jobs of a plan wait, which may have names that are to be erased.
type BusyError struct {
	Plan string
	Jobs int
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("plan %s: jobs that are not done, %d, may have the names: 'holdall fleet work' does them, 'holdall fleet cancel' drops them", format.Escape(e.Plan), e.Jobs)
}

// A ThereError reports that an original exists.
type ThereError struct{ Original string }

func (e *ThereError) Error() string {
	return fmt.Sprintf("%s: it exists, so it would come back: delete it first", format.Escape(e.Original))
}

// An UnerasableError reports an archive out of which nothing can be taken here.
type UnerasableError struct{ Archive string }

func (e *UnerasableError) Error() string {
	return fmt.Sprintf("%s: it has a file that is to be erased, and is no CAF archive of a plan: write it again without that file, and then 'holdall catalog add' it, or remove it from the catalogue", format.Escape(e.Archive))
}

// An UnrecordedError reports an archive that a plan's worker may have written, and that no commit has recorded.
type UnrecordedError struct{ Object string }

func (e *UnrecordedError) Error() string {
	return fmt.Sprintf("%s: it is not in the catalogue, and may have the names: remove it, or 'holdall catalog add' it", format.Escape(e.Object))
}

// An UnknownError reports a name about which the catalogue knows nothing.
type UnknownError struct{ Name string }

func (e *UnknownError) Error() string {
	return fmt.Sprintf("%s: the catalogue knows no such file", format.Escape(e.Name))
}

// ErasureOptions are options for an erasure.
type ErasureOptions struct {
	// Yes also erases names about which the catalogue knows nothing any more: an erasure may have been interrupted.
	Yes bool
	// DryRun makes no changes.
	DryRun bool
}

// An Erasure is what an erasure has found and handed out.
type Erasure struct {
	Files    int64          `json:"files"`    // that readers found
	Archives int            `json:"archives"` // that have files of these names
	Bytes    int64          `json:"bytes"`    // of these
	Chunks   map[string]int `json:"-"`        // that rewrite them, by plan
}

// PrepareErasure deletes files from the catalogue, and hands out chunks that rewrite all archives which have them, also in
// versions that nobody finds any more. When there are none, FinishErasure does the rest. Nobody else may work.
func PrepareErasure(ctx context.Context, f Fleet, names []string, o ErasureOptions) (done Erasure, err error) {
	done.Chunks = map[string]int{}
	plans, err := f.jobs(ctx)
	if err != nil {
		return done, err
	}
	if len(names) == 0 {
		return done, errors.New("expected names to be erased")
	}
	for _, j := range plans {
		if err := f.idle(ctx, j); err != nil {
			return done, err
		}
		if _, err := j.current(ctx, f.Book); err != nil {
			return done, err
		}
		if err := pipe.Each(ctx, pipe.All(names), 16, j.absent); err != nil {
			return done, err
		}
	}
	if source := f.Book.Source(); source != "" { // gateways would show it again
		st, err := storekit.OpenFolder(ctx, source)
		if err == nil {
			err = pipe.Each(ctx, pipe.All(names), 16, func(ctx context.Context, name string) error { return absentFrom(ctx, st, name) })
		}
		if err != nil {
			return done, err
		}
	}
	ids, unknown, err := f.Book.Mentions(ctx, names)
	if err == nil && len(unknown) > 0 && !o.Yes {
		err = &UnknownError{unknown[0]}
	}
	if err != nil {
		return done, err
	}
	used, err := f.Book.Usage(ctx, func(id int64) bool { return slices.Contains(ids, id) })
	if err != nil {
		return done, err
	}
	by := make([][]*old, len(plans))
	for _, id := range ids {
		a, err := f.Book.ArchiveOf(ctx, id)
		if err != nil {
			return done, err
		}
		i := slices.IndexFunc(plans, func(j *job) bool { return j.format.Chunked && j.mine(a) })
		if i < 0 || used[id] == nil || used[id].Spread {
			return done, &UnerasableError{a.Address}
		}
		done.Archives++
		done.Bytes += a.Size
		by[i] = append(by[i], &old{a, *used[id]})
	}
	if o.DryRun {
		return done, nil
	}
	if done.Files, err = f.Book.Delete(ctx, names); err != nil {
		return done, err
	}
	for i, j := range plans {
		if len(by[i]) == 0 {
			continue
		}
		if done.Chunks[j.plan.Name], err = f.rewrite(ctx, j, by[i], false); err != nil {
			return done, err
		}
	}
	return done, nil
}

// jobs opens all plans.
func (f Fleet) jobs(ctx context.Context) (all []*job, err error) {
	plans, err := Plans(ctx, f.Book)
	for _, p := range plans {
		j, err := open(ctx, p)
		if err != nil {
			return nil, err
		}
		all = append(all, j)
	}
	return all, err
}

// idle returns an error if a plan has work that is not done. Rewrites only copy what readers find.
func (f Fleet) idle(ctx context.Context, j *job) error {
	waits, err := f.waiting(ctx, j)
	n := len(waits)
	for k, kerr := range f.Queue.Jobs(ctx, j.plan.Name) {
		if err = errors.Join(err, kerr); err != nil {
			break
		}
		if k.Kind != rewriteKind && k.Kind != packKind && k.Status != queue.SetAside {
			n++
		}
	}
	if err == nil && n > 0 {
		err = &BusyError{j.plan.Name, n}
	}
	return err
}

// recorded returns an error if there is an archive of a plan, or a part of one, that the catalogue does not have: that of
// a worker which was killed, or one that was removed from the catalogue.
func (f Fleet) recorded(ctx context.Context, j *job) error {
	s, err := f.Book.Full(ctx)
	if err != nil {
		return err
	}
	all, err := f.Book.Archives(ctx)
	if err != nil {
		return err
	}
	_, added := f.Book.Beside()
	known := archives{map[string]bool{}, append([]string{"", added}, kept.Beside...)}
	for _, a := range all {
		known.all[a.Address] = true
	}
	for _, r := range s.Removals {
		known.all[f.Book.AddressOf(r)] = true
	}
	head, mine := j.writes()
	for info, err := range storekit.List(ctx, j.target, head) {
		if err != nil {
			return err
		}
		if address := storekit.AddressOf(j.target, info.Name); mine(info.Name) && !known.has(address) {
			return &UnrecordedError{address}
		}
	}
	return nil
}

// absent returns an error if a plan would pack a name again.
func (j *job) absent(ctx context.Context, name string) error {
	o := j.origins[j.originOf(name)]
	key, ok := strings.CutPrefix(name, o.prefix)
	if !ok || !strings.HasPrefix(key, o.begin) {
		return nil
	}
	return absentFrom(ctx, o.st, key)
}

func absentFrom(ctx context.Context, st store.Store, key string) error {
	_, err := storekit.Briefly(st, key).Info(ctx)
	switch {
	case err == nil:
		return &ThereError{storekit.AddressOf(st, key)}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrInvalid): // the latter cannot be requested
		return nil
	}
	return err
}

// Erased is what an erasure has done. It is also its proof: whoever knows a name, and the ID of the catalogue, finds
// the HMAC-SHA-256 of the name with that key here.
type Erased struct {
	Time     time.Time `json:"time"`
	Catalog  string    `json:"catalog"`
	Names    []string  `json:"names"`    // their HMACs, in hex
	Archives []string  `json:"archives"` // addresses of those that were replaced and are removed, escaped
	Lists    int       `json:"lists"`    // of the fleet that had names
	book.Erased
}

// FinishErasure removes all archives that were replaced, whatever their grace. It takes names out of the lists of the
// fleet and out of the catalogue, and writes a proof. Earlier states of the catalogue cannot be read afterwards. No
// archive may have the names any more.
func FinishErasure(ctx context.Context, f Fleet, names []string) (done Erased, err error) {
	done = Erased{Time: time.Now().UTC(), Catalog: f.Book.ID(), Archives: []string{}}
	erased := make(map[string]bool, len(names))
	for _, name := range names {
		erased[name] = true
		mac := hmac.New(sha256.New, []byte(done.Catalog))
		_, _ = io.WriteString(mac, name)
		done.Names = append(done.Names, hex.EncodeToString(mac.Sum(nil)))
	}
	s, err := f.Book.Full(ctx)
	if err != nil {
		return done, err
	}
	plans, err := f.jobs(ctx)
	if err != nil {
		return done, err
	}
	of := map[string]*job{} // by ID
	for _, j := range plans {
		of[j.id] = j
		err := f.idle(ctx, j)
		if err == nil {
			err = f.recorded(ctx, j)
		}
		if err == nil {
			_, _, err = Tidy(ctx, f, j.plan, 0)
		}
		if err == nil {
			err = j.sweep(ctx)
		}
		if err != nil {
			return done, err
		}
	}
	rest, err := f.Book.Full(ctx)
	if err != nil {
		return done, err
	}
	for _, r := range s.Removals {
		address := f.Book.AddressOf(r)
		if slices.ContainsFunc(rest.Removals, func(x book.Removal) bool { return x.ID == r.ID }) {
			var there bool
			if _, _, there, err = f.replaced(ctx, r); errors.Is(err, store.ErrChanged) {
				err = nil
			} else if there {
				err = fmt.Errorf("%s: it may have the names, and was replaced, but belongs to no plan: remove it, and begin again", format.Escape(address))
			}
		}
		if err != nil {
			return done, err
		}
		done.Archives = append(done.Archives, format.Escape(address))
	}
	for k, err := range f.worklists(ctx, "") {
		if err != nil {
			return done, err
		}
		j := of[k.plan]
		if j == nil || k.waits(j) { // another has planned meanwhile
			return done, &BusyError{k.plan, 1}
		}
		if err := f.drop(ctx, j, k.chunk); err != nil {
			return done, err
		}
		done.Lists++
	}
	for _, kind := range []string{leftKind, retiredKind} {
		for info, err := range storekit.List(ctx, f.Book.Store(), path.Join(f.Book.Name(), kind)+"/") {
			had := false
			if err == nil {
				had, err = f.eraseIn(ctx, info.Name, erased)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return done, fmt.Errorf("%s: %w", format.Escape(info.Name), err)
			}
			if had {
				done.Lists++
			}
		}
	}
	if done.Erased, err = f.Book.Erase(ctx, names); err != nil {
		return done, err
	}
	_, err = storekit.Write(ctx, f.Book.Store(), path.Join(f.Book.Name(), erasedKind, fmt.Sprintf("%016d-%s.json", done.At, rand.Text()[:8])), func(w store.Writer) error {
		return json.NewEncoder(w).Encode(done)
	})
	return done, err
}

// eraseIn takes names out of a list, and reports whether it had some.
func (f Fleet) eraseIn(ctx context.Context, name string, erased map[string]bool) (found bool, err error) {
	in, err := readWhole(ctx, f.Book.Store(), name)
	if err != nil {
		return false, err
	}
	defer in.Close()
	var rest bytes.Buffer
	has := func(line []byte) (bool, error) {
		var x struct {
			Path string `json:"path"`
		}
		err := json.Unmarshal(line, &x)
		return erased[naming.Unescape(x.Path)], err
	}
	keep := func(from io.Reader, to io.Writer) error {
		return eachLine(from, name, func(line []byte) error {
			is, err := has(line)
			if found = found || is; err == nil && !is {
				_, err = fmt.Fprintf(to, "%s\n", line)
			}
			return err
		})
	}
	switch {
	case strings.HasSuffix(name, logSuffix):
		z, zerr := gzip.NewReader(in)
		if zerr != nil {
			return false, zerr
		}
		to := gzip.NewWriter(&rest)
		err = errors.Join(keep(z, to), to.Close())
	case strings.HasSuffix(name, ".json"): // what became of a range
		var r Retired
		if err = json.NewDecoder(io.LimitReader(in, maxSummary)).Decode(&r); err == nil {
			n := len(r.Kept)
			r.Kept = slices.DeleteFunc(r.Kept, func(k Keeping) bool { return erased[k.plain().Path] })
			found = len(r.Kept) < n
			err = json.NewEncoder(&rest).Encode(r)
		}
	default:
		err = keep(in, &rest)
	}
	if err != nil || !found {
		return false, err
	}
	_, err = storekit.Write(ctx, f.Book.Store(), name, func(w store.Writer) error {
		_, err := w.Write(rest.Bytes())
		return err
	})
	return true, err
}
