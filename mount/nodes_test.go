//go:build linux || darwin || freebsd

package mount

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"unsafe"
	"weak"
)

// What is known of nodes is what a plain map of them would say, whatever is told and forgotten.
func TestNodesAreWhatTheSystemWasTold(t *testing.T) {
	a, b := &tree{salt: 1, root: mix(1)}, &tree{salt: 2, root: mix(2)}
	ns := newNodes(&node{ino: rootIno})
	type known struct {
		tree  *tree
		name  string
		times uint64
		links []link
	}
	model := map[uint64]*known{}
	r := rand.New(rand.NewPCG(1, 2))
	names := []string{".", "x", "x/y", "./odd", "a//b", "/c", "x/"}
	for i := range 3000 {
		names = append(names, fmt.Sprintf("dir-%d/sub/%d", i%7, i), fmt.Sprintf("dir-%d", i), fmt.Sprintf("dir-%d/sub", i%50))
	}
	for range 200_000 {
		tr, name := []*tree{a, b}[r.IntN(2)], names[r.IntN(len(names))]
		if r.IntN(5) < 2 {
			by := link{}
			if r.IntN(20) == 0 {
				by = link{5, "link" + name}
			}
			n := ns.know(tr, name, by)
			k := model[n.ino]
			if k == nil {
				k = &known{tree: tr, name: name}
				model[n.ino] = k
			}
			if k.tree != tr || k.name != name || n.name != name || n.tree != tr {
				t.Fatalf("%q of %v has the number of %q", name, tr.salt, k.name)
			}
			if k.times++; by.name != "" && !slices.Contains(k.links, by) {
				k.links = append(k.links, by)
			}
			continue
		}
		ino := tr.number(name)
		k, times := model[ino], uint64(r.IntN(4))
		gone := ns.forget(ino, times)
		if k == nil {
			if gone {
				t.Fatalf("%q is forgotten, and was not known", name)
			}
			continue
		}
		if k.times -= min(times, k.times); gone != (k.times == 0) {
			t.Fatalf("%q: forgotten: %v, and it is known %d times", name, gone, k.times)
		} else if gone {
			delete(model, ino)
		}
	}
	links := 0
	for ino, k := range model {
		if n := ns.get(ino); n == nil || n.name != k.name || n.tree != k.tree || n.ino != ino {
			t.Fatalf("%d is %+v, expected %+v", ino, n, k)
		}
		links += len(k.links)
	}
	inosA, linksA := ns.all(a)
	inosB, linksB := ns.all(b)
	dots := 0
	for _, tr := range []*tree{a, b} {
		if model[tr.root] != nil {
			dots++
		}
	}
	if n := len(inosA) + len(inosB); n != len(model) || len(linksA)+len(linksB) != links+len(model)-dots {
		t.Errorf("%d nodes and %d names, expected %d and %d", n, len(linksA)+len(linksB), len(model), links+len(model)-dots)
	}
	for ino, k := range model {
		ns.forget(ino, k.times)
	}
	if inos, _ := ns.all(a); len(inos) != 0 || len(ns.dirs.ids) != 0 || len(ns.links) != 0 {
		t.Errorf("when all is forgotten there are %d nodes, %d folders, %d links", len(inos), len(ns.dirs.ids), len(ns.links))
	}
}

// Of two names with one number the one that comes later gets another.
func TestNumbersThatAreTakenAreNotGivenTwice(t *testing.T) {
	tr := &tree{salt: 1, root: rootIno}
	ns := newNodes(&node{ino: rootIno, tree: tr, name: "."})
	ino := tr.number("one")
	ns.setRefs(ns.shard(ino).add(&ns.dirs, ino, ns.dirs.use(folder{tr, "."}), "another"), ino, 1)
	if n := ns.know(tr, "one", link{}); n.ino == ino || ns.get(n.ino).name != "one" || ns.get(ino).name != "another" {
		t.Errorf("the later one has the number %d, of %q", n.ino, ns.get(ino).name)
	}
}

// TestNamesAreCopied checks that a node keeps no name in memory that is a part of a much longer
// string, as the names of an index are.
func TestNamesAreCopied(t *testing.T) {
	tr := &tree{salt: 1, root: rootIno}
	ns := newNodes(&node{ino: rootIno, tree: tr, name: "."})
	for _, file := range []string{"folder/a", "folder/b"} {
		long := make([]byte, 1<<20)
		name := unsafe.String(&long[0], copy(long, file))
		ns.know(tr, name, link{})
		first := weak.Make(&long[0])
		long, name = nil, ""
		runtime.GC()
		if first.Value() != nil {
			t.Error("the long string is still in memory")
		}
	}
	runtime.KeepAlive(&ns)
}

// BenchmarkNodes knows a million files.
func BenchmarkNodes(b *testing.B) {
	var before, after runtime.MemStats
	tr := &tree{salt: 1, root: rootIno}
	const many = 1_000_000
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		ns := newNodes(&node{ino: rootIno, tree: tr, name: "."})
		for i := range many {
			ns.know(tr, fmt.Sprintf("part-%02d/set-%04d/img_%07d.jpg", i/100_000, i/1000, i), link{})
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/many, "bytes/node")
		runtime.KeepAlive(&ns)
	}
}

func TestManyLooksAreNoticed(t *testing.T) {
	var l looks
	if l.many() {
		t.Error("nobody looked")
	}
	l.since.Store(1 << 62) // the same time, however long this takes
	for i := range manyLooks {
		if l.last.Load() != 0 {
			t.Errorf("%d looks are many", i)
		}
		l.note()
	}
	if l.last.Load() == 0 {
		t.Error("they are not noticed")
	}
}
