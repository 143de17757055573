package oak

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"

	"github.com/holdall/holdall/codec"
	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	"github.com/holdall/holdall/internal/oak/internal/audit"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// verify reports the problems of a store, and what they mean for its owner. For a single tar it
// reports what can be determined from that tar.
func verify(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) (err error) {
	r, err := openRepository(ctx, st, name, o)
	if err != nil {
		return kit.Reported(err, report)
	}
	defer func() { err = errors.Join(err, r.close()) }()
	var opened []store.Object
	defer func() {
		for _, obj := range opened {
			err = errors.Join(err, obj.Close())
		}
	}()
	written, err := r.beingWritten(ctx)
	if err != nil {
		return err
	}
	if written != nil {
		report(*written)
	}
	a, err := audit.Open(ctx, audit.Source{
		Listing: r.list,
		Written: written != nil,
		Tar: func(ctx context.Context, t repo.Tar) (store.Object, *tarfile.Tar, error) {
			obj := r.objectNamed(r.list.Path(t.Name))
			if obj == nil {
				var err error
				if obj, err = storekit.OpenGrowing(ctx, r.st, r.list.Path(t.Name)); err != nil {
					return nil, nil, err
				}
				opened = append(opened, obj)
			}
			tar, err := r.openTar(ctx, obj, t.Name, t.Name)
			return obj, tar, err
		},
		File:  r.shownFile,
		Newer: r.newer,
	})
	if err != nil {
		return err
	}
	tell := func(p audit.Problem) { report(r.problemOf(p)) }
	if !r.single {
		r.blobProblems(report)
		err = a.Directory(ctx, tell)
	}
	for i := 0; i < a.Len() && err == nil; i++ {
		err = a.Tail(ctx, i, tell)
	}
	if err == nil && !o.Quick {
		err = checkSegments(ctx, a, tell)
	}
	if err == nil && o.Quick && written != nil {
		err = a.Unfinished(ctx, tell)
	}
	if err == nil && !r.single {
		err = a.Across(ctx, tell)
	}
	return err
}

// audit returns an audit of the tars as they are open.
func (r *repository) audit() *audit.Audit {
	var tars []audit.Held
	for _, t := range r.tars {
		tars = append(tars, t.held())
	}
	return audit.Of(audit.Source{Listing: r.list, Written: r.writer != "", File: r.shownFile, Newer: r.newer}, tars)
}

func (t *segmentTar) held() audit.Held {
	return audit.Held{Tar: t.Tar, Index: t.Index, File: t.file, Read: func(ctx context.Context, e tarfile.Entry) ([]byte, error) { return t.read(ctx, e, nil, asStored) }}
}

// checkSegments checks parts of tars at once, and reports problems in order.
func checkSegments(ctx context.Context, a *audit.Audit, tell func(audit.Problem)) error {
	parts := make([][]*audit.Part, a.Len())
	part := func(b []byte) *audit.Part {
		return parts[binary.LittleEndian.Uint32(b)][binary.LittleEndian.Uint32(b[4:])]
	}
	workers := min(runtime.GOMAXPROCS(0), 8)
	memory := make([]audit.Memory, workers)
	all := codec.NewParallel(workers, func(worker int, dst, src []byte) ([]byte, error) {
		return dst, part(src).Check(ctx, &memory[worker])
	}, func(src, _ []byte) error {
		part(src).Tell(tell)
		return nil
	})
	var err error
	for i := range parts {
		parts[i] = a.Parts(i)
		for k := 0; k < len(parts[i]) && err == nil; k++ {
			b := binary.LittleEndian.AppendUint32(all.Buffer(), uint32(i))
			err = all.Add(binary.LittleEndian.AppendUint32(b, uint32(k)))
		}
	}
	if ended := all.Close(); err == nil {
		err = ended // of the blocks, which have all been received now
	}
	return err
}

// problemOf converts a problem of an audit to holdall's general form.
func (r *repository) problemOf(p audit.Problem) format.Problem {
	out := format.Problem{Code: p.Class.Code, Class: p.Class.String(), Severity: p.Severity, Volume: r.list.Dir, Off: p.Off, Message: p.What + ": " + p.Class.Meaning}
	if p.Tar != "" {
		out.Volume, out.Off = r.liesAt(p.Tar, p.Off)
	}
	if p.HasSegment {
		out.Entry, out.HasEntry = p.Segment.String(), true
		if p.Tar != "" {
			out.Entry = p.Tar + "/" + out.Entry
		}
	}
	return out
}
