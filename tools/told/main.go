// Told passes on what 'go test -json' prints, as go test prints it without -json, and appends to a
// file how long the slowest tests took.
//
//	go test -json ./... | told FILE
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// An event is a line of test2json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64
}

// shown is how many tests are listed.
const shown = 8

func main() {
	if err := run(os.Stdin, os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "told:", err)
		os.Exit(1)
	}
}

func run(r io.Reader, w io.Writer, file string) error {
	var slow []event
	said := map[[2]string]*strings.Builder{} // what tests have printed that have not ended
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) == 0 && err != nil {
			break
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			w.Write(line) // go itself reports what does not build
			continue
		}
		key := [2]string{e.Package, e.Test}
		switch e.Action {
		case "output":
			if e.Test == "" { // the result of a package, or what it prints outside of tests
				if e.Output != "PASS\n" {
					io.WriteString(w, e.Output)
				}
				continue
			}
			if said[key] == nil {
				said[key] = &strings.Builder{}
			}
			said[key].WriteString(e.Output)
		case "fail":
			if s := said[key]; s != nil {
				io.WriteString(w, s.String())
			}
			fallthrough
		case "pass", "skip":
			if s := said[key]; s != nil && e.Action == "skip" && strings.Contains(s.String(), "HOLDALL_REQUIRE") {
				io.WriteString(w, s.String())
			}
			delete(said, key)
			if e.Test == "" && e.Action == "fail" { // a crash leaves tests without a result
				for k, s := range said {
					if k[0] == e.Package {
						io.WriteString(w, s.String())
					}
				}
			}
			if e.Test != "" && !strings.Contains(e.Test, "/") && e.Elapsed >= 1 {
				slow = append(slow, e)
			}
		}
	}
	slices.SortFunc(slow, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	for _, e := range slow[:min(len(slow), shown)] {
		fmt.Fprintf(out, "           %5.0f s  %s %s\n", e.Elapsed, e.Package[strings.LastIndexByte(e.Package, '/')+1:], e.Test)
	}
	return out.Close()
}
