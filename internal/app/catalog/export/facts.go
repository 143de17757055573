package export

import (
	"context"
	"encoding/json"
	"fmt"
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

var factTables = []string{
	`CREATE TABLE recordings (file_path TEXT PRIMARY KEY, nwb_version TEXT NOT NULL, identifier TEXT NOT NULL, description TEXT NOT NULL, start_time TEXT NOT NULL, session_id TEXT NOT NULL, experiment_description TEXT NOT NULL,
		experimenter TEXT NOT NULL, institution TEXT NOT NULL, lab TEXT NOT NULL, keywords TEXT NOT NULL, subject_id TEXT NOT NULL, species TEXT NOT NULL, strain TEXT NOT NULL, genotype TEXT NOT NULL, sex TEXT NOT NULL,
		age TEXT NOT NULL, date_of_birth TEXT NOT NULL, weight TEXT NOT NULL, subject_description TEXT NOT NULL, missing TEXT NOT NULL)`,
	`CREATE TABLE devices (file_path TEXT NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL, description TEXT NOT NULL, manufacturer TEXT NOT NULL)`,
	`CREATE INDEX devices_of ON devices (file_path)`,
	`CREATE TABLE series (file_path TEXT NOT NULL, path TEXT NOT NULL, type TEXT NOT NULL, shape TEXT NOT NULL, dtype TEXT NOT NULL, unit TEXT NOT NULL, conversion DOUBLE PRECISION, rate DOUBLE PRECISION, timestamps BIGINT, duration DOUBLE PRECISION, error TEXT NOT NULL)`,
	`CREATE INDEX series_of ON series (file_path)`,
}

// forget removes the facts of all files, or of those that a condition says.
func (x *exporter) forget(ctx context.Context, where string, args ...any) (err error) {
	for _, table := range []string{"recordings", "devices", "series"} {
		if x.facts && err == nil {
			err = x.exec(ctx, "DELETE FROM "+table+where, args...)
		}
	}
	return err
}

// say writes the facts of a file. A database without any has no tables of them.
func (x *exporter) say(ctx context.Context, l catalog.Location) error {
	for _, sql := range factTables {
		if x.facts {
			break
		}
		if err := x.exec(ctx, sql); err != nil {
			return err
		}
	}
	x.facts = true
	f, err := facts.Parse(l)
	if err != nil {
		f = &facts.Facts{Missing: []string{err.Error()}}
	}
	s, who := f.Session, hierarchy.Subject{}
	if f.Subject != nil {
		who = *f.Subject
	}
	err = x.insert(ctx, "recordings", l.Path, f.Version, s.Identifier, s.Description, s.StartTime, s.ID, s.Experiment, list(s.Experimenter), s.Institution, s.Lab, list(s.Keywords),
		who.ID, who.Species, who.Strain, who.Genotype, who.Sex, who.Age, who.DateOfBirth, who.Weight, who.Description, list(f.Missing))
	for i := 0; i < len(f.Devices) && err == nil; i++ {
		d := f.Devices[i]
		err = x.insert(ctx, "devices", l.Path, d.Name, d.Type, d.Description, d.Manufacturer)
	}
	for i := 0; i < len(f.Series) && err == nil; i++ {
		s := f.Series[i]
		err = x.insert(ctx, "series", l.Path, s.Path, s.Type, list(s.Shape), s.DType, s.Unit, number(s.Conversion), number(s.Rate), number(s.Timestamps), number(s.Duration), s.Error)
	}
	return err
}

func (x *exporter) insert(ctx context.Context, table string, values ...any) error {
	var places []string
	for i, v := range values {
		if s, ok := v.(string); ok {
			values[i] = format.Escape(s)
		}
		places = append(places, fmt.Sprintf("$%d", i+1))
	}
	return x.exec(ctx, "INSERT INTO "+table+" VALUES ("+strings.Join(places, ", ")+")", values...)
}

// list returns a list as JSON, or an empty text.
func list[T any](all []T) string {
	if len(all) == 0 {
		return ""
	}
	b, _ := json.Marshal(all) // of texts and numbers
	return string(b)
}

func number[T any](v *T) any {
	if v == nil {
		return nil
	}
	return *v
}
