package fleet

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/testkit"
	"github.com/holdall/holdall/store/storetest/s3test"
)

// left returns the paths that were damaged and are not planned again.
func (s *site) left(p Planned) (left []string) {
	s.T.Helper()
	for _, m := range s.statusOf(p.Plan).Damaged {
		left = append(left, m.Path+" "+string(m.Outcome))
	}
	return left
}

// TestDamageAtTheSourceIsLeftOutAndNamed changes a byte of three objects in
// sixty, so that they differ from the service's checksum. The others are
// packed, these are reported, and nothing records them as packed until they
// are.
func TestDamageAtTheSourceIsLeftOutAndNamed(t *testing.T) {
	for _, k := range []struct {
		name      string
		sums      []string
		encrypts  bool
		noVerify  bool
		format    string
		by        map[string]int64 // counts of packed objects
		unnoticed bool
	}{
		{name: "md5", by: map[string]int64{"md5": 55, "md5_of_parts": 1, "size": 1, "nothing": 0}},
		{name: "md5 of shards", format: "databundle", by: map[string]int64{"md5": 55, "md5_of_parts": 1, "size": 1, "nothing": 0}},
		{name: "crc32", sums: []string{"crc32"}, encrypts: true, by: map[string]int64{"crc32": 55, "crc32_of_parts": 1, "size": 1, "nothing": 0}},
		{name: "crc32c", sums: []string{"crc32c"}, encrypts: true, by: map[string]int64{"crc32c": 55, "crc32c_of_parts": 1, "size": 1, "nothing": 0}},
		{name: "sha1", sums: []string{"sha1"}, encrypts: true, by: map[string]int64{"sha1": 55, "sha1_of_parts": 1, "size": 1, "nothing": 0}},
		{name: "sha256", sums: []string{"sha256"}, by: map[string]int64{"sha256": 55, "sha256_of_parts": 1, "size": 1, "nothing": 0}},
		{name: "crc64nvme", sums: []string{"crc64nvme", "crc32"}, by: map[string]int64{"crc64nvme": 55, "crc64nvme_of_parts": 1, "size": 1, "nothing": 0}},
		{name: "encrypted, without sums", encrypts: true, unnoticed: true, by: map[string]int64{"nothing": 59, "size": 1}},
		{name: "not compared", noVerify: true, unnoticed: true, by: map[string]int64{"nothing": 59, "size": 1}},
	} {
		t.Run(k.name, func(t *testing.T) {
			if k.name != "md5" {
				testkit.Serial(t)
			}
			s := newSite(t)
			s.S3.Sums, s.S3.Encrypts = k.sums, k.encrypts
			for i := range 57 {
				s.put(fmt.Sprintf("%02d", i), 1000*i+1)
			}
			s.put("empty", 0)
			for i, name := range []string{"parts", "sound parts"} {
				s.Want[name] = []byte(strings.Repeat(fmt.Sprintf("%08d", i), 3<<17))
				s.S3.PutParts("from", name, s.Want[name], 2<<20)
			}
			rotten := map[string][]byte{"07": s.Want["07"], "33": s.Want["33"], "parts": s.Want["parts"]}
			rot := func() { // the second call undoes it
				for name := range rotten {
					s.S3.Rot("from", name, 4000)
				}
			}
			rot()
			spec := spec
			spec.ChunkSize = 3 << 20
			if k.format != "" {
				spec.Format, spec.Target = k.format, "s3://out/set.bundle"
			}
			p := s.plan(spec)
			var told []string
			sum := s.work(WorkOptions{Workers: 2, NoVerify: k.noVerify, NoCopy: true, Tell: func(e Event) {
				for _, m := range e.Chunk.Left {
					if m.Outcome != Damaged || !strings.Contains(m.Note, "read twice") {
						t.Errorf("%+v", m)
					}
					told = append(told, m.Path)
				}
			}})
			st := s.statusOf(p.Plan)
			if !maps.Equal(st.Proven, k.by) {
				t.Errorf("proven %v, want %v", st.Proven, k.by)
			}
			if k.unnoticed {
				if sum.Objects != 60 || len(told) != 0 || st.Left[Damaged] != 0 {
					t.Errorf("worked %+v, left %q", sum, told)
				}
				return
			}
			slices.Sort(told)
			if sum.Objects != 57 || sum.Failed != 0 || sum.SetAside != 0 || !slices.Equal(told, []string{"07", "33", "parts"}) {
				t.Errorf("worked %+v, left %q", sum, told)
			}
			if n := len(st.Damaged); n != 3 || st.Left[Damaged] != 3 || st.Objects != 57 || st.Damaged[0].Note == "" {
				t.Errorf("%+v", st)
			}
			if left := s.left(p); !slices.Equal(left, []string{"07 damaged", "33 damaged", "parts damaged"}) {
				t.Errorf("left %q", left)
			}
			for name := range rotten {
				delete(s.Want, name)
			}
			s.Check() // the objects that were left out are in no archive

			// If they are planned again unchanged, they are left out again. Once they are
			// restored, they are packed.
			if p := s.plan(spec); p.Objects != 3 {
				t.Errorf("planned again %+v", p)
			}
			if sum := s.work(WorkOptions{NoCopy: true}); sum.Objects != 0 || sum.Failed != 0 {
				t.Errorf("worked again %+v", sum)
			}
			if left := s.left(p); !slices.Equal(left, []string{"07 damaged", "33 damaged", "parts damaged"}) {
				t.Errorf("left again %q", left)
			}
			rot()
			maps.Copy(s.Want, rotten)
			if p := s.plan(spec); p.Objects != 3 {
				t.Errorf("planned when sound %+v", p)
			}
			if sum := s.work(WorkOptions{NoCopy: true}); sum.Objects != 3 || sum.Failed != 0 {
				t.Errorf("worked when sound %+v", sum)
			}
			if left := s.left(p); left != nil {
				t.Errorf("left in the end %q", left)
			}
			s.Check()
		})
	}
}

