package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// What could not be packed of a chunk is a list in the catalogue's folder, left/PLAN/CHUNK, one JSON object a
// line. A later listing has what is still there, so it removes the lists before it.

// leftLine is a line of such a list.
type leftLine struct {
	Path    string  `json:"path,omitempty"` // escaped
	Size    int64   `json:"size,omitempty"`
	Version string  `json:"version,omitempty"` // escaped
	Outcome Outcome `json:"outcome,omitempty"`
	Note    string  `json:"note,omitempty"`
	// Proven, of a part, counts the other objects by the checksum that they were compared with.
	Proven string `json:"proven,omitempty"`
}

// note writes what could not be packed of a chunk. A later try replaces it.
func (f Fleet) note(ctx context.Context, j *job, k chunk, done made, again bool) error {
	name, left, part := f.at(leftKind, j, k.name()), missed(done.left), j.format.Parts != nil && k.Last == 0
	if len(left) == 0 && !again && !part {
		return nil
	}
	if len(left) == 0 && !part {
		if err := storekit.Remove(ctx, f.Book.Store(), name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	_, err := storekit.Write(ctx, f.Book.Store(), name, func(w store.Writer) error {
		b := bufio.NewWriter(w)
		to := json.NewEncoder(b)
		if part {
			if err := to.Encode(leftLine{Proven: done.proven}); err != nil {
				return err
			}
		}
		for _, m := range left {
			if err := to.Encode(leftLine{format.Escape(m.Path), m.Size, format.Escape(m.Version), m.Outcome, m.Note, ""}); err != nil {
				return err
			}
		}
		return b.Flush()
	})
	return err
}

// Left yields the objects of a plan that could not be packed, until it is planned again.
func Left(ctx context.Context, f Fleet, p Plan) iter.Seq2[Member, error] {
	return pipe.Told(func(tell func(Member) error) error {
		j, err := open(ctx, p)
		if err != nil {
			return err
		}
		return f.eachLeft(ctx, j, func(_ chunk, l leftLine) error {
			if l.Outcome == "" {
				return nil
			}
			path := naming.Unescape(l.Path)
			return tell(Member{Path: path, Origin: j.originOf(path), Size: l.Size, Version: naming.Unescape(l.Version), Outcome: l.Outcome, Note: l.Note})
		})
	})
}

// eachLeft calls do with the lines of all lists of a plan.
func (f Fleet) eachLeft(ctx context.Context, j *job, do func(chunk, leftLine) error) error {
	for info, err := range storekit.List(ctx, f.Book.Store(), f.at(leftKind, j, "")+"/") {
		if err != nil {
			return err
		}
		k, ok := chunkNamed(path.Base(info.Name))
		if !ok {
			continue
		}
		in, err := readWhole(ctx, f.Book.Store(), info.Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = eachLine(in, info.Name, func(line []byte) error {
			var l leftLine
			if err := json.Unmarshal(line, &l); err != nil {
				return err
			}
			return do(k, l)
		})
		if err := errors.Join(err, in.Close()); err != nil {
			return err
		}
	}
	return nil
}

// forgetLeft removes the lists of chunks of earlier listings.
func (f Fleet) forgetLeft(ctx context.Context, j *job, listing int64) error {
	for info, err := range storekit.List(ctx, f.Book.Store(), f.at(leftKind, j, "")+"/") {
		if err != nil {
			return err
		}
		if k, ok := chunkNamed(path.Base(info.Name)); !ok || k.Listing >= listing {
			continue
		}
		if err := storekit.Remove(ctx, f.Book.Store(), info.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w", format.Escape(info.Name), err)
		}
	}
	return nil
}
