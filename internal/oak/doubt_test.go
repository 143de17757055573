package oak

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/oak/internal/segment"
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
