package fleet

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdall/holdall"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/shelf"
	contents "github.com/holdall/holdall/internal/read/content"
	"github.com/holdall/holdall/internal/read/parity"
	"github.com/holdall/holdall/internal/write/pack"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// ask requests the current state of an original, and the checksum of its service.
func (t *retirement) ask(ctx context.Context, x *original) error {
	x.asked = time.Now().Round(0) // also counts while the machine sleeps
	o, err := x.st.Open(ctx, x.name)
	if err != nil {
		return x.amiss(ctx, err)
	}
	defer o.Close()
	can := o.Can()
	var headers map[string]string
	if can.Headers != nil { // this one request also has what follows
		headers, err = can.Headers(ctx)
	}
	var is store.Info
	if err == nil {
		is, err = o.Info(ctx)
	}
	if err != nil {
		return x.amiss(ctx, err)
	}
	x.sure = true
	if x.ETag == "" { // what is compared byte by byte may be removed
		x.version = is.Version
	}
	later := !x.Modified.IsZero() && x.Modified.Sub(is.ModTime).Abs() >= time.Second
	if is.Size != x.Size || is.Version != x.version || x.ETag == "" && later {
		x.leave(OriginalChanged, nil)
		return nil
	}
	var unkept []string
	if can.Unkept != nil {
		unkept = can.Unkept()
	}
	if can.Headers != nil {
		was, err := t.f.Book.HeadersOf(ctx, x.Location)
		if err != nil {
			return err
		}
		if has, waived := was[storekit.TagsHeader] != "", slices.Contains(t.a.Without, Tags); waived || !has && headers[storekit.TagsHeader] != "" {
			headers = maps.Clone(headers)
			delete(was, storekit.TagsHeader)
			delete(headers, storekit.TagsHeader)
			unkept = append(unkept, string(Tags))
		}
		of := format.All().ByName(t.scope[x.Archive].Format)
		keeps := of != nil && of.Keeps&format.KeepsHeaders != 0
		if later || keeps && !maps.Equal(was, headers) {
			x.leave(HeadersChanged, nil)
			return nil
		}
		if !keeps && len(headers) > 0 && !slices.Contains(t.a.Without, Headers) {
			x.leave(Headers, nil)
			return nil
		}
	}
	for _, why := range Unkept {
		if slices.Contains(unkept, string(why)) && !slices.Contains(t.a.Without, why) {
			x.leave(why, nil)
			return nil
		}
	}
	if can.Shared != nil && !slices.Contains(t.a.Without, ACL) {
		shared, err := can.Shared(ctx)
		if shared || errors.Is(err, fs.ErrPermission) {
			x.leave(ACL, err)
			return nil
		} else if err != nil {
			return x.amiss(ctx, err)
		}
	}
	if x.Size > 0 {
		if x.sum, x.has, err = pack.SumOf(ctx, o); err != nil {
			return x.amiss(ctx, err)
		}
	}
	switch {
	case x.Size == 0:
		x.by = "size"
	case x.has:
		x.by = pack.ProvenBy(x.sum)
	case t.a.NoReread:
		x.leave(NoChecksum, nil)
	default:
		x.by = "bytes"
	}
	return nil
}

// amiss leaves an original that cannot be requested, unless the error may be temporary.
func (x *original) amiss(ctx context.Context, err error) error {
	x.sure = false
	switch {
	case ctx.Err() != nil || storekit.Temporary(err):
		return err
	case errors.Is(err, store.ErrChanged):
		x.leave(OriginalChanged, nil)
	case !errors.Is(err, fs.ErrNotExist):
		x.leave(Refused, err)
	default:
		x.leave(OriginalGone, nil)
		x.gone = x.leaving || x.Original == catalog.OriginalLingers // it was retired
	}
	return nil
}

// stands returns an error unless the archive of an empty original is the one in the catalogue. Of one with several
// objects, only its own index tells.
func (t *retirement) stands(ctx context.Context, sh *shelf.Shelf, a *archive, x *original) error {
	if of := format.All().ByName(a.Format); of == nil || of.Parts == nil {
		return a.stands(ctx)
	}
	own, err := sh.Own(ctx, x.Location)
	if err == nil && own.Size > 0 {
		err = store.ErrChanged
	}
	return err
}

