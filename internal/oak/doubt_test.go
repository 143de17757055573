package oak

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"path"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/cloud"
	"github.com/holdall/holdall/internal/oak/internal/segment"
	"github.com/holdall/holdall/internal/oak/internal/tarfile"
	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store"
	"github.com/holdall/holdall/store/local"
	"github.com/holdall/holdall/store/storetest"
)

// segmentsIn returns all segments of a store that can be read, compared with their checksums.
func segmentsIn(t *testing.T, st store.Store) map[segment.ID][]byte {
	t.Helper()
	all := map[segment.ID][]byte{}
	err := onStore(t.Context(), st, func(s *Store) error {
		for _, tar := range s.r.tars {
			for _, e := range tar.All() {
				if b, err := tar.read(t.Context(), e, nil, healing); err == nil {
					all[e.ID] = bytes.Clone(b)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// onlyWritten checks that a store gives out no segment that is not as it was written.
func onlyWritten(t *testing.T, what string, st store.Store, written map[segment.ID][]byte) {
	t.Helper()
	for id, b := range segmentsIn(t, st) {
		if !bytes.Equal(b, written[id]) {
			t.Errorf("%s: segment %s passes for intact, and is not what was written", what, id)
		}
	}
}

// TestWhatIsDoubtfulNeverBecomesCertain damages segments together with their headers: nothing then
// shows what was written. No verb that copies segments gives them a checksum that matches.
// HOLDALL_LONG is how many rounds.
func TestWhatIsDoubtfulNeverBecomesCertain(t *testing.T) {
	testkit.Serial(t)
	for _, name := range []string{"types", "two-letters", "cleanup-pending", "multitar"} {
		t.Run(name, func(t *testing.T) {
			rnd := testkit.Rand(t)
			sound := fixture(t, name)
			written, tree := segmentsIn(t, sound), superTree(t, sound)
			for range testkit.Rounds(t, 2) {
				st := sound.Clone()
				what := ""
				err := onStore(t.Context(), sound, func(s *Store) error {
					head, err := s.r.head(t.Context())
					for range 1 + rnd.IntN(3) {
						tar := s.r.tars[rnd.IntN(len(s.r.tars))]
						e := tar.At(rnd.IntN(tar.Len()))
						if e.ID == head.Segment {
							continue // nothing could be compacted
						}
						b := bytes.Clone(st.Get(tar.path))
						// From within the header to within the segment, past a data segment's own header.
						from := e.Pos - 512 + int64(rnd.IntN(38))
						at := e.Pos + int64(e.Len)/2
						clear(b[from:e.Pos])
						b[at+int64(rnd.IntN(e.Len-e.Len/2))] ^= byte(1 + rnd.IntN(255))
						if !e.ID.IsData() {
							clear(b[e.Pos : e.Pos+int64(rnd.IntN(e.Len))])
						}
						if rnd.IntN(3) == 0 {
							b[len(b)-1100] ^= 1 // of the index
						}
						st.Put(tar.path, b)
						what += tar.Name + " " + e.ID.String() + " "
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				onlyWritten(t, what+"before", st, written)
				out := &storetest.Mem{}
				if repairAll(t, st, out).Changes() {
					onlyWritten(t, what+"repaired", out, written)
				} else {
					out = st
				}
				onCopy := func(how string, work func(s *Store, to store.Store) error) {
					var to store.Store = &storetest.Mem{}
					whole := out.Clone()
					if strings.HasSuffix(how, "tars") {
						to = local.New(t.TempDir())
					}
					s, err := OpenStore(t.Context(), whole, "s", format.OpenOptions{NoVerify: true})
					if err != nil {
						return
					}
					err = work(s, to)
					s.Close()
					onlyWritten(t, what+how+", the store", whole, written)
					if err == nil {
						onlyWritten(t, what+how, to, written)
					}
				}
				for _, how := range []string{"copied to blobs", "copied to tars"} {
					onCopy(how, func(s *Store, to store.Store) error {
						_, err := s.Copy(t.Context(), to, "s", CopyOptions{})
						return err
					})
				}
				onCopy("backed up", func(s *Store, to store.Store) error {
					_, err := s.Backup(t.Context(), to, "s", BackupOptions{})
					return err
				})
				onCopy("compacted", func(s *Store, to store.Store) error {
					_, err := s.Compact(t.Context(), to, "s", CompactOptions{})
					if err == nil && superTree(t, to) != tree {
						t.Errorf("%s: compacted: another tree", what)
					}
					return errors.Join(err, errEnough) // its segments are new
				})
				onCopy("cleaned up", func(s *Store, to store.Store) error {
					c, err := s.PlanCleanup(t.Context(), CleanupOptions{})
					if err == nil {
						err = c.Apply(t.Context())
					}
					return errors.Join(err, errEnough) // there is no other store
				})
			}
		})
	}
}

// TestNothingProvesWhatComesOfBlobs moves segments out of blobs, which have no checksums, by each verb
// that does: no checksum then says that they are what was written.
func TestNothingProvesWhatComesOfBlobs(t *testing.T) {
	blobs := &storetest.Container{}
	copied(t, fixture(t, "checkpoints"), "s", blobs, "s", CopyOptions{})
	want, before := superTree(t, blobs), 0
	for verb, do := range map[string]func(s *Store, to store.Store) error{
		"copy": func(s *Store, to store.Store) error {
			_, err := s.Copy(t.Context(), to, "s", CopyOptions{})
			return err
		},
		"backup": func(s *Store, to store.Store) error {
			_, err := s.Backup(t.Context(), to, "s", BackupOptions{})
			return err
		},
		"compact": func(s *Store, to store.Store) error {
			_, err := s.Compact(t.Context(), to, "s", CompactOptions{})
			return err
		},
		"replace": func(s *Store, to store.Store) error {
			empty := fixture(t, "empty-store")
			for name, b := range objects(t, empty) {
				if err := storetest.Put(t.Context(), to, name, b); err != nil {
					return err
				}
			}
			return onStore(t.Context(), to, func(d *Store) error {
				for _, tar := range d.r.tars {
					before += tar.Len()
				}
				tree, err := s.Tree(t.Context(), nil)
				if err == nil {
					_, err = d.Replace(t.Context(), "/", Donor{Tree: tree}, ReplaceOptions{})
				}
				return err
			})
		},
		"repair": func(_ *Store, to store.Store) error {
			out := blobs.Clone()
			if err := out.Remove(t.Context(), "s/data00000a.tar/closed"); err != nil {
				return err
			}
			plan, err := Format.Repair(t.Context(), out, "s", format.OpenOptions{}, func(format.Problem) {})
			if err != nil {
				return err
			}
			return plan.Build(t.Context(), to, "s", false)
		},
	} {
		to := local.New(t.TempDir())
		if err := do(opened(t, blobs, "s"), to); err != nil {
			t.Fatalf("%s: %v", verb, err)
		}
		proven, all := proofs(t, to)
		if verb == "replace" {
			proven -= before
		}
		if proven > 0 || all == 0 {
			t.Errorf("%s: %d of %d segments have a checksum", verb, proven, all)
		}
		if verb != "compact" && verb != "replace" && superTree(t, to) != want {
			t.Errorf("%s: another content", verb)
		}
		mustBeWhole(t, to)
	}
}

// summed is a container that returns the MD5 of each object as it was when it was recorded, as Azure
// does of what was written.
type summed struct {
	*storetest.Container
	sums map[string]string
}

func (s summed) record(t *testing.T) {
	for name, b := range objects(t, &s.Mem) {
		sum := md5.Sum(b)
		s.sums[name] = string(sum[:])
	}
}

func (s summed) Open(ctx context.Context, name string) (store.Object, error) {
	o, err := s.Container.Open(ctx, name)
	return summedObject{o, s.sums[name]}, err
}

type summedObject struct {
	store.Object
	sum string
}

func (o summedObject) Can() store.ObjectAbilities {
	return store.ObjectAbilities{Sums: func(context.Context) ([]store.Sum, error) { return []store.Sum{{Algo: "md5", Value: o.sum}}, nil }}
}

// proofs returns how many segments of a store have a checksum that matches.
func proofs(t *testing.T, st store.Store) (proven, all int) {
	t.Helper()
	err := onStore(t.Context(), st, func(s *Store) error {
		for _, tar := range s.r.tars {
			for _, e := range tar.All() {
				header, b, err := tar.readBoth(t.Context(), e, nil, true, asStored)
				if err != nil {
					return err
				}
				if all++; tarfile.Proves(e.ID, header, b) {
					proven++
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return proven, all
}

// TestTheMD5OfABlobProvesIt copies to Azure and back. Azure proves what was written there, which does
// not prove what was doubtful before; and it proves damage.
func TestTheMD5OfABlobProvesIt(t *testing.T) {
	sound := fixture(t, "types")
	blobs := summed{&storetest.Container{}, map[string]string{}}
	copied(t, sound, "s", blobs, "s", CopyOptions{})
	blobs.record(t)
	back := local.New(t.TempDir())
	copied(t, blobs, "s", back, "s", CopyOptions{})
	if proven, all := proofs(t, back); proven < all || all == 0 {
		t.Errorf("%d of %d segments are proven", proven, all)
	}

	// Without a checksum at first, none later.
	none, twice := local.New(t.TempDir()), local.New(t.TempDir())
	copied(t, blobs.Container, "s", none, "s", CopyOptions{})
	again := summed{&storetest.Container{}, map[string]string{}}
	copied(t, none, "s", again, "s", CopyOptions{})
	again.record(t)
	copied(t, again, "s", twice, "s", CopyOptions{})
	if proven, all := proofs(t, twice); proven > 0 || all == 0 {
		t.Errorf("%d of %d segments are proven, without a checksum at first", proven, all)
	}

	// Damage.
	for name, b := range objects(t, &blobs.Mem) {
		if _, id, ok := cloud.ParseBlobName(path.Base(name)); ok && id.IsBulk() {
			b[len(b)/2] ^= 1
			blobs.Put(name, b)
			break
		}
	}
	_, err := opened(t, blobs, "s").Copy(t.Context(), local.New(t.TempDir()), "s", CopyOptions{})
	if _, ok := errors.AsType[*format.CorruptError](err); !ok {
		t.Errorf("damage was copied: %v", err)
	}
	s, to := opened(t, blobs, "s"), local.New(t.TempDir())
	s.r.trust = asStored
	if _, err := s.Copy(t.Context(), to, "s", CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	if proven, all := proofs(t, to); proven != all-1 {
		t.Errorf("%d of %d segments are proven, expected all but one", proven, all)
	}
}

// TestACleanupInAzureKeepsWhatIsProven rewrites archives. What the MD5 proved is proven afterwards, what
// was doubtful stays so, and a segment with another MD5 ends the cleanup before anything is removed.
func TestACleanupInAzureKeepsWhatIsProven(t *testing.T) {
	first := &storetest.Container{}
	copied(t, fixture(t, "cleanup-pending"), "s", first, "s", CopyOptions{})
	moved := ""
	for _, damaged := range []bool{false, true} {
		blobs := summed{first.Clone(), map[string]string{}}
		blobs.record(t)
		if damaged {
			b := bytes.Clone(blobs.Get(moved))
			b[len(b)-1] ^= 1
			blobs.Put(moved, b)
		}
		before := objects(t, &blobs.Mem)
		err := cloudVerbs["cleanup"](t.Context(), blobs)
		if damaged {
			if err == nil || !strings.Contains(err.Error(), "MD5") {
				t.Errorf("damage was moved: %v", err)
			}
			for name := range before {
				if blobs.Get(name) == nil {
					t.Errorf("%s is gone", name)
				}
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		blobs.record(t)
		back := local.New(t.TempDir())
		copied(t, blobs, "s", back, "s", CopyOptions{})
		if proven, all := proofs(t, back); proven < all || all == 0 {
			t.Errorf("%d of %d segments are proven", proven, all)
		}
		for name := range objects(t, &blobs.Mem) {
			if _, id, ok := cloud.ParseBlobName(path.Base(name)); ok && before[name] == nil {
				for old := range before { // where it was before
					if strings.HasSuffix(old, "."+id.String()) {
						moved = old
					}
				}
			}
		}
		if moved == "" {
			t.Fatal("nothing was rewritten")
		}
	}
	unproven := summed{first.Clone(), map[string]string{}} // nothing has an MD5
	if err := cloudVerbs["cleanup"](t.Context(), unproven.Container); err != nil {
		t.Fatal(err)
	}
	unproven.record(t)
	back := local.New(t.TempDir())
	copied(t, unproven, "s", back, "s", CopyOptions{})
	if proven, all := proofs(t, back); proven == all || all == 0 {
		t.Errorf("%d of %d segments are proven, though nothing proved those that were moved", proven, all)
	}
}
