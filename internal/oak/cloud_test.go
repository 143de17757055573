package oak

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/cloud"
	"github.com/holdall/holdall/internal/oak/internal/repo"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/internal/write/repairs"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/storetest"
)

// underLease does some work with the store s in a container, under its lock.
func underLease(ctx context.Context, st store.Store, do func(*Store) error) error {
	st, unlock, err := Lock(ctx, st, "s")
	if err != nil {
		return err
	}
	err = onStore(ctx, st, func(s *Store) error {
		return errors.Join(s.Fixed(), again(ctx, func(_ context.Context, s *Store) error { return do(s) })(s))
	})
	return errors.Join(err, unlock())
}

// cloudVerbs change the store s in place, or make the store s of what is in t.
var cloudVerbs = map[string]func(ctx context.Context, st store.Store) error{
	"set": func(ctx context.Context, st store.Store) error {
		return underLease(ctx, st, func(s *Store) error {
			_, err := s.Set(ctx, "/", "p", []string{"v"}, SetOptions{})
			return err
		})
	},
	"rm": func(ctx context.Context, st store.Store) error {
		return underLease(ctx, st, func(s *Store) error {
			_, err := s.Remove(ctx, "/", RemoveOptions{Property: "p"})
			if errors.Is(err, fs.ErrNotExist) { // it was removed before
				err = nil
			}
			return err
		})
	},
	"replace": func(ctx context.Context, st store.Store) error {
		return underLease(ctx, st, func(s *Store) error {
			t, err := s.TreeNamed(ctx, "head")
			if err == nil {
				_, err = s.Replace(ctx, "/", Donor{Tree: t}, ReplaceOptions{})
			}
			return err
		})
	},
	"check --fix-journal": func(ctx context.Context, st store.Store) error {
		return underLease(ctx, st, func(s *Store) error {
			r, err := s.Check(ctx, CheckOptions{})
			if err == nil {
				_, err = s.FixJournal(ctx, r)
			}
			return err
		})
	},
	"restore": func(ctx context.Context, st store.Store) error {
		from, err := OpenStore(ctx, st, "t", format.OpenOptions{})
		if err != nil {
			return err
		}
		_, err = from.Backup(ctx, st, "s", BackupOptions{Restore: true})
		return errors.Join(err, from.Close())
	},
	"checkpoints rm": func(ctx context.Context, st store.Store) error {
		return underLease(ctx, st, func(s *Store) error {
			_, err := s.RemoveCheckpoints(ctx, CheckpointChoice{All: true}, time.Now(), false)
			return err
		})
	},
	"recover-journal": func(ctx context.Context, st store.Store) error {
		return underLease(ctx, st, func(s *Store) error {
			j, err := s.PlanJournal(ctx)
			if err == nil {
				_, err = j.Apply(ctx)
			}
			return err
		})
	},
	"cleanup": func(ctx context.Context, st store.Store) error {
		return underLease(ctx, st, func(s *Store) error {
			c, err := s.PlanCleanup(ctx, CleanupOptions{})
			if err == nil {
				err = c.Apply(ctx)
			}
			return err
		})
	},
	"repair":          cloudRepair,
	"repair segments": cloudRepair,
	"backup": func(ctx context.Context, st store.Store) error {
		from, err := OpenStore(ctx, st, "t", format.OpenOptions{})
		if err != nil {
			return err
		}
		_, err = from.Backup(ctx, st, "s", BackupOptions{})
		return errors.Join(err, from.Close())
	},
	"compact": func(ctx context.Context, st store.Store) error {
		from, err := OpenStore(ctx, st, "t", format.OpenOptions{})
		if err != nil {
			return err
		}
		err = repairs.Apply(ctx, nil, "", format.Plan{Place: place, Build: func(ctx context.Context, to store.Store, name string, _ bool) error {
			_, err := from.Compact(ctx, to, name, CompactOptions{})
			return err
		}}, st, "s")
		return errors.Join(err, from.Close())
	},
}

