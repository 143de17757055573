package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdall/holdall/internal/oak"
)

func (a *app) oakFindCommand() *cobra.Command {
	var where []string
	var glob, after string
	var limit int
	cmd := &cobra.Command{
		Use:   "find STORE [PATH]",
		Short: "Search for nodes by their properties",
		Long: `Lists the nodes at and below PATH that all conditions hold of, in stored order.
A condition is a property that is there, NAME, or is not, !NAME; or NAME, an
operator and a value: = != < <= > >=, or ~ for a part of a text. Numbers and
dates are compared as such, binaries by their length; of several values one is
enough, and of != none may be equal. A day is its beginning in UTC.

--json has the properties of each node. --after goes on behind a node that was
listed. The exit code is 1 if nothing is found, or if damage hides a node.`,
		Example: `  holdall oak find segmentstore /content --where 'jcr:primaryType=cq:Page' --where 'cq:lastModified>2026-01-01'
  holdall oak find segmentstore --where 'jcr:data>100000000'
  holdall oak find segmentstore / --name '*.pdf' --where jcr:primaryType=dam:Asset`,
		Args: args(1, 2, "a store and the path of a node"),
		RunE: a.onTree(func(ctx context.Context, t *oak.Tree, args []string) error {
			if limit < 0 {
				return usage("--limit: expected a number that is not negative")
			}
			o := oak.FindOptions{After: after, Properties: a.json}
			for _, s := range where {
				w, err := oak.ParseWhere(s)
				if err != nil {
					return &usageError{err}
				}
				o.Where = append(o.Where, w)
			}
			if glob != "" {
				match, err := globMatcher(glob, false)
				if err != nil {
					return &usageError{err}
				}
				o.Name = match
			}
			return a.oakFind(ctx, t, argOr(args, 1, "/"), o, limit)
		}),
	}
	cmd.Flags().StringArrayVar(&where, "where", nil, "a condition: NAME, !NAME, NAME=VALUE, NAME>VALUE and so on; may be repeated")
	cmd.Flags().StringVar(&glob, "name", "", "only nodes of such a name, as of find")
	cmd.Flags().StringVar(&after, "after", "", "go on behind the node of this path")
	cmd.Flags().IntVar(&limit, "limit", 0, "stop after so many nodes; 0 is all")
	return cmd
}

func (a *app) oakFind(ctx context.Context, t *oak.Tree, name string, o oak.FindOptions, limit int) error {
	found, lost := 0, 0
	for f, err := range t.Find(ctx, name, o) {
		if err != nil {
			return err
		}
		if f.Lost != "" {
			lost++
			a.warn("%s: %s", printable(f.Path), printable(f.Lost))
			continue
		}
		a.tell(f, func() { a.out.WriteString(printable(f.Path) + "\n") })
		if found++; found == limit {
			break
		}
	}
	return cmp.Or(answer(lost > 0), answer(found == 0))
}

func (a *app) oakIndexesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "indexes STORE [PATH]",
		Short: "List the definitions of indexes, with what they take",
		Long: `Lists the definitions of indexes at and below PATH (usual /oak:index): type, the
lane that keeps it up to date, how often it was made anew, nodes, and bytes of
records, of binaries in the store and of binaries in a data store.

The files of a Lucene index are files in the view of files: 'holdall extract
--view files STORE oak:index/NAME -C DIR' writes them.`,
		Example: "  holdall oak indexes segmentstore\n  holdall oak indexes segmentstore /\n  holdall extract --view files segmentstore oak:index/lucene/:data -C files",
		Args:    args(1, 2, "a store and the path of a node"),
		RunE: a.onTree(func(ctx context.Context, t *oak.Tree, args []string) error {
			lost := false
			if !a.json {
				fmt.Fprintf(a.out, "%10s  %10s  %10s  %9s  %-10s  %-14s  %6s  path\n", "records", "binaries", "external", "nodes", "type", "async", "made")
			}
			err := each(t.Indexes(ctx, argOr(args, 1, oak.IndexesPath)), func(x oak.QueryIndex) error {
				lost = lost || x.Lost > 0 || x.Problem != ""
				note := x.Problem
				if x.Reindex && note == "" {
					note = "to be made anew"
				}
				a.tell(x, func() {
					fmt.Fprintf(a.out, "%10s  %10s  %10s  %9d  %-10s  %-14s  %6d  %s%s\n", a.humanSize(x.Records), a.humanSize(x.Binaries), a.humanSize(x.External), x.Nodes,
						printable(x.Type), printable(cmp.Or(x.Async, "-")), x.ReindexCount, printable(x.Path), ifAny(" (%s)", note))
				})
				return nil
			})
			return cmp.Or(err, answer(lost))
		}),
	}
}
