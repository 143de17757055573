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
	var limit int64
	cmd := &cobra.Command{
		Use:   "find STORE [PATH]",
		Short: "Search for nodes by their properties",
		Long: `Lists the nodes at and below PATH that meet all conditions, in stored order.
The condition NAME requires a property, !NAME its absence. NAME, an operator
and a value compare a property: = != < <= > >=, or ~ for a substring. Numbers
and dates are compared as such, binaries by their length. If a property has
several values, one must match; for != all must differ. A date without a time
is its beginning in UTC.

--json also prints the properties of each node. --after continues after a node
of an earlier listing. The exit code is 1 if nothing is found, or if damage
hides a node.`,
		Example: `  holdall oak find segmentstore /content --where 'jcr:primaryType=cq:PageContent' --where 'cq:lastModified>2026-01-01'
  holdall oak find segmentstore --where 'jcr:data>100000000'
  holdall oak find segmentstore / --name '*.pdf' --where jcr:primaryType=dam:Asset`,
		Args: args(1, 2, "a store and the path of a node"),
		RunE: a.onTree(func(ctx context.Context, t *oak.Tree, args []string) error {
			if limit < 0 {
				return usage("--limit: expected at least 0, found %d", limit)
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
	cmd.Flags().StringArrayVar(&where, "where", nil, "condition: NAME, !NAME, NAME=VALUE, NAME>VALUE and so on; may be repeated")
	cmd.Flags().StringVar(&glob, "name", "", "only nodes whose name matches this GLOB, as in 'holdall find'")
	cmd.Flags().StringVar(&after, "after", "", "continue after the node at this path")
	cmd.Flags().Int64Var(&limit, "limit", 0, "stop after this many nodes; 0 is no limit")
	return cmd
}

func (a *app) oakFind(ctx context.Context, t *oak.Tree, name string, o oak.FindOptions, limit int64) error {
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
		if found++; int64(found) == limit {
			break
		}
	}
	return cmp.Or(answer(lost > 0), answer(found == 0))
}

func (a *app) oakIndexesCommand() *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "indexes STORE [PATH]",
		Short: "List or check indexes",
		Long: `Lists the index definitions at and below PATH (default /oak:index). For each it
prints the type, the async lane, the number of reindexings, the number of
nodes, and the bytes of records, of binaries in the store and of binaries in a
data store. The exit code is 1 if damage hides a part of an index.

--check reads each index completely. The files of a Lucene index must belong
together. A property or reference index must have an entry for each value of
the nodes, and no others; an asynchronous one is compared with the checkpoint of
its lane. --datastore also looks up the binaries that are there. The exit code
is 1 if anything is wrong.

To get the files of a Lucene index, use the files view: 'holdall extract --view
files STORE oak:index/NAME -C DIR'.`,
		Example: "  holdall oak indexes segmentstore\n  holdall oak indexes --check segmentstore /\n  holdall extract --view files segmentstore oak:index/lucene/:data -C files",
		Args:    args(1, 2, "a store and the path of a node"),
		RunE: a.onTree(func(ctx context.Context, t *oak.Tree, args []string) error {
			name := argOr(args, 1, oak.IndexesPath)
			if check {
				return a.oakCheckIndexes(ctx, t, args[0], name)
			}
			lost := false
			if !a.json {
				fmt.Fprintf(a.out, "%10s  %10s  %10s  %9s  %-10s  %-14s  %6s  path\n", "records", "binaries", "external", "nodes", "type", "async", "made")
			}
			err := each(t.Indexes(ctx, name), func(x oak.QueryIndex) error {
				lost = lost || x.Lost > 0 || x.Problem != ""
				note := x.Problem
				if x.Reindex && note == "" {
					note = "to be rebuilt"
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
	cmd.Flags().BoolVar(&check, "check", false, "read each index, and compare it with the nodes")
	return cmd
}

func (a *app) oakCheckIndexes(ctx context.Context, t *oak.Tree, address, name string) (err error) {
	var in oak.Datastore
	if said := a.params["datastore"]; said != "" {
		if in, err = a.datastore(ctx, said); err != nil {
			return err
		}
	}
	found := false
	err = each(t.CheckIndexes(ctx, name, in), func(x *oak.CheckedIndex) error {
		found = found || x.Found > 0
		a.tell(x, func() { a.printCheckedIndex(address, x) })
		return nil
	})
	return cmp.Or(err, answer(found))
}

func (a *app) printCheckedIndex(address string, x *oak.CheckedIndex) {
	fmt.Fprintf(a.out, "%-8s  %s, %s", x.State, printable(x.Path), printable(cmp.Or(x.Type, "no type")))
	switch {
	case x.Entries > 0:
		fmt.Fprintf(a.out, ", %s", count(x.Entries, "entry"))
	case x.Documents > 0:
		fmt.Fprintf(a.out, ", %s", count(x.Documents, "document"))
	}
	fmt.Fprintln(a.out)
	for _, f := range x.Findings[:min(len(x.Findings), mostPrinted)] {
		fmt.Fprintf(a.out, "%s: %s%s: %s\n", f.Kind, printable(f.Path), ifAny(" (%s)", printable(f.Key)), printable(f.Problem))
	}
	a.printMore(x.Found)
	a.notes(x.Notes)
	if x.Found > 0 && !x.Reindex && x.Type != "" {
		fmt.Fprintf(a.out, "to let Oak rebuild it: holdall oak set --type Boolean %s %s reindex true\n", address, printable(x.Path))
	}
}
