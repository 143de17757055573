package formattest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest"
)

// with returns the archive's objects with one of them replaced.
func with(all map[string][]byte, name string, b []byte) *storetest.Mem {
	st := &storetest.Mem{}
	for n, x := range all {
		if n != name {
			st.Put(n, x)
		}
	}
	st.Put(name, b)
	return st
}

// testTruncations cuts each object to nothing, by a byte, and at some lengths at random, more near
// its end. With HOLDALL_LONG it cuts at every length, or at about 1,800 lengths of a long object.
func testTruncations(t *testing.T, a *archive) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	whole := objects(t, a.st)
	for _, name := range sortedNames(whole) {
		b := whole[name]
		lengths := cuts(len(b))
		if some := max(60/len(whole), 8); !testkit.All(t) && len(lengths) > some {
			between := lengths[1 : len(lengths)-1]
			rnd.Shuffle(len(between), func(i, j int) { between[i], between[j] = between[j], between[i] })
			lengths = append(between[:some-2], 0, len(b)-1)
		}
		for _, n := range lengths {
			a.survives(t, fmt.Sprintf("%s cut to %d of %d bytes", name, n, len(b)), with(whole, name, b[:n]), a.name)
		}
		a.survives(t, name+" with a byte more", with(whole, name, append(bytes.Clone(b), 0)), a.name)
	}
}

// cuts are the lengths that an object can be cut to, or many of them.
func cuts(size int) (lengths []int) {
	step := 1
	if size > 4096 {
		step = size / 1000
	}
	for n := range size {
		if n <= 64 || n >= size-700 || n%step == 0 {
			lengths = append(lengths, n)
		}
	}
	return lengths
}

// testFlippedBits flips bits of objects at random, usually a single bit: 60 times, and several
// hundred times with HOLDALL_LONG.
func testFlippedBits(t *testing.T, a *archive) {
	testkit.Serial(t)
	rnd := testkit.Rand(t)
	whole := objects(t, a.st)
	names, times := sortedNames(whole), 60
	if testkit.All(t) {
		size := 0
		for _, b := range whole {
			size += len(b)
		}
		times = min(max(3*size, 300), 700)
	}
	for range times {
		name := names[rnd.IntN(len(names))]
		if len(whole[name]) == 0 {
			continue
		}
		b := bytes.Clone(whole[name])
		what := name + ", bits turned:"
		for n := 1 + max(0, rnd.IntN(6)-3); n > 0; n-- {
			i, bit := rnd.IntN(len(b)), rnd.IntN(8)
			b[i] ^= 1 << bit
			what += fmt.Sprintf(" %d of byte %d", bit, i)
		}
		a.survives(t, what, with(whole, name, b), a.name)
	}
}

// survives checks that a format's functions neither panic on a possibly damaged archive, nor
// leave its objects, nor contradict each other. It reports whether the archive opens.
func (s *suite) survives(t *testing.T, what string, st *storetest.Mem, name string) bool {
	t.Helper()
	ctx := t.Context()
	faults := s.problems(t, what, st, name)
	opened, err := s.describesSafely(ctx, st, name)
	if err != nil {
		corrupt, ok := errors.AsType[*format.CorruptError](err)
		if !ok && !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: expected a *format.CorruptError or errors.ErrUnsupported, found %T: %v", what, err, err)
		}
		if ok && (corrupt.Format != s.f.Name || corrupt.Code == "" || corrupt.Message == "") {
			t.Errorf("%s: the error lacks a format, a code or a reason: %+v", what, corrupt)
		}
		if s.f.Verify != nil && faults == 0 {
			t.Errorf("%s: reading fails with %q, but verify finds no error", what, err)
		}
	}
	if s.f.Repair != nil {
		s.repairs(t, what, st, name)
	}
	return opened
}

