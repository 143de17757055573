package newstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store/storekit"
	"github.com/holdall/holdall/store/storetest"
)

// fill writes a node with so many binaries, each a bulk segment.
func fill(ctx context.Context, w *Writer, binaries int) (repo.Revision, error) {
	b := segment.NewBuilder(segment.BuilderOptions{}, w.Write)
	p := segment.NewProperty{Name: "all", Type: segment.Binary, Multi: true}
	for i := range binaries {
		id, err := b.Binary(ctx, strings.NewReader(strings.Repeat(fmt.Sprint(i%10), 200<<10)))
		if err != nil {
			return repo.Revision{}, err
		}
		p.Values = append(p.Values, segment.NewValue{Record: id, IsID: true})
	}
	id, err := b.Node(ctx, segment.NewNode{Properties: []segment.NewProperty{p}})
	return id, errors.Join(err, b.Flush(ctx))
}

func TestSegmentsGoIntoTheNextTarWhenOneIsFull(t *testing.T) {
	ctx := t.Context()
	st := &storetest.Mem{}
	w := New(st, "s", Options{MaxTar: 1 << 20, Time: func() time.Time { return time.Unix(1700000000, 0) }})
	head, err := fill(ctx, w, 20)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := w.Commit(ctx, repo.Entry{Revision: head, Millis: 12})
	if err != nil {
		t.Fatal(err)
	}
	want := "s/data00000a.tar s/data00001a.tar s/data00002a.tar s/data00003a.tar s/manifest s/journal.log"
	if got := strings.Join(sum.Files, " "); got != want || sum.Segments != 21 {
		t.Errorf("%s, %d segments; expected %s, 21", got, sum.Segments, want)
	}
	if got, want := string(st.Get("s/journal.log")), head.String()+" root 12\n"; got != want {
		t.Errorf("journal %q, expected %q", got, want)
	}
	found := 0
	for i := range 4 {
		name := "s/" + tarfile.Name(i, 'a')
		o, err := st.Open(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		tar, err := tarfile.Open(ctx, o, name, tarfile.Options{})
		if err != nil {
			t.Fatal(err)
		}
		b := st.Get(name)
		for j, e := range tar.Index().All() {
			found++
			at := e.Whole()
			tar.CheckBytes(j, b[at.Off:][:at.Len], func(p tarfile.Problem) { t.Errorf("%s: %+v", name, p) })
		}
		if _, err := tar.CheckLayout(ctx, func(p tarfile.Problem) { t.Errorf("%s: %+v", name, p) }); err != nil {
			t.Error(err)
		}
	}
	if found != 21 {
		t.Errorf("%d segments in the tars, expected 21", found)
	}
}

func TestAStoreOfNothingIsNotWritten(t *testing.T) {
	st := &storetest.Mem{}
	w := New(st, "s", Options{})
	if _, err := w.Commit(t.Context(), repo.Entry{}); err == nil {
		t.Error("no error")
	}
	w = New(st, "s", Options{})
	if _, err := fill(t.Context(), w, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context()); err == nil {
		t.Error("without a revision: no error")
	}
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	for info := range st.List(t.Context(), "") {
		t.Errorf("%s is there", info.Name)
	}
}

func TestAnAbortedTarIsNotThere(t *testing.T) {
	st := &storetest.Mem{}
	stage := storekit.NewStage(st)
	w := New(stage, "s", Options{MaxTar: 1 << 20})
	if _, err := fill(t.Context(), w, 20); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Abort(), stage.Discard()); err != nil {
		t.Error(err)
	}
	for info := range st.List(t.Context(), "") {
		t.Errorf("%s is there", info.Name)
	}
}
