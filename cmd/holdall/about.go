package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/format"
)

// version, commit and date are set by a release. Other builds use what Go
// recorded about them.
var version, commit, date string

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  args(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			type module struct {
				Module  string `json:"module"`
				Version string `json:"version"`
			}
			v := struct {
				Version      string   `json:"version"`
				Commit       string   `json:"commit,omitempty"`
				Date         string   `json:"date,omitempty"`
				Go           string   `json:"go"`
				Platform     string   `json:"platform"`
				Dependencies []module `json:"dependencies,omitempty"`
			}{versionString(), cmp.Or(commit, recorded("vcs.revision")), cmp.Or(date, recorded("vcs.time")), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, nil}
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, m := range info.Deps {
					if m.Replace != nil {
						m = m.Replace
					}
					v.Dependencies = append(v.Dependencies, module{m.Path, m.Version})
				}
			}
			a.tell(v, func() { fmt.Fprintf(a.out, "holdall %s (%s, %s)\n", v.Version, v.Go, v.Platform) })
			return nil
		},
	}
}

// recorded returns what Go recorded about the build under a key, or "".
func recorded(key string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == key {
				return s.Value
			}
		}
	}
	return ""
}

func versionString() string {
	if version != "" {
		return version
	}
	if r := recorded("vcs.revision"); r != "" {
		return "devel " + r[:min(12, len(r))]
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		if v := info.Main.Version; v != "" && v != "(devel)" {
			return v
		}
	}
	return "devel"
}

func (a *app) formatsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "formats [FORMAT]",
		Short: "List the formats and what each can do",
		Long: `Lists what each format can do, and what it keeps of an entry:

` + formatTable() + `

holdall recognises the format of an archive by its bytes. --as sets it. With
FORMAT, it prints what that is, and its flags.`,
		Args: args(0, 1, "at most one format"),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				f := format.All().ByName(args[0])
				if f == nil {
					return usage("unknown format %q", args[0])
				}
				return describeFormat(a.out, f, min(columnsOf(a.stdout), 100))
			}
			type able struct {
				Name       string   `json:"name"`
				Title      string   `json:"title"`
				Extensions []string `json:"extensions"`
				Views      []string `json:"views,omitempty"`
				Can        []string `json:"can"`
				Keeps      []string `json:"keeps"`
			}
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			if !a.json {
				fmt.Fprintln(w, "FORMAT\tFILES\tCAN\tKEEPS\t")
			}
			for _, f := range format.All() {
				x := able{f.Name, f.Title, f.Extensions, f.Views, abilities(f), keeps(f)}
				if a.json {
					a.printJSON(x)
					continue
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t\n", f.Name, strings.Join(f.Extensions, " "), strings.Join(x.Can, " "), strings.Join(x.Keeps, " "))
			}
			return w.Flush()
		},
	}
}

func abilities(f *format.Format) []string {
	var can []string
	for _, c := range []struct {
		word string
		ok   bool
	}{
		{"read", f.Open != nil}, {"write", f.Create != nil}, {"convert", f.FromZarr != nil}, {"chunks", f.Chunked}, {"verify", f.Verify != nil},
		{"repair", f.Repair != nil}, {"change", f.Amend != nil},
	} {
		if c.ok {
			can = append(can, c.word)
		}
	}
	return can
}

func keeps(f *format.Format) []string {
	words := []string{"names"}
	for _, k := range []struct {
		k    format.Keeps
		word string
	}{
		{format.KeepsModes, "modes"}, {format.KeepsTimes, "times"}, {format.KeepsOwners, "owners"}, {format.KeepsDirs, "folders"},
		{format.KeepsSymlinks, "symlinks"}, {format.KeepsHardLinks, "hardlinks"}, {format.KeepsFifos, "fifos"}, {format.KeepsDigests, "digests"}, {format.KeepsProperties, "properties"}, {format.KeepsHeaders, "headers"},
	} {
		if f.Keeps&k.k != 0 {
			words = append(words, k.word)
		}
	}
	return words
}
