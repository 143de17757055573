package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/testkit"
)

const (
	s3Event     = `{"eventVersion":"2.1","eventName":"%s","s3":{"bucket":{"name":"%s"},"object":{"key":"%s","size":1,"eTag":"e","sequencer":"0"}}}`
	bridgeEvent = `{"version":"0","detail-type":"Object Created","source":"aws.s3","detail":{"version":"0","bucket":{"name":"%s"},"object":{"key":"%s","size":1,"etag":"e"}}}`
)

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func records(all ...string) string { return `{"Records":[` + strings.Join(all, ",") + `]}` }

// TestEventsAreReadAsServicesWriteThem reads notifications and messages around them.
func TestEventsAreReadAsServicesWriteThem(t *testing.T) {
	created := records(fmt.Sprintf(s3Event, "ObjectCreated:Put", "from", "a+b/%C3%A9%2B"))
	want := []string{"from a b/é+"}
	sns := `{"Type":"Notification","Message":` + quoted(created) + `}`
	for what, c := range map[string]struct {
		text string
		want []string
	}{
		"S3":             {created, want},
		"lines":          {created + "\n\r\n " + created, append(want, want...)},
		"one by one":     {created + created, append(want, want...)},
		"array":          {"[" + created + ",\n" + created + "]\n", append(want, want...)},
		"arrays":         {"[" + created + "][]\n[" + created + "]", append(want, want...)},
		"SNS":            {sns, want},
		"SQS":            {`{"MessageId":"1","Body":` + quoted(created) + `}`, want},
		"SNS in SQS":     {`{"Messages":[{"Body":` + quoted(sns) + `}]}`, want},
		"a function":     {`{"Records":[{"eventSource":"aws:sqs","body":` + quoted(sns) + `},{"Sns":{"Message":` + quoted(created) + `}}]}`, append(want, want...)},
		"EventBridge":    {fmt.Sprintf(bridgeEvent, "from", "a+b%20"), []string{"from a+b%20"}},
		"MinIO":          {`{"EventName":"s3:ObjectCreated:Put","Key":"from/x","Records":[` + fmt.Sprintf(s3Event, "s3:ObjectRemoved:Delete", "from", "x") + `]}`, []string{"from x"}},
		"several":        {records(fmt.Sprintf(s3Event, "", "from", "1"), fmt.Sprintf(s3Event, "", "out", "2")), []string{"from 1", "out 2"}},
		"a test":         {`{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"from"}`, nil},
		"none":           {"", nil},
		"no records":     {records(), nil},
		"braces in text": {`{"x":"}\"{[\\","Records":[` + fmt.Sprintf(s3Event, "", "from", "%22%7D") + `]}`, []string{`from "}`}},
	} {
		var got []string
		err := eachEvent(strings.NewReader(c.text), "events", func(bucket, key string) error {
			got = append(got, bucket+" "+key)
			return nil
		})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: found %q, %v, expected %q", what, got, err, c.want)
		}
	}
	deep := created
	for range maxWraps {
		deep = `{"Message":` + quoted(deep) + `}`
	}
	for bad, at := range map[string]string{"x": "0", created + "\n1": fmt.Sprint(len(created)), `{"Records":`: "0", `{"a":1}`: "0", `{"Records":1}`: "0", `{"Records":[{"s3":{}}]}`: "0",
		records(fmt.Sprintf(s3Event, "", "from", "%zz")): "0", "{\"Message\":\"\xff\"}": "0", `{"Message":"x"}`: "0", `{"Body":"{"}`: "0", deep: "0", `{"a":"` + strings.Repeat("x", maxEvents) + `"}`: "0", "}": "0"} {
		err := eachEvent(strings.NewReader(bad), "events", func(string, string) error { return nil })
		if err == nil || !strings.HasPrefix(err.Error(), "events at "+at+": ") {
			t.Errorf("%.60q: %v, expected an error at %s", bad, err, at)
		}
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte(records(fmt.Sprintf(s3Event, "ObjectCreated:Put", "from", "a+b"))))
	f.Add([]byte(`[` + fmt.Sprintf(bridgeEvent, "from", "x") + `,{"Body":` + quoted(records()) + `}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		err := eachEvent(bytes.NewReader(b), "events", func(bucket, key string) error {
			if n++; bucket == "" {
				t.Errorf("%q names no bucket", key)
			}
			return nil
		})
		if err == nil && n > len(b) {
			t.Errorf("%d objects in %d bytes", n, len(b))
		}
	})
}

// TestPlansAreMadeOfEvents checks that each object of an event is requested once, whatever the events say of it,
// and that nothing else is.
func TestPlansAreMadeOfEvents(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	for i := range 30 {
		s.quiet(fmt.Sprintf("in/%02d", i))
	}
	s.quiet("out/1")
	with := spec
	with.Sources = []string{"s3://from/in"}
	s.packs(with)
	for _, key := range []string{"in/05", "in/new", "in/a b"} {
		s.put(key, 100)
	}
	s.S3.Remove("from", "in/06")
	var first, second strings.Builder
	for _, key := range []string{"in/05", "in/new", "in/new", "in/06", "in/07", "out/1", "in/created+and+removed", "in/"} {
		fmt.Fprintln(&first, records(fmt.Sprintf(s3Event, "ObjectCreated:Put", "from", key)))
	}
	fmt.Fprintln(&first, records(fmt.Sprintf(s3Event, "ObjectCreated:Put", "another", "in/08")))
	fmt.Fprintln(&second, records(fmt.Sprintf(s3Event, "ObjectRemoved:Delete", "from", "in/a+b")))
	with.Events = []string{s.file("first.json", first.String()), s.file("second.json", second.String())}
	with.Tell = func(path string, err error) { t.Errorf("%s: %v", path, err) }
	asked := map[string]int{}
	var p Planned
	s.sees(func(r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/from") {
			asked[r.URL.Path+r.URL.Query().Get("list-type")]++
		}
	}, func() { p = s.plan(with) })
	if p.Objects != 3 || p.Known != 1 || p.Missing != 0 || p.Skipped != (Skipped{Vanished: 2, Outside: 3}) {
		t.Errorf("planned %+v", p)
	}
	if len(asked) != 6 || asked["/from/in/new"] != 1 || asked["/from/in/06"] != 1 {
		t.Errorf("requested %v", asked)
	}
	if sum := s.work(WorkOptions{}); sum.Objects != 3 {
		t.Errorf("packed %+v", sum)
	}
	for l, err := range s.B.Between(t.Context(), "", "", nil) {
		if err != nil || l.Missing {
			t.Errorf("%+v, %v", l, err)
		}
	}
	if p := s.plan(with); p.Objects != 0 || p.Known != 4 {
		t.Errorf("planned again: %+v", p)
	}
	for _, bad := range []Spec{{List: "x"}, {Inventory: "x"}, {Only: []string{"x"}}, {Sources: []string{"s3://from/in", "s3://out"}}} {
		bad.Sources, bad.Target, bad.Events = append(bad.Sources, "s3://from/in"), "s3://out/x.caf", with.Events
		if _, err := bad.planned(); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	with.Sources, with.Target = []string{t.TempDir()}, "s3://out/disk.caf"
	if _, err := MakePlan(t.Context(), s.f, with, nil); err == nil || !strings.Contains(err.Error(), "expected a bucket of S3") {
		t.Errorf("found %v", err)
	}
}

// many records an archive of that many files of the source.
func (s *site) many(n int) {
	s.T.Helper()
	rows := func(yield func(catalog.Location, error) bool) {
		for i := range n {
			if !yield(catalog.Location{Path: fmt.Sprintf("old/%09d", i), Kind: 0, Size: 1, Raw: true, Off: int64(i), ETag: `"00000000000000000000000000000000"`}, nil) {
				return
			}
		}
	}
	if _, err := s.B.Add(s.T.Context(), catalog.Addition{Archive: catalog.Archive{Address: "s3://out/many.caf", Format: "caf", Size: 1 << 40, Version: "v", Roots: s.job().roots()}, Rows: rows}); err != nil {
		s.T.Fatal(err)
	}
}

// TestFewNamesAreLookedUp checks that a plan of a few events does not read a large catalogue, and that one of many
// does not look each up.
func TestFewNamesAreLookedUp(t *testing.T) {
	testkit.Serial(t)
	s := newSite(t)
	s.quiet("first")
	s.packs(spec)
	const n = 100_000
	s.many(n)
	s.reopen()
	count := func(keys int) (pages, all int) {
		var b strings.Builder
		for i := range keys {
			fmt.Fprintln(&b, records(fmt.Sprintf(s3Event, "", "from", fmt.Sprintf("old/%09d", i*(n/keys)))))
		}
		with := spec
		with.Events = []string{s.file("events.json", b.String())}
		s.sees(func(r *http.Request) {
			if all++; strings.Contains(r.URL.Path, "/runs/") {
				pages++
			}
		}, func() {
			for _, packed := range []bool{false, true} {
				if p := s.plan(with); p.Known != int64(keys) && packed || p.Objects+p.Known != int64(keys) && !packed {
					t.Errorf("%d keys: %+v", keys, p)
				}
				s.reopen()
			}
		})
		return pages, all
	}
	for i := range 1000 {
		s.S3.Put("from", fmt.Sprintf("old/%09d", i*(n/1000)), []byte("x"))
	}
	if few, _ := count(5); few > 2*5+2 {
		t.Errorf("%d requests for 5 names", few)
	}
	few := 0
	s.sees(func(r *http.Request) {
		if strings.Contains(r.URL.Path, "/runs/") {
			few++
		}
	}, func() {
		if sum := s.work(WorkOptions{}); sum.Objects != 5 {
			t.Errorf("packed %+v", sum)
		}
	})
	if few > 5+2 {
		t.Errorf("%d requests to pack 5 objects", few)
	}
	if many, _ := count(1000); many > 2*(n/int(rowsRead)+10) {
		t.Errorf("%d requests for 1000 names", many)
	}
}
