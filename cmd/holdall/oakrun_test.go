package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// oakRun is what "oak-run help" lists.
var oakRun = strings.Fields(`
backup check checkpoints clusternodes compact composite-prepare console create-test-garbage
datastore datastore-copy datastorecacheupgrade datastorecheck debug documentstore-check explore export
flatfile frozennoderefsbyscanning frozennoderefsusingindex garbage help history index index-diff
index-merge index-store iotrace json-index persistentcache purge-index-versions rdbddldump recover-journal
recovery repair resetclusterid restore revisions search-nodes segment-copy server
tarmkdiff threaddump tika unlockupgrade upgrade
`)

// The table of the page has each command of oak-run once, and names only verbs that exist.
func TestTheTableOfOakRunIsComplete(t *testing.T) {
	page, err := os.ReadFile("../../docs/oak.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "\n## The commands of oak-run\n")
	if !ok {
		t.Fatal("the page has no such table")
	}
	verbs := map[string]bool{}
	eachVerb(t, func(cmd *cobra.Command) { verbs[strings.TrimPrefix(cmd.CommandPath(), "holdall ")] = true })
	row := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (.*?) \\| (\\w+) \\| (.*?) \\|$")
	var listed []string
	for _, m := range row.FindAllStringSubmatch(table, -1) {
		listed = append(listed, m[1])
		for _, v := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(m[2], -1) {
			if !verbs[v[1]] {
				t.Errorf("%s: there is no %q", m[1], v[1])
			}
		}
		switch m[3] {
		case "has", "better":
			if m[2] == "" {
				t.Errorf("%s: by which verb?", m[1])
			}
		case "missing", "elsewhere":
		default:
			t.Errorf("%s: %q", m[1], m[3])
		}
	}
	if !slices.Equal(listed, oakRun) {
		t.Errorf("the page has\n%q, expected\n%q", listed, oakRun)
	}
}