// prove reads the packed files back, and compares them.
func (t *retirement) prove(ctx context.Context, batch []*original) error {
	var all, empty []*original
	of := map[string]*original{}
	for _, x := range batch {
		switch {
		case x.why != "":
		case x.Size > 0:
			all = append(all, x)
			of[x.Path] = x
		default:
			empty = append(empty, x)
		}
	}
	if len(all)+len(empty) == 0 {
		return nil
	}
	// Neighbours are read together.
	slices.SortFunc(all, func(a, b *original) int {
		return cmp.Or(cmp.Compare(a.Archive, b.Archive), cmp.Compare(a.Off, b.Off), strings.Compare(a.Path, b.Path))
	})
	// Each attempt opens the archives again: an archive that is lost meanwhile proves nothing.
	sh, err := shelf.New(ctx, t.f.Book, shelf.Options{})
	if err != nil {
		return err
	}
	defer sh.Close()
	known := map[int64]*archive{}
	for _, x := range empty { // there is nothing to read back
		a := known[x.Archive]
		if a == nil {
			a = &archive{Archive: t.scope[x.Archive]}
			known[x.Archive] = a
		}
		if err := x.judge(ctx, t.stands(ctx, sh, a, x)); err != nil {
			return err
		}
	}
	in, err := holdall.Open(ctx, shelf.Tree, holdall.OpenOptions{Store: sh, Format: shelf.Format.Name, Formats: []*format.Format{shelf.Format}, Parity: parity.None})
	if err != nil {
		return err
	}
	defer in.Close()
	entries := func(yield func(format.Entry, error) bool) {
		for _, x := range all {
			if !yield(format.Entry{Name: x.Path, Kind: x.Kind, Size: x.Size, Digest: x.Digest, Ref: x.Location}, nil) {
				return
			}
		}
	}
	met := map[string]bool{}
	var mu sync.Mutex
	err = in.Source().Sweep(ctx, entries, contents.AnyOrder, func(c contents.Content, err error) error {
		x := of[c.Entry.Name]
		mu.Lock()
		met[x.Path] = true
		mu.Unlock()
		if err == nil {
			err = x.compare(ctx, c.Checked())
		}
		t.meter.Add(1, x.Size)
		return x.judge(ctx, err)
	})
	if err == nil && len(met) < len(all) {
		err = fmt.Errorf("%d of %d files were read", len(met), len(all))
	}
	if err != nil || !slices.ContainsFunc(all, func(x *original) bool { return x.why == ArchiveChanged }) {
		return err
	}
	now, err := t.j.scope(ctx, t.f.Book)
	for _, x := range all {
		if x.why == ArchiveChanged && err == nil && !now.has(x.Archive) {
			x.leave(Moved, nil)
		}
	}
	return err
}

// judge leaves an original whose proof failed, unless the failure may be temporary.
func (x *original) judge(ctx context.Context, err error) error {
	wrong, differs := errors.AsType[*differsError](err)
	_, stale := errors.AsType[*shelf.StaleError](err)
	asked, original := errors.AsType[*originalError](err)
	switch {
	case err == nil:
	case ctx.Err() != nil || storekit.Temporary(err):
		return err
	case original:
		return x.amiss(ctx, asked.error)
	case differs:
		x.leave(Differs, wrong)
	case stale || errors.Is(err, store.ErrChanged) || errors.Is(err, fs.ErrNotExist):
		x.leave(ArchiveChanged, err)
	case errors.Is(err, format.ErrCorrupt):
		x.leave(ArchiveDamaged, err)
	default:
		x.leave(Unreadable, err)
	}
	return nil
}

// A differsError reports that a packed file differs from its original.
type differsError struct{ what string }

func (e *differsError) Error() string { return e.what }

// An originalError is an error of an original, not of its packed copy.
type originalError struct{ error }

// compare reads a packed file to its end, and compares it with the checksum of the original's service, or with
// the original.
func (x *original) compare(ctx context.Context, packed io.Reader) error {
	var n int64
	var err, wrong error
	if x.has {
		w := pack.NewWitness(x.Path, x.sum, x.Size)
		n, err = io.Copy(w, packed)
		if wrong = w.Wrong(); wrong != nil {
			what := fmt.Sprintf("its service reports another %s", strings.ReplaceAll(x.by, "_", " "))
			wrong = &differsError{what}
		}
	} else {
		n, err = x.reread(ctx, packed)
	}
	if err == nil && n != x.Size {
		err = fmt.Errorf("%s: expected %d bytes, found %d: %w", format.Escape(x.Path), x.Size, n, format.ErrCorrupt)
	}
	return cmp.Or(err, wrong)
}

// rereadBlock is how many bytes of an original are read at once.
const rereadBlock = 1 << 20

// reread compares a packed file with the original, byte by byte.
func (x *original) reread(ctx context.Context, packed io.Reader) (n int64, err error) {
	o, err := storekit.OpenAs(ctx, x.st, x.info())
	if err != nil {
		return 0, &originalError{err}
	}
	defer o.Close()
	a, b := make([]byte, min(x.Size, rereadBlock)), make([]byte, min(x.Size, rereadBlock))
	var differs error
	for {
		k, err := io.ReadFull(packed, a)
		if k > 0 && differs == nil && n+int64(k) <= x.Size {
			if err := o.ReadAt(ctx, b[:k], n); err != nil {
				return n, &originalError{err}
			}
			if !bytes.Equal(a[:k], b[:k]) {
				differs = &differsError{fmt.Sprintf("the original differs, in the block from byte %d on", n)}
			}
		}
		n += int64(k)
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return n, differs
		default:
			return n, err
		}
	}
}