// problems runs Verify and returns the number of errors that it reports.
func (s *suite) problems(t *testing.T, what string, st *storetest.Mem, name string) (faults int) {
	t.Helper()
	if s.f.Verify == nil {
		return 0
	}
	err := s.f.Verify(t.Context(), st, name, format.OpenOptions{}, func(p format.Problem) {
		if p.Code == "" || p.Message == "" || p.Severity < format.Note || p.Severity > format.Error {
			t.Errorf("%s: verify: incomplete problem %+v", what, p)
		}
		if size := int64(len(st.Get(p.Volume))); p.Off > size || p.Off < -1 {
			t.Errorf("%s: verify: a problem at byte %d of %q, which has %d", what, p.Off, p.Volume, size)
		}
		if p.Severity == format.Error {
			faults++
		}
	})
	if err != nil {
		t.Errorf("%s: verify: %v", what, err)
	}
	return faults
}

// describesSafely iterates over everything that a reader returns. It returns the first error that
// reports damage.
func (s *suite) describesSafely(ctx context.Context, st *storetest.Mem, name string) (opened bool, damage error) {
	r, err := s.f.Open(ctx, st, name, format.OpenOptions{})
	if err != nil {
		return false, err
	}
	defer r.Close()
	note := func(err error) {
		if damage == nil {
			damage = err
		}
	}
	for e, err := range r.Entries(ctx) {
		if err != nil {
			note(fmt.Errorf("entries: %w", err))
			break
		}
		if e.Size < 0 {
			return true, fmt.Errorf("%q has %d bytes", e.Name, e.Size)
		}
		if e.Fault != nil {
			note(&format.CorruptError{Format: s.f.Name, Problem: *e.Fault})
		}
		if !e.Kind.HasContent() {
			continue
		}
		n := int64(0)
		for x, err := range r.Extents(ctx, e, 0, e.Size) {
			if n++; err != nil {
				note(fmt.Errorf("extents of %q: %w", e.Name, err))
				break
			}
			if e.Fault != nil {
				return true, fmt.Errorf("%q has a fault, and also extents", e.Name)
			}
			if err := inside(st, x, e); err != nil {
				return true, fmt.Errorf("extents of %q: %w", e.Name, err)
			}
			if n > 1<<16 {
				return true, fmt.Errorf("extents of %q do not end", e.Name)
			}
		}
	}
	for g, err := range r.Regions(ctx) {
		if err != nil {
			note(fmt.Errorf("regions: %w", err))
			break
		}
		if b := st.Get(g.Object); g.Off < 0 || g.Len < 0 || g.Off+g.Len < 0 || g.Off+g.Len > int64(len(b)) {
			return true, fmt.Errorf("region %+v is outside the %d bytes", g, len(b))
		}
	}
	for _, err := range r.ReadDir(ctx, ".") {
		if err != nil {
			note(fmt.Errorf("readdir: %w", err))
			break
		}
	}
	if _, err := r.About(ctx); err != nil {
		note(fmt.Errorf("about: %w", err))
	}
	return true, damage
}

// inside returns an error if x leaves its object or e's content.
func inside(st *storetest.Mem, x format.Extent, e format.Entry) error {
	if err := sane(x); err != nil {
		return err
	}
	if x.At+x.Size > e.Size {
		return fmt.Errorf("extent %d+%d of a content of %d bytes", x.At, x.Size, e.Size)
	}
	if !stored(x) {
		return nil
	}
	// If damage changed the name of the object, it does not exist; reading reports that.
	if b := st.Get(x.Object); b != nil && x.Off+x.Len > int64(len(b)) {
		return fmt.Errorf("extent %d+%d is outside %s, which has %d bytes", x.Off, x.Len, x.Object, len(b))
	}
	return nil
}

