package export

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/holdall/holdall/format"
	"github.com/holdall/holdall/internal/app/catalog"
	"github.com/holdall/holdall/internal/app/catalog/facts"
	"github.com/holdall/holdall/internal/app/hierarchy"
)

// An exporter writes to a database.
type exporter struct {
	database
	facts bool // it has tables of facts
}

var factTables = []struct {
	name, key string
	columns   []facts.Column
}{
	{"recordings", " PRIMARY KEY", facts.Columns[facts.Facts]()},
	{"devices", "", facts.Columns[hierarchy.Device]()},
	{"series", "", facts.Columns[hierarchy.Series]()},
}

var sqlTypes = map[reflect.Kind]string{reflect.String: "TEXT NOT NULL", reflect.Int64: "BIGINT", reflect.Float64: "DOUBLE PRECISION"}

// forget removes the facts of a file, or all if the path is empty.
func (x *exporter) forget(ctx context.Context, path string) error {
	for _, t := range factTables {
		if !x.facts {
			break
		}
		sql, args := "DELETE FROM "+t.name, []any{}
		if path != "" {
			sql, args = sql+" WHERE file_path = $1", append(args, path)
		}
		if err := x.exec(ctx, sql, args...); err != nil {
			return err
		}
	}
	return nil
}

// say writes the facts of a file. A catalogue without any has no tables of them.
func (x *exporter) say(ctx context.Context, l catalog.Location) error {
	for _, t := range factTables {
		if x.facts {
			break
		}
		sql := "CREATE TABLE " + t.name + " (file_path TEXT NOT NULL" + t.key
		for _, c := range t.columns {
			sql += fmt.Sprintf(`, "%s" %s`, c.Name, sqlTypes[c.Type])
		}
		if err := x.exec(ctx, sql+")"); err != nil {
			return err
		}
		if t.key == "" {
			if err := x.exec(ctx, fmt.Sprintf("CREATE INDEX %s_of ON %s (file_path)", t.name, t.name)); err != nil {
				return err
			}
		}
	}
	x.facts = true
	f, err := facts.Parse(l)
	if err != nil {
		f = &facts.Facts{Error: err.Error()}
	}
	err = x.insert(ctx, "recordings", l.Path, facts.Values(*f))
	for i := 0; i < len(f.Devices) && err == nil; i++ {
		err = x.insert(ctx, "devices", l.Path, facts.Values(f.Devices[i]))
	}
	for i := 0; i < len(f.Series) && err == nil; i++ {
		err = x.insert(ctx, "series", l.Path, facts.Values(f.Series[i]))
	}
	return err
}

func (x *exporter) insert(ctx context.Context, table, path string, values []any) error {
	args, places := []any{format.Escape(path)}, []string{"$1"}
	for _, v := range values {
		if s, ok := v.(string); ok {
			v = format.Escape(s)
		}
		args = append(args, v)
		places = append(places, fmt.Sprintf("$%d", len(args)))
	}
	return x.exec(ctx, "INSERT INTO "+table+" VALUES ("+strings.Join(places, ", ")+")", args...)
}
