package rescue

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/store/local"
)

// BenchmarkRecovery recovers the last tar of a large store, without its tail.
// HOLDALL_OAK_BIG names the store: one as "big" of the interop suite's program makes
// it. Run it with -benchtime 1x for the peak of the process's memory to mean anything.
func BenchmarkRecovery(b *testing.B) {
	big := os.Getenv("HOLDALL_OAK_BIG")
	if big == "" {
		b.Skip("HOLDALL_OAK_BIG is not set")
	}
	all, err := filepath.Glob(filepath.Join(big, "*.tar"))
	if err != nil || len(all) == 0 {
		b.Fatal(big, err)
	}
	dir, name := b.TempDir(), filepath.Base(all[len(all)-1])
	n := segmentsOf(b, big, name)
	copyFront(b, all[len(all)-1], filepath.Join(dir, name), n)
	st := local.New(dir)
	b.SetBytes(n)
	for b.Loop() {
		obj, err := st.Open(b.Context(), name)
		if err != nil {
			b.Fatal(err)
		}
		p, err := Survey(b.Context(), []Source{{name, obj}}, nil, func(e Event) { b.Log(e) })
		if err != nil {
			b.Fatal(err)
		}
		err = Write(b.Context(), st, "data99999a.tar", p)
		if err != nil || p.Action != Tail || p.Keep != n {
			b.Fatal(p.Words(), err)
		}
		b.ReportMetric(float64(len(p.Segments)), "segments")
		if err := obj.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(peak(b), "peak-MB")
}

// segmentsOf returns how long a tar is without its tail.
func segmentsOf(b *testing.B, dir, name string) int64 {
	b.Helper()
	obj, err := local.New(dir).Open(b.Context(), name)
	if err != nil {
		b.Fatal(err)
	}
	defer obj.Close()
	t, err := tarfile.Open(b.Context(), obj, name, tarfile.Options{})
	if err != nil {
		b.Fatal(err)
	}
	l, err := t.Layout(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return l.Segments.Len
}

func copyFront(b *testing.B, from, to string, n int64) {
	b.Helper()
	r, err := os.Open(from)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	w, err := os.Create(to)
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	if _, err := io.CopyN(w, r, n); err != nil {
		b.Fatal(err)
	}
}

// peak is how much memory the process has had at most, 0 where that is not known.
func peak(b *testing.B) float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb := 0.0
			for _, c := range rest {
				if '0' <= c && c <= '9' {
					kb = kb*10 + float64(c-'0')
				}
			}
			return kb / 1024
		}
	}
	b.Log("no VmHWM")
	return 0
}
