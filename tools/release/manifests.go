package main

import (
	"bytes"
	"embed"
	"io/fs"
	"strings"
	"text/template"
	"time"
)

//go:embed templates
var templates embed.FS

// asset is the archive of a target, as the manifests of package managers refer to it.
type asset struct{ File, URL, SHA256, Dir string }

// manifests fills in the templates of package managers, such as formulas, each in its own folder.
func (r *release) manifests(subjects []subject) error {
	assets := map[string]*asset{} // by system-machine
	for _, t := range r.targets {
		for _, s := range subjects {
			if name := r.archiveName(t); s.name == name {
				assets[t.os+"-"+t.arch] = &asset{name, home + "/releases/download/v" + r.version + "/" + name, s.sum, r.stem(t)}
			}
		}
	}
	about := map[string]any{
		"Version": r.version, "Home": home, "Summary": summary, "Date": r.date.UTC().Format(time.DateOnly), "Assets": assets,
	}
	return fs.WalkDir(templates, "templates", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(name, ".tmpl") {
			return err
		}
		t, err := template.New(e.Name()).Funcs(template.FuncMap{"upper": strings.ToUpper}).Option("missingkey=zero").ParseFS(templates, name)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := t.Execute(&out, about); err != nil {
			return err
		}
		if strings.TrimSpace(out.String()) == "" {
			return nil // nothing is built for it
		}
		return r.write("manifests/"+strings.TrimSuffix(strings.TrimPrefix(name, "templates/"), ".tmpl"), out.Bytes())
	})
}
