package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// file is one file in an archive or a package.
type file struct {
	name string
	mode fs.FileMode
	data []byte
}

// built has the files of one target.
type built struct {
	target
	command []byte
	modules []module // linked into the command
}

// docs are the files that are delivered with every command.
type docs struct {
	pages         []file // manual pages, by their names
	completions   []file // as the archives name them
	license, read []byte
}

func (r *release) artefacts() error {
	fmt.Fprintf(os.Stderr, "release: holdall %s, commit %s of %s\n", r.version, r.commit, r.date.Format(time.DateOnly))
	work, err := os.MkdirTemp("", "holdall-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	host := target{runtime.GOOS, runtime.GOARCH}
	commands := map[target]string{}
	for _, t := range append([]target{host}, r.targets...) {
		if commands[t] == "" {
			commands[t] = filepath.Join(work, t.os+"-"+t.arch, t.program())
			if err := r.build(t, commands[t]); err != nil {
				return err
			}
		}
	}
	docs, err := r.docs(commands[host], work)
	if err != nil {
		return err
	}
	var all []built
	for _, t := range r.targets {
		b := built{target: t}
		if b.modules, err = r.modules(t); err != nil {
			return err
		}
		if b.command, err = os.ReadFile(commands[t]); err != nil {
			return err
		}
		for _, step := range []func() error{
			func() error { return r.archive(b, docs) },
			func() error { return r.systemPackages(b, docs) },
			func() error { return r.wheel(t, commands[t]) },
			func() error { return r.npm(b, docs) },
		} {
			if err := step(); err != nil {
				return fmt.Errorf("%s: %w", t, err)
			}
		}
		all = append(all, b)
	}
	if err := r.npmChooser(docs); err != nil {
		return err
	}
	if r.python != "" {
		if err := r.wheels("any"); err != nil {
			return err
		}
	}
	if err := r.image(all, docs); err != nil {
		return err
	}
	if err := r.bill(all); err != nil {
		return err
	}
	subjects, err := r.sums()
	if err != nil {
		return err
	}
	if err := r.manifests(subjects); err != nil {
		return err
	}
	if err := r.indexes(subjects); err != nil {
		return err
	}
	if err := r.provenance(all, subjects); err != nil {
		return err
	}
	subjects, err = r.sums() // with all of these
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, s := range subjects {
		fmt.Fprintf(&list, "%s  %s\n", s.sum, s.name)
	}
	return r.write("SHA256SUMS", []byte(list.String()))
}

// goCommand returns a go command that runs in the source, for a target.
func (r *release) goCommand(t target, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = r.source
	cmd.Env = append(os.Environ(), "GOOS="+t.os, "GOARCH="+t.arch, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off",
		"GOAMD64=v1", "GOARM64=v8.0", "GORISCV64=rva20u64", "GOEXPERIMENT=")
	return cmd
}

func (r *release) build(t target, to string) error {
	fmt.Fprintln(os.Stderr, "release: build", t)
	flags := fmt.Sprintf("-s -w -buildid= -X main.version=%s -X main.commit=%s -X main.date=%s", r.version, r.commit, r.date.UTC().Format(time.RFC3339))
	_, err := output(r.goCommand(t, "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", to, "./cmd/holdall"))
	return err
}

// docs runs the command of this machine to get its manual pages and completions.
func (r *release) docs(command, work string) (d docs, err error) {
	dir := filepath.Join(work, "man")
	if _, err := output(exec.Command(command, "man", dir)); err != nil {
		return d, err
	}
	pages, err := os.ReadDir(dir)
	if err != nil {
		return d, err
	}
	for _, p := range pages {
		text, err := os.ReadFile(filepath.Join(dir, p.Name()))
		if err != nil {
			return d, err
		}
		d.pages = append(d.pages, file{p.Name(), 0o644, text})
	}
	for _, c := range [][2]string{{"bash", "holdall.bash"}, {"zsh", "_holdall"}, {"fish", "holdall.fish"}, {"powershell", "holdall.ps1"}} {
		script, err := output(exec.Command(command, "completion", c[0]))
		if err != nil {
			return d, err
		}
		d.completions = append(d.completions, file{c[1], 0o644, []byte(script + "\n")})
	}
	if d.license, err = os.ReadFile(filepath.Join(r.source, "LICENSE")); err != nil {
		return d, err
	}
	d.read, err = os.ReadFile(filepath.Join(r.source, "README.md"))
	return d, err
}

// archive makes the archive of a target: everything in one folder.
func (r *release) archive(b built, d docs) error {
	top := r.stem(b.target)
	files := []file{
		{top + "/" + b.program(), 0o755, b.command},
		{top + "/LICENSE", 0o644, d.license},
		{top + "/README.md", 0o644, d.read},
		{top + "/THIRD_PARTY_LICENSES", 0o644, licenseTexts(b.modules)},
	}
	for _, c := range d.completions {
		files = append(files, file{top + "/completions/" + c.name, c.mode, c.data})
	}
	for _, p := range d.pages {
		files = append(files, file{top + "/man/man1/" + p.name, p.mode, p.data})
	}
	pack := tarGz
	if b.os == "windows" {
		pack = zipOf
	}
	data, err := pack(files, r.date)
	if err != nil {
		return err
	}
	return r.write(r.archiveName(b.target), data)
}

func (r *release) stem(t target) string {
	return fmt.Sprintf("holdall_%s_%s_%s", r.version, t.os, t.arch)
}

func (r *release) archiveName(t target) string {
	if t.os == "windows" {
		return r.stem(t) + ".zip"
	}
	return r.stem(t) + ".tar.gz"
}

// wheel makes the wheel of a target, which includes its command, if there are wheels for the
// target.
func (r *release) wheel(t target, command string) error {
	if r.python == "" {
		return nil
	}
	if t.arch == "riscv64" || t.os == "freebsd" {
		fmt.Fprintf(os.Stderr, "release: no wheel for %s: the pure one is for it\n", t)
		return nil
	}
	return r.wheels("--command", command, t.String())
}

func (r *release) wheels(args ...string) error {
	_, err := output(exec.Command(r.python, append([]string{filepath.Join(r.source, "python", "build"), "-o", r.out}, args...)...))
	return err
}

// subject is a file of the release.
type subject struct{ name, sum string }

// sums returns all files that are directly in the folder.
func (r *release) sums() (all []subject, err error) {
	names, err := os.ReadDir(r.out)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if n.IsDir() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(r.out, n.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, subject{n.Name(), sumOf(data)})
	}
	return all, nil
}

func sumOf(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// write writes a file of the release.
func (r *release) write(name string, data []byte) error {
	name = filepath.Join(r.out, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}

func (r *release) writeJSON(name string, what any) error { return r.write(name, toJSON(what)) }

// toJSON encodes a value made of maps, strings and numbers, all of which JSON supports.
func toJSON(what any) []byte {
	data, err := json.MarshalIndent(what, "", "  ")
	if err != nil {
		panic(err)
	}
	return append(data, '\n')
}

func gzipped(data []byte) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(data); err != nil {
		return nil, err
	}
	err := z.Close()
	return b.Bytes(), err
}

func byName(files []file) []file {
	return slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.name, b.name) })
}
