package fleet

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"path"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/format/kit/naming"
	"github.com/holdall/holdall/format/kit/pipe"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storekit"
)

// An attempt at a range leaves this in the catalogue's folder, in retired/PLAN/RUN: NUMBER-RANDOM.jsonl.gz, the
// log of what it is about to remove, written before it removes anything, and NUMBER.json, which says what became
// of the range, when that is done.
const (
	retiredKind = "retired"
	logSuffix   = ".jsonl.gz"
)

func (a retireArgs) summary() string { return fmt.Sprintf("%s/%06d.json", a.Run, a.Number) }

func (t *retirement) told(x *original) Retirement {
	return Retirement{format.Escape(x.Path), format.Escape(storekit.AddressOf(x.st, x.name)), format.Escape(x.version), x.Size, format.Escape(t.scope[x.Archive].Address), x.by}
}

// plain is the inverse of the escapes of told.
func (r Retirement) plain() Retirement {
	return Retirement{naming.Unescape(r.Path), naming.Unescape(r.Original), naming.Unescape(r.Version), r.Size, naming.Unescape(r.Archive), r.By}
}

// log writes what is about to be removed.
func (t *retirement) log(ctx context.Context, attempt string, going []*original) error {
	name := fmt.Sprintf("%s/%06d-%s%s", t.a.Run, t.a.Number, attempt, logSuffix)
	_, err := storekit.Write(ctx, t.f.Book.Store(), t.f.at(retiredKind, t.j, name), func(w store.Writer) error {
		z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
		if err != nil {
			return err
		}
		to := json.NewEncoder(z)
		for _, x := range going {
			if err := to.Encode(t.told(x)); err != nil {
				return err
			}
			x.going = true
		}
		return z.Close()
	})
	return err
}

// tell writes what became of the range.
func (t *retirement) tell(ctx context.Context, all []*original) error {
	sum := Retired{Run: t.a.Run, Proven: map[string]int64{}, Left: map[Reason]int64{}}
	sum.estimate(all, !t.j.target.Can().Near, !t.f.Book.Near())
	for _, x := range all {
		sum.Window = max(sum.Window, x.took)
		switch {
		case x.gone && x.why == OriginalGone:
			sum.Finished++
			sum.Bytes += x.Size
		case x.gone || x.why == "":
			sum.Objects++
			sum.Bytes += x.Size
			sum.Proven[x.by]++
		default:
			if sum.Left[x.why]++; len(sum.Kept) < mostKept {
				k := Keeping{Retirement: t.told(x), Why: x.why, Going: x.going}
				if x.err != nil {
					k.Note = format.Escape(x.err.Error())
				}
				sum.Kept = append(sum.Kept, k)
			}
		}
	}
	_, err := storekit.Write(ctx, t.f.Book.Store(), t.f.at(retiredKind, t.j, t.a.summary()), func(w store.Writer) error {
		return json.NewEncoder(w).Encode(sum)
	})
	return err
}

// RetirementLog yields the originals that were about to be removed in a run. One that is twice there was so in
// two attempts. Retired.Kept has those that were not removed then.
func RetirementLog(ctx context.Context, f Fleet, p Plan, run string) iter.Seq2[Retirement, error] {
	return pipe.Told(func(tell func(Retirement) error) error {
		st, at := f.Book.Store(), f.at(retiredKind, &job{id: idOf(p.Name)}, run)+"/"
		for info, err := range storekit.List(ctx, st, at) {
			if err != nil {
				return err
			}
			if !strings.HasSuffix(path.Base(info.Name), logSuffix) {
				continue
			}
			in, err := readWhole(ctx, st, info.Name)
			if err != nil {
				return err
			}
			err = readLog(in, info.Name, tell)
			if err := errors.Join(err, in.Close()); err != nil {
				return err
			}
		}
		return nil
	})
}

func readLog(in io.Reader, name string, tell func(Retirement) error) error {
	z, err := gzip.NewReader(in)
	if err != nil {
		return fmt.Errorf("%s: %w", format.Escape(name), err)
	}
	return eachLine(z, name, func(line []byte) error {
		var r Retirement
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		return tell(r.plain())
	})
}