// TestLargeObjectsAreCopied checks that objects that the server copies are
// recorded as copied, also among objects that are read, and in a second try.
func TestLargeObjectsAreCopied(t *testing.T) {
	for _, noCopy := range []bool{false, true} {
		if noCopy && testkit.Race() {
			break // others read large objects
		}
		s := newSite(t)
		for i, n := range []int{6 << 20, 1000, 11 << 20, 7 << 20, 0, 300_000} {
			s.put(fmt.Sprintf("%02d", i), n)
		}
		spec := spec
		spec.ChunkSize = 1 << 30
		p := s.plan(spec)
		copies, refused := 0, false
		s.Meet(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Header.Get("X-Amz-Copy-Source") != "" {
				copies++
			}
			if r.Method == http.MethodGet && r.URL.Path == "/from/05" && !refused {
				refused = true
				s3test.Refuse(w, r, http.StatusForbidden, "AccessDenied")
				return true
			}
			return false
		})
		want, least := map[string]int64{"copied": 3, "md5": 2, "size": 1, "nothing": 0}, 6
		if noCopy {
			want, least = map[string]int64{"md5": 5, "size": 1, "nothing": 0}, 0
		}
		if sum := s.work(WorkOptions{NoCopy: noCopy}); sum.Done != 1 || sum.Failed != 1 || sum.Objects != 6 {
			t.Errorf("worked %+v", sum)
		}
		if st := s.statusOf(p.Plan); !maps.Equal(st.Proven, want) || copies < least || noCopy && copies > 0 {
			t.Errorf("proven %v, want %v; %d copies", st.Proven, want, copies)
		}
		s.Check()
	}
}

// TestADamagedVersionIsNotTakenForTheOneThatWasPacked checks an object that is
// packed in an older version and whose newer version is damaged.
func TestADamagedVersionIsNotTakenForTheOneThatWasPacked(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.some(10, 400)
	p := s.plan(spec)
	s.work(WorkOptions{})
	const name = "data/003/00003"
	was := s.Want[name]
	s.put(name, 500)
	s.S3.Rot("from", name, 7)
	s.plan(spec)
	if sum := s.work(WorkOptions{}); sum.Objects != 0 || sum.Done != 1 {
		t.Errorf("worked %+v", sum)
	}
	if left := s.left(p); !slices.Equal(left, []string{name + " damaged"}) {
		t.Errorf("left %q", left)
	}
	s.Want[name] = was
	s.Check()
}