// repairs plans a repair, applies it, and checks the result: it must open without an error, and
// need no further repair.
func (s *suite) repairs(t *testing.T, what string, st *storetest.Mem, name string) {
	t.Helper()
	plan, err := s.f.Repair(t.Context(), st, name, format.OpenOptions{}, func(format.Problem) {})
	if err != nil {
		if _, ok := errors.AsType[*format.CorruptError](err); !ok && !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: repair: expected a *format.CorruptError or errors.ErrUnsupported, found %T: %v", what, err, err)
		}
		return
	}
	if plan.Partial && len(plan.Lost) == 0 {
		t.Errorf("%s: repair is partial, but reports no loss", what)
	}
	if !plan.Changes() {
		return
	}
	if len(plan.Notes) == 0 {
		t.Errorf("%s: repair has no notes", what)
	}
	repaired, err := apply(objects(t, st), plan)
	if plan.Build != nil {
		repaired, err = build(t.Context(), objects(t, st), plan, name)
		if elsewhere := (&storetest.Mem{}); err == nil {
			err = plan.Build(t.Context(), elsewhere, name, false)
			a, b := objects(t, repaired), objects(t, elsewhere)
			if plan.KeepsBackup {
				dropBackups(a, b, objects(t, st), plan.Replaces)
			}
			if err == nil && !reflect.DeepEqual(a, b) {
				t.Errorf("%s: the repair in place gives %q, the copy %q, or their contents differ", what, sortedNames(a), sortedNames(b))
			}
		}
	}
	if err != nil {
		t.Errorf("%s: repair: %v", what, err)
		return
	}
	// What is lost for good may still be reported as missing.
	if n := s.problems(t, what+", repaired", repaired, name); n > 0 && !plan.Partial {
		t.Errorf("%s: %d errors are left after the repair", what, n)
	}
	if _, err := s.describesSafely(t.Context(), repaired, name); err != nil && !plan.Partial {
		t.Errorf("%s: after the repair: %v", what, err)
	}
	again, err := s.f.Repair(t.Context(), repaired, name, format.OpenOptions{}, func(format.Problem) {})
	if err != nil || again.Changes() {
		t.Errorf("%s: a second repair: %v, notes %q", what, err, again.Notes)
	}
}

// dropBackups removes objects that a plan replaces from made, unless they are wanted.
func dropBackups(made, want, before map[string][]byte, replaced []string) {
	for n, b := range made {
		if want[n] == nil && slices.ContainsFunc(replaced, func(r string) bool { return bytes.Equal(before[r], b) }) {
			delete(made, n)
		}
	}
}

// build applies a plan for an archive of several objects in place.
func build(ctx context.Context, all map[string][]byte, p format.Plan, name string) (*storetest.Mem, error) {
	made := &storetest.Mem{}
	if err := p.Build(ctx, made, name, true); err != nil {
		return nil, err
	}
	out := &storetest.Mem{}
	for n, b := range all {
		if !slices.Contains(p.Drops, n) {
			out.Put(n, b)
		}
	}
	for info, err := range made.List(ctx, "") {
		if err != nil {
			return nil, err
		}
		out.Put(info.Name, made.Get(info.Name))
	}
	return out, nil
}

// apply applies the edits of a plan. They must be sorted and within their objects.
func apply(all map[string][]byte, p format.Plan) (*storetest.Mem, error) {
	out := &storetest.Mem{}
	for n, b := range all {
		out.Put(n, b)
	}
	var last format.Edit
	var buf bytes.Buffer
	for i, e := range p.Edits {
		b, ok := all[e.Object]
		if !ok || e.Off < 0 || e.Len < 0 || e.Off > int64(len(b)) || e.Len > int64(len(b))-e.Off {
			return nil, fmt.Errorf("edit %d of %q, bytes %d+%d, is outside its %d bytes", i, e.Object, e.Off, e.Len, len(b))
		}
		if i > 0 && (e.Object < last.Object || e.Object == last.Object && e.Off < last.Off+last.Len) {
			return nil, fmt.Errorf("edit %d of %q, bytes %d+%d, comes after %q, bytes %d+%d", i, e.Object, e.Off, e.Len, last.Object, last.Off, last.Len)
		}
		if i == 0 || e.Object != last.Object {
			buf.Reset()
			last = format.Edit{Object: e.Object}
		}
		buf.Write(b[last.Off+last.Len : e.Off])
		if e.Write != nil {
			if err := e.Write(&buf); err != nil {
				return nil, fmt.Errorf("edit %d of %q: %w", i, e.Object, err)
			}
		}
		last = e
		if i+1 == len(p.Edits) || p.Edits[i+1].Object != e.Object {
			buf.Write(b[e.Off+e.Len:])
			out.Put(e.Object, buf.Bytes())
		}
	}
	return out, nil
}
