package oak

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/formatkit"
	"github.com/holdall/holdall/internal/oak/internal/audit"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
)

// auditCodes are the general words for what an audit finds.
var auditCodes = map[audit.Class]format.Code{
	audit.IgnoredTar:    format.BadHeader,
	audit.NameClash:     format.Duplicate,
	audit.NoLetter:      format.BadHeader,
	audit.Letters:       format.Duplicate,
	audit.Leftovers:     format.Gap,
	audit.BadManifest:   format.BadHeader,
	audit.OldManifest:   format.BadHeader,
	audit.UnknownFile:   format.MissingVolume,
	audit.DuplicateTars: format.Duplicate,
	audit.NotClosed:     format.MissingIndex,
	audit.NoIndex:       format.MissingIndex,
	audit.EmptyTar:      format.Truncated,
	audit.BadIndex:      format.BadIndex,
	audit.BadGraph:      format.BadIndex,
	audit.BadBinaries:   format.BadIndex,
	audit.OddGraph:      format.BadIndex,
	audit.OddBinaries:   format.BadIndex,
	audit.BadTail:       format.BadHeader,
	audit.Gap:           format.Gap,
	audit.BadHeader:     format.BadHeader,
	audit.BadPadding:    format.BadData,
	audit.BadChecksum:   format.BadChecksum,
	audit.BadSegment:    format.BadData,
	audit.BadGeneration: format.BadIndex,
	audit.BadRecords:    format.BadData,
	audit.WrongGraph:    format.BadIndex,
	audit.WrongBinaries: format.BadIndex,
	audit.Unrecoverable: format.BadData,
	audit.NoJournal:     format.MissingIndex,
	audit.BadJournal:    format.BadData,
	audit.HeadRewound:   format.Dangling,
	audit.HeadBroken:    format.Dangling,
	audit.HeadUnknown:   format.Dangling,
	audit.Missing:       format.Dangling,
	audit.Unknown:       format.Dangling,
	audit.GarbageRefs:   format.Gap,
	audit.BadGCLog:      format.BadData,
	audit.NoGCRoot:      format.Dangling,
	audit.StaleGCLog:    format.Dangling,
	audit.TooMany:       format.Limit,
	audit.TooLarge:      format.Limit,
}

// verify says what is wrong with a store, and what that means to its owner: of a
// single tar, what can be said of it alone.
func verify(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) (err error) {
	r, err := openRepository(ctx, st, name, o)
	if err != nil {
		return formatkit.Reported(err, report)
	}
	defer func() { err = errors.Join(err, r.close()) }()
	var opened []store.Object
	defer func() {
		for _, obj := range opened {
			err = errors.Join(err, obj.Close())
		}
	}()
	a, err := audit.Open(ctx, audit.Source{
		Listing: r.list,
		Tar: func(ctx context.Context, t repo.Tar) (store.Object, *tarfile.Tar, error) {
			obj, err := st.Open(ctx, r.list.Path(t.Name))
			if err != nil {
				return nil, nil, err
			}
			opened = append(opened, obj)
			tar, err := tarfile.Open(ctx, obj, t.Name, tarfile.Options{Tail: tailGuess})
			return obj, tar, err
		},
		File: func(ctx context.Context, name string) (store.Object, error) { return st.Open(ctx, r.list.Path(name)) },
	})
	if err != nil {
		return err
	}
	tell := func(p audit.Problem) { report(r.problemOf(p)) }
	if !r.single {
		if err := a.Directory(ctx, tell); err != nil {
			return err
		}
	}
	for i := range a.Len() {
		if err := a.Tail(ctx, i, tell); err != nil {
			return err
		}
	}
	if !o.Quick {
		if err := checkSegments(ctx, a, tell); err != nil {
			return err
		}
	}
	if r.single {
		return nil
	}
	return a.Across(ctx, tell)
}

// checkSegments checks the segments of several tars at once, and tells what it finds
// tar by tar.
func checkSegments(ctx context.Context, a *audit.Audit, tell func(audit.Problem)) error {
	found := make([][]audit.Problem, a.Len())
	tar := func(b []byte) int { return int(binary.LittleEndian.Uint32(b)) }
	all := codec.NewParallel(min(runtime.GOMAXPROCS(0), 8), func(_ int, dst, src []byte) ([]byte, error) {
		i := tar(src)
		return dst, a.Segments(ctx, i, func(p audit.Problem) { found[i] = append(found[i], p) })
	}, func(src, _ []byte) error {
		for _, p := range found[tar(src)] {
			tell(p)
		}
		found[tar(src)] = nil
		return nil
	})
	var err error
	for i := 0; i < a.Len() && err == nil; i++ {
		err = all.Add(binary.LittleEndian.AppendUint32(all.Buffer(), uint32(i)))
	}
	if ended := all.Close(); err == nil {
		err = ended // of the blocks, all of which have been taken now
	}
	return err
}

// problemOf puts what an audit found into the house's words.
func (r *repository) problemOf(p audit.Problem) format.Problem {
	code, ok := auditCodes[p.Class]
	if !ok {
		panic("oak: no code for " + string(p.Class))
	}
	out := format.Problem{Code: code, Class: string(p.Class), Severity: format.Note, Volume: r.list.Dir, Off: p.Off, Message: p.What + ": " + p.Class.Meaning()}
	switch p.Severity {
	case audit.Error:
		out.Severity = format.Error
	case audit.Warning:
		out.Severity = format.Warning
	}
	if p.Tar != "" {
		out.Volume = r.list.Path(p.Tar)
	}
	if p.HasSegment {
		out.Entry, out.HasEntry = p.Segment.String(), true
		if p.Tar != "" {
			out.Entry = p.Tar + "/" + out.Entry
		}
	}
	return out
}
