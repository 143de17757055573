package hdf5

import (
	"context"
	"fmt"
	"io"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit"
	h5 "github.com/holdall/holdall/hdf5"
	"github.com/holdall/holdall/store"
)

// verify reads all structures, which compares their checksums.
func verify(ctx context.Context, st store.Store, name string, o format.OpenOptions, report func(format.Problem)) error {
	a, err := openArchive(ctx, st, name, o)
	if err != nil {
		return kit.Reported(err, report)
	}
	defer a.close()
	if err := a.load(ctx, 0); err != nil {
		return kit.Reported(err, report)
	}
	a.checkEnd(report)
	var entries *kit.Index
	if o.View == objectsView {
		r, wrong := newObjects(ctx, a)
		if err = wrong; err == nil {
			entries = r.Index
		}
	} else {
		k, wrong := newKeys(ctx, a, 0)
		if err = wrong; err == nil {
			entries = k.Index
		}
	}
	if err != nil {
		return kit.Reported(err, report)
	}
	a.check(entries, report)
	return nil
}

func (a *archive) checkEnd(report func(format.Problem)) {
	if end := a.f.End; end > a.f.Size() {
		report(format.Problem{Code: format.Truncated, Severity: format.Error, Volume: a.name, Off: a.f.Size(),
			Message: fmt.Sprintf("the file has %d bytes, but %d by its superblock", a.f.Size(), end)})
	}
}

// check reports what was found wrong when the file was read.
func (a *archive) check(entries *kit.Index, report func(format.Problem)) {
	for _, p := range a.notes {
		report(p)
	}
	kit.CheckEntries(entries, a.name, report)
}

// checks returns the function that checks an open file.
func (a *archive) checks(entries *kit.Index) func(report func(format.Problem)) error {
	return func(report func(format.Problem)) error {
		a.checkEnd(report)
		a.check(entries, report)
		return nil
	}
}

// decoder decodes the chunks of datasets.
func (r *objects) decoder(context.Context) (func(format.Entry) format.Decode, error) {
	return func(e format.Entry) format.Decode {
		d, ok := e.Ref.(*dataset)
		if !ok || e.Fault != nil || d.Layout.Class != h5.Chunked {
			return nil
		}
		proof := proofOf(d.Object)
		if proof == format.Unproven {
			return nil
		}
		return func(_ context.Context, content io.Reader, _ func(format.Problem)) (format.Proof, error) {
			_, err := io.Copy(io.Discard, content) // reading it decodes it
			return proof, err
		}
	}, nil
}

// decoder decodes chunks, which shows damage if filters compare checksums or fail.
func (k *keys) decoder(context.Context) (func(format.Entry) format.Decode, error) {
	return func(e format.Entry) format.Decode {
		r, ok := e.Ref.(*keyRow)
		if !ok || e.Fault != nil {
			return nil
		}
		x := k.table.nodes[r.node].x
		if r.kind != chunkKey || x.how == kept && x.Layout.Class == h5.Compact {
			if k.a.f.Version < 2 {
				return nil
			}
			return func(context.Context, io.Reader, func(format.Problem)) (format.Proof, error) {
				return format.Summed, nil // it is in a header, which has a checksum
			}
		}
		proof := proofOf(x.Object)
		if proof == format.Unproven || x.how == inRun {
			return nil
		}
		return func(ctx context.Context, content io.Reader, report func(format.Problem)) (format.Proof, error) {
			if x.how != inFile { // reading it decodes it
				_, err := io.Copy(io.Discard, content)
				return proof, err
			}
			b, err := io.ReadAll(content)
			if err != nil {
				return format.Unproven, err
			}
			if _, err := x.Decode(h5.Chunk{Offset: x.offset(r.number), Addr: r.off, Size: r.n}, b); err != nil {
				p := k.a.problem(e.Name, err)
				p.Severity = format.Error
				report(p)
			}
			return proof, nil
		}
	}, nil
}

// proofOf returns what decoding the chunks of a dataset proves.
func proofOf(o *h5.Object) format.Proof {
	proof := format.Unproven
	for _, f := range o.Filters {
		switch f.ID {
		case fletcher32, deflate:
			return format.Summed
		case shuffle:
		default:
			proof = format.Decoded
		}
	}
	return proof
}

// offset returns the position of the first element of a chunk in the dataset.
func (x *array) offset(number int64) []int64 {
	at := x.place(number)[:len(x.Space.Dims)]
	for d := range at {
		at[d] *= x.chunk[d]
	}
	return at
}