func cloudRepair(ctx context.Context, st store.Store) error {
	st, unlock, err := Lock(ctx, st, "s")
	if err != nil {
		return err
	}
	plan, err := Format.Repair(ctx, st, "s", format.OpenOptions{}, func(format.Problem) {})
	if err == nil && plan.Changes() {
		err = repairs.Apply(ctx, st, "s", plan, st, "s")
	}
	return errors.Join(err, unlock())
}

// cloudCase is a container with the store s or, for verbs that make one, with t alone.
func cloudCase(t *testing.T, verb string) *storetest.Container {
	name, to := map[string]string{"cleanup": "cleanup-pending", "repair": "unclean-open", "repair segments": "unclean-open"}[verb], &storetest.Container{}
	if name == "" {
		name = "checkpoints"
	}
	out := "s"
	if verb == "backup" || verb == "compact" || verb == "restore" {
		out = "t"
	}
	copied(t, fixture(t, name), "s", to, out, CopyOptions{})
	switch verb {
	case "rm":
		if err := cloudVerbs["set"](t.Context(), to); err != nil {
			t.Fatal(err)
		}
	case "check --fix-journal":
		to.Put("s/journal.log.001", append(to.Get("s/journal.log.001"), "11111111-2222-4333-a444-555555555555:1 root 1\n"...))
	case "restore":
		copied(t, fixture(t, name), "s", to, "s", CopyOptions{})
		if err := to.Remove(t.Context(), "s/data00000a.tar/closed"); err != nil {
			t.Fatal(err)
		}
	case "repair", "repair segments":
		l, err := repo.List(t.Context(), to, "s")
		if err != nil {
			t.Fatal(err)
		}
		for _, end := range []string{cloud.Closed, l.Tars[0].Name + cloud.Graph} {
			if err := to.Remove(t.Context(), "s/"+l.Tars[0].Name+"/"+end); err != nil {
				t.Fatal(err)
			}
		}
		if verb == "repair" {
			break
		}
		all := l.Blobs.Archive(l.Tars[0].Name).Entries() // the last gets another number, which leaves a gap
		n := len(all) - 1
		from := path.Join("s", l.Tars[0].Name, cloud.BlobName(n, all[n].ID))
		moved := path.Join("s", l.Tars[0].Name, cloud.BlobName(n+2, all[n].ID))
		to.Put(moved, to.Get(from))
		headers := map[string]string{}
		for k, v := range cloud.Metadata(n+2, all[n], true) {
			headers[strings.ToLower(k)] = v
		}
		to.SetHeaders(moved, headers)
		if err := to.Remove(t.Context(), from); err != nil {
			t.Fatal(err)
		}
	case "recover-journal":
		b := to.Get("s/journal.log.001")
		to.Put("s/journal.log.001", b[:len(b)/2])
	}
	return to
}

