package caf
import ("testing";"strings";"fmt";"sync/atomic";"time"
"github.com/holdall/holdall/format"
"github.com/holdall/holdall/store/storetest")
func TestProbe(t *testing.T) {
	d := strings.Repeat("0f", 32)
	for _, index := range []string{
		`{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":9},"b":{"start_byte":11,"end_byte":10}}}`,
		`{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":4},"c":{"start_byte":5,"end_byte":9},"b":{"start_byte":11,"end_byte":10}}}`,
		`{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":9},"a2":{"start_byte":9,"end_byte":10},"a2":{"start_byte":0,"end_byte":4}}}`,
		`{"format_version":"1.0","writer":"me","x":1,"x":[2,],"files":{"a":{"start_byte":0,"end_byte":10,"blake3":"`+d+`"}}}`,
		`{"format_version":"1.0","writer":5,"files":{"a":{"start_byte":0,"end_byte":10,"blake3":"`+d+`","q":[1,],},}}`,
		`{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":9},"b":{"start_byte":9,"end_byte":10`,
		`{"format_version":"1.0","files":{"a":{"start_byte":0,"end_byte":5},"b":{"start_byte":5,"end_byte":9},"c":{"start_byte":9,"end_byte":10`,
	} {
		archive := appendFooter(append([]byte("0123456789"), index...), int64(len(index)))
		plan, err := repair(t.Context(), mem(archive), "x.caf", format.OpenOptions{}, func(format.Problem) {})
		fmt.Printf("%s\n  -> %v edits %d notes %q lost %q\n", index, err, len(plan.Edits), plan.Notes, plan.Lost)
		if err != nil || len(plan.Edits)==0 { continue }
		m := apply(t, archive, plan)
		fmt.Printf("  %q\n", m)
		verify(t.Context(), mem(m), "x.caf", format.OpenOptions{}, func(p format.Problem) { if p.Severity==format.Error { fmt.Println("  LEFT", p.Class, p.Message) } })
		again, err := repair(t.Context(), mem(m), "x.caf", format.OpenOptions{}, func(format.Problem) {})
		fmt.Println("  again", err, len(again.Edits))
	}
	// quadratic
	var b strings.Builder
	b.WriteString(strings.Repeat("x", 200_000))
	at := b.Len()
	b.WriteString(`{"format_version":"1.0","files":{`)
	for i := range 2000 { if i>0 {b.WriteString(",")}; fmt.Fprintf(&b, `"%d":{"start_byte":0,"end_byte":199000,"blake3":"%s"}`, i, d) }
	b.WriteString("}}")
	archive := appendFooter([]byte(b.String()), int64(b.Len()-at))
	var read atomic.Int64
	st := storetest.Fault(mem(archive), func(op, _ string, _, n int64) error { read.Add(n); return nil })
	start := time.Now()
	_, err := repair(t.Context(), st, "x.caf", format.OpenOptions{}, func(format.Problem) {})
	fmt.Println("quadratic", len(archive), read.Load(), err, time.Since(start))
}