// revisionIn is the newest revision of the store s; "" if there is no store.
func revisionIn(t *testing.T, st store.Store) string {
	t.Helper()
	s, err := OpenStore(t.Context(), st, "s", format.OpenOptions{})
	if c, ok := errors.AsType[*format.CorruptError](err); ok && c.Class == notAStore || errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h, err := s.r.head(t.Context())
	if _, none := errors.AsType[*repo.Error](err); none {
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return h.Revision.String()
}

// A verb that is killed at any request leaves the old store or the new one, in Oak's layout, and the
// same verb then does its work.
func TestAKillInTheCloudLeavesOldOrNew(t *testing.T) {
	testkit.Serial(t)
	for _, verb := range testkit.Few(t, 3, slices.Sorted(maps.Keys(cloudVerbs))...) {
		t.Run(verb, func(t *testing.T) {
			before := cloudCase(t, verb)
			old := ""
			if before.Get("s/manifest") != nil {
				old = superTree(t, before)
			}
			was := revisionIn(t, before)
			kills := 0
			for ; ; kills++ {
				st := before.Clone()
				d := storetest.Kill(st, kills)
				err := cloudVerbs[verb](t.Context(), d)
				if d.Dead() != errors.Is(err, storetest.ErrKilled) || !d.Dead() && err != nil {
					t.Fatalf("after %d requests: %v", kills, err)
				}
				is := revisionIn(t, st)
				switch {
				case is == was && was != "":
					if got := superTree(t, st); got != old {
						t.Fatalf("after %d requests the old revision has another content", kills)
					}
				case is != "":
					mustBeWhole(t, st)
				}
				if !d.Dead() {
					break
				}
				if verb == "compact" { // which never writes to what is there
					continue
				}
				if err := cloudVerbs[verb](t.Context(), st); err != nil {
					t.Fatalf("after %d requests, again: %v", kills, err)
				}
				inOaksLayout(t, st)
				mustBeWhole(t, st)
			}
			if kills < 3 {
				t.Errorf("only %d requests", kills)
			}
		})
	}
}

// inOaksLayout checks that Oak sees all that is in the store s.
func inOaksLayout(t *testing.T, st *storetest.Container) {
	t.Helper()
	err := verify(t.Context(), st, "s", format.OpenOptions{}, func(p format.Problem) {
		if p.Severity == format.Error {
			t.Errorf("%s %s: %s", p.Class, p.Entry, p.Message)
		}
	})
	if err != nil {
		t.Error(err)
	}
	for name := range objects(t, &st.Mem) {
		if base, ok := strings.CutPrefix(name, "s/"); ok && isTar(base) {
			t.Errorf("%s is a tar, which Oak does not see", name)
		}
	}
}

// Without its lock nothing is written, and nothing more when it is lost.
func TestTheCloudIsWrittenUnderTheLease(t *testing.T) {
	st := cloudCase(t, "set")
	was := objects(t, &st.Mem)
	if err := opened(t, st, "s").Fixed(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("changed without the lock: %v", err)
	}
	_, unlock, err := Lock(t.Context(), st, "s")
	if err != nil {
		t.Fatal(err)
	}
	for verb, do := range cloudVerbs {
		if verb == "backup" || verb == "compact" || verb == "restore" {
			continue
		}
		if err := do(t.Context(), st); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "another program") {
			t.Errorf("%s of an open store: %v", verb, err)
		}
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	lost := errors.New("lost")
	err = underLease(t.Context(), st, func(s *Store) error {
		st.Break("s/repo.lock", lost)
		_, err := s.Set(t.Context(), "/", "p", []string{"v"}, SetOptions{})
		return err
	})
	if !errors.Is(err, lost) {
		t.Errorf("written without the lock: %v", err)
	}
	if is := objects(t, &st.Mem); !maps.EqualFunc(is, was, func(a, b []byte) bool { return string(a) == string(b) }) {
		t.Error("something was written")
	}
	// What has no lock is as it was before, and cannot be changed.
	bucket := &storetest.Mem{}
	copied(t, fixture(t, "types"), "s", bucket, "s", CopyOptions{})
	if err := underLease(t.Context(), bucket, func(*Store) error { return nil }); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("changed in a bucket: %v", err)
	}
	if err := bucket.Remove(t.Context(), "s/data00000a.tar/closed"); err != nil {
		t.Fatal(err)
	}
	if err := cloudVerbs["repair"](t.Context(), bucket); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("repaired in a bucket: %v", err)
	}
}

// A segment that is not what its tar says gets into no blob, where nothing would show that.
func TestNothingDamagedGetsIntoTheCloud(t *testing.T) {
	for what, harm := range map[string]func(b []byte){
		"a segment":    func(b []byte) { b[600] ^= 1 },
		"its header":   func(b []byte) { clear(b[:512]) },
		"its checksum": func(b []byte) { b[40] ^= 1; copy(b[148:], "0000000") },
	} {
		src, to := fixture(t, "types"), &storetest.Container{}
		b := src.Get("s/data00000a.tar")
		harm(b)
		at, release, err := place(t.Context(), to, "s")
		if err != nil {
			t.Fatal(err)
		}
		w, err := at.Can().Create(t.Context(), "s/data00000a.tar", store.Wishes{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Write(b)
		if err == nil {
			_, err = w.Commit(t.Context())
		}
		if err == nil {
			t.Errorf("%s: written", what)
		}
		if err := errors.Join(w.Abort(), release()); err != nil {
			t.Error(err)
		}
		if n := len(objects(t, &to.Mem)); n != 0 {
			t.Errorf("%s: %d blobs stay", what, n)
		}
	}
}
