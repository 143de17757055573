package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	xmod "golang.org/x/mod/module"
	zipfile "golang.org/x/mod/zip"
)

const testCommit = "0123456789abcdef0123456789abcdef01234567"

var testDate = time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)

// need finds a program that a test needs, or skips the test. If HOLDALL_REQUIRE lists it,
// it must not be missing.
func need(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if slices.Contains(strings.Fields(os.Getenv("HOLDALL_REQUIRE")), name) {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return path
}

// does runs a command that must succeed, and returns all that it writes.
func does(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parse[T any](t *testing.T, data []byte) (x T) {
	t.Helper()
	if err := json.Unmarshal(data, &x); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	return x
}

// copySource copies what git knows of the source, with changes, and new files.
func copySource(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	list, err := exec.Command("git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, name))
		if err != nil || !info.Mode().IsRegular() {
			continue // deleted, and not committed yet
		}
		at := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, read(t, filepath.Join(root, name)), info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// files has the content of each file below a folder by its name.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			rel, _ := filepath.Rel(dir, name)
			found[filepath.ToSlash(rel)] = string(read(t, name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// untar unpacks a compressed tar, and more that follow it, into a new folder.
func untar(t *testing.T, data []byte) string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return dir
		} else if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(testDate) {
			t.Errorf("%s is of %s, expected the date of the commit", h.Name, h.ModTime)
		}
		at := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(at, 0o777)
		} else if err = os.MkdirAll(filepath.Dir(at), 0o777); err == nil {
			var content []byte
			if content, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(at, content, fs.FileMode(h.Mode).Perm())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRelease makes the release of this machine's kind twice, from two folders, and uses
// everything in it.
func TestRelease(t *testing.T) {
	host := target{runtime.GOOS, runtime.GOARCH}
	if !slices.Contains(allTargets, host) {
		t.Skipf("there is no release for %s", host)
	}
	source := copySource(t)
	made := []release{{source: source}}
	if os.Getenv("HOLDALL_LONG") != "" {
		made = append(made, release{source: copySource(t)})
	}
	var wait sync.WaitGroup
	for i := range made {
		r := &made[i]
		r.commit, r.date, r.targets, r.python = testCommit, testDate, []target{host}, python()
		var err error
		if r.version, err = versionOf(r.source); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "release")
		wait.Go(func() {
			if err := r.make(out); err != nil {
				t.Error(err)
			}
			r.out = out
		})
	}
	if wait.Wait(); t.Failed() {
		return
	}
	r := &made[0]
	files := filesIn(t, r.out)
	var unpacked string
	if host.os != "windows" {
		unpacked = filepath.Join(untar(t, []byte(files[r.archiveName(host)])), r.stem(host))
	} else {
		unpacked = filepath.Join(unzip(t, filepath.Join(r.out, r.archiveName(host))), r.stem(host))
	}
	command := filepath.Join(unpacked, host.program())

	t.Run("has the same bytes from another folder", func(t *testing.T) {
		if len(made) == 1 {
			t.Skip("HOLDALL_LONG makes the release twice")
		}
		again := filesIn(t, made[1].out)
		for name, data := range files {
			if again[name] != data {
				t.Errorf("%s differs", name)
			}
		}
		if len(again) != len(files) {
			t.Errorf("%d files, and then %d", len(files), len(again))
		}
	})
	t.Run("has the sums of its files", func(t *testing.T) {
		listed := 0
		for line := range strings.Lines(files["SHA256SUMS"]) {
			sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
			if got := fmt.Sprintf("%x", sha256.Sum256([]byte(files[name]))); files[name] == "" || got != sum {
				t.Errorf("%s: %s, expected %s", name, sum, got)
			}
			listed++
		}
		for name := range files {
			if !strings.Contains(name, "/") && name != "SHA256SUMS" {
				listed--
			}
		}
		if listed != 0 {
			t.Errorf("SHA256SUMS has %+d files", listed)
		}
	})
	t.Run("has a command that knows its version and what it is made of", func(t *testing.T) { knows(t, command, r, files) })
	t.Run("has licences of all that is linked in", func(t *testing.T) {
		text := string(read(t, filepath.Join(unpacked, "THIRD_PARTY_LICENSES")))
		info, err := buildinfo.ReadFile(command)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range info.Deps {
			if !strings.Contains(text, fmt.Sprintf("\n%s %s: ", m.Path, m.Version)) {
				t.Errorf("no licence of %s %s", m.Path, m.Version)
			}
		}
		if !strings.Contains(text, "The Go Authors") || !strings.Contains(text, "Mozilla Public License Version 2.0") {
			t.Error("texts are missing")
		}
	})
	t.Run("has manual pages that render", func(t *testing.T) {
		pages, err := filepath.Glob(filepath.Join(unpacked, "man", "man1", "*.1"))
		if err != nil || len(pages) < 30 {
			t.Fatalf("%d pages, %v", len(pages), err)
		}
		t.Run("with groff", func(t *testing.T) {
			for _, page := range pages {
				cmd := exec.Command(need(t, "groff"), "-man", "-ww", "-Tutf8", "-P-cbou", page) // without bold
				var says bytes.Buffer
				cmd.Stderr = &says
				out, err := cmd.Output()
				if err != nil || says.Len() > 0 || !bytes.Contains(out, []byte("SYNOPSIS")) {
					t.Errorf("%s: %v %s", page, err, &says)
				}
			}
		})
		t.Run("with mandoc", func(t *testing.T) {
			does(t, exec.Command(need(t, "mandoc"), append([]string{"-Tlint", "-Wwarning"}, pages...)...))
		})
	})
	t.Run("has completions that load", func(t *testing.T) {
		for shell, script := range map[string]string{
			"bash": `source "$1"; complete -p holdall; COMP_WORDS=(holdall verif) COMP_CWORD=1 COMP_LINE="holdall verif" COMP_POINT=13
				_get_comp_words_by_ref() { cur=verif prev=holdall words=("${COMP_WORDS[@]}") cword=1; }
				__start_holdall holdall; echo "found ${COMPREPLY[@]}"`,
			"zsh":  `autoload -U compinit; compinit -D -u; source "$1"; echo "found ${_comps[holdall]} $(whence -w _holdall)"`,
			"fish": `source $argv[1]; echo found (complete -C "holdall verif")`,
		} {
			t.Run("in "+shell, func(t *testing.T) {
				file := map[string]string{"bash": "holdall.bash", "zsh": "_holdall", "fish": "holdall.fish"}[shell]
				args := map[string][]string{"bash": {"--norc", "-c", script, shell}, "zsh": {"-f", "-c", script, shell}, "fish": {"--no-config", "-c", script}}[shell]
				cmd := exec.Command(need(t, shell), append(args, filepath.Join(unpacked, "completions", file))...)
				cmd.Env = append(os.Environ(), "PATH="+unpacked+":"+os.Getenv("PATH"), "HOME="+t.TempDir())
				want := map[string]string{"bash": "found verify", "zsh": "found _holdall _holdall: function", "fish": "found verify"}[shell]
				if out := does(t, cmd); !strings.Contains(out, want) {
					t.Errorf("%s, expected %s", out, want)
				}
			})
		}
	})
	t.Run("has packages that install", func(t *testing.T) {
		if host.os != "linux" {
			t.Skip("they are for Linux")
		}
		t.Run("deb", func(t *testing.T) { knows(t, installDeb(t, r.out), r, files) })
		t.Run("rpm", func(t *testing.T) { knows(t, installRPM(t, r.out), r, files) })
		t.Run("apk", func(t *testing.T) { // tars one after the other, as tar -i reads them
			dir := t.TempDir()
			does(t, exec.Command(need(t, "tar"), "-xzf", one(t, r.out, "*.apk"), "-i", "-C", dir))
			knows(t, filepath.Join(dir, "usr", "bin", "holdall"), r, files)
		})
	})
	t.Run("is a repository of apt", func(t *testing.T) {
		if host.os != "linux" {
			t.Skip("it is for Debian")
		}
		apt, dir := need(t, "apt-get"), t.TempDir()
		web := httptest.NewServer(http.FileServer(http.Dir(r.out)))
		defer web.Close()
		sources := filepath.Join(dir, "sources.list")
		for _, at := range []string{"state/lists/partial", "cache/archives/partial"} {
			if err := os.MkdirAll(filepath.Join(dir, at), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(os.WriteFile(sources, []byte("deb [trusted=yes] "+web.URL+" ./\n"), 0o644), os.WriteFile(filepath.Join(dir, "status"), nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		run := func(args ...string) {
			t.Helper()
			cmd := exec.Command(apt, append([]string{"-o", "Dir::State=" + dir + "/state", "-o", "Dir::State::status=" + dir + "/status", "-o", "Dir::Cache=" + dir + "/cache",
				"-o", "Dir::Etc::sourcelist=" + sources, "-o", "Dir::Etc::sourceparts=-", "-o", "APT::Sandbox::User=", "-o", "Acquire::http::Proxy=DIRECT", "-o", "Acquire::http::Proxy::127.0.0.1=DIRECT"}, args...)...)
			cmd.Dir = dir
			does(t, cmd)
		}
		run("update")
		run("download", "holdall")
		if !bytes.Equal(read(t, one(t, dir, "*.deb")), read(t, one(t, r.out, "*.deb"))) {
			t.Error("apt has another package")
		}
	})
	t.Run("is an index of Python packages", func(t *testing.T) {
		if r.python == "" || host.arch == "riscv64" || host.os == "freebsd" {
			t.Skip("there is no python3 from 3.11 on, or no wheel")
		}
		web, dir := httptest.NewServer(http.FileServer(http.Dir(r.out))), t.TempDir()
		defer web.Close()
		does(t, exec.Command(r.python, "-m", "venv", filepath.Join(dir, "venv")))
		pip := exec.Command(filepath.Join(dir, "venv", "bin", "python"), "-m", "pip", "--isolated", "download", "--no-deps", "--no-cache-dir", "--index-url", web.URL+"/simple/", "-d", dir, "holdall")
		if host.os == "windows" {
			pip.Path = filepath.Join(dir, "venv", "Scripts", "python.exe")
		}
		does(t, pip)
		if !bytes.Equal(read(t, one(t, dir, "*.whl")), read(t, one(t, r.out, "*-none-[^a]*.whl"))) {
			t.Error("pip has another wheel")
		}
	})
	t.Run("has an image", func(t *testing.T) {
		if host.os != "linux" || host.arch == "riscv64" {
			t.Skip("there is none for this machine")
		}
		knows(t, filepath.Join(openImage(t, files), "usr", "bin", "holdall"), r, files)
		unpacked := filesIn(t, tarDir(t, files["holdall_"+r.version+"_image.tar"]))
		for name, data := range files {
			if in, ok := strings.CutPrefix(name, "image/"); ok && unpacked[in] != data {
				t.Errorf("%s differs in the tar", in)
			}
		}
	})
	t.Run("has a wheel with the same command", func(t *testing.T) {
		if r.python == "" {
			t.Skip("there is no python3 from 3.11 on")
		}
		if host.arch == "riscv64" || host.os == "freebsd" {
			t.Skip("there is none for this machine")
		}
		dir := unzip(t, one(t, r.out, "*-none-[^a]*.whl"))
		if !bytes.Equal(read(t, one(t, dir, "holdall-*.data/scripts/"+host.program())), read(t, command)) {
			t.Error("the command differs")
		}
	})
	t.Run("has npm packages that install", func(t *testing.T) {
		dir := t.TempDir()
		npm := exec.Command(need(t, "npm"), "install", "--offline", "--no-audit", "--no-fund", "--omit=optional", "--prefix", dir, "--cache", t.TempDir(),
			filepath.Join(r.out, "holdall-"+r.version+".tgz"), one(t, r.out, fmt.Sprintf("holdall-%s-%s-*.tgz", npmOS[host.os], npmArch[host.arch])))
		npm.Dir = dir
		does(t, npm)
		knows(t, filepath.Join(dir, "node_modules", ".bin", "holdall"), r, files)
		missing := exec.Command(filepath.Join(dir, "node_modules", ".bin", "holdall"), "cat", filepath.Join(dir, "no.zip"), "x")
		if missing.Run(); missing.ProcessState.ExitCode() != 2 {
			t.Errorf("exit code %d, expected that of the command", missing.ProcessState.ExitCode())
		}
	})
	t.Run("has a statement about all of it", func(t *testing.T) {
		s := parse[struct {
			Subject []struct {
				Name   string
				Digest struct{ SHA256 string }
			}
			Predicate struct {
				BuildDefinition struct {
					ResolvedDependencies []struct {
						URI    string
						Digest map[string]string
					}
				}
			}
		}](t, []byte(files["holdall_"+r.version+".intoto.json"]))
		for _, subject := range s.Subject {
			if subject.Digest.SHA256 != fmt.Sprintf("%x", sha256.Sum256([]byte(files[subject.Name]))) {
				t.Errorf("%s has another sum", subject.Name)
			}
		}
		from := s.Predicate.BuildDefinition.ResolvedDependencies
		if len(s.Subject) < 8 || len(from) < 20 || from[0].Digest["gitCommit"] != testCommit {
			t.Errorf("%d subjects, of %d, first %v", len(s.Subject), len(from), from[:1])
		}
	})
	t.Run("can be installed by go install", func(t *testing.T) { goInstall(t, source) })
}

// knows checks what a command says of itself, and compares it with the bill of materials.
func knows(t *testing.T, command string, r *release, files map[string]string) {
	t.Helper()
	says := parse[struct {
		Version, Commit, Date, Go string
		Dependencies              []struct{ Module, Version string }
	}](t, []byte(does(t, exec.Command(command, "version", "--json"))))
	if says.Version != r.version || says.Commit != testCommit || says.Date != "2026-01-02T03:04:06Z" || says.Go != runtime.Version() {
		t.Errorf("%s: version %+v", command, says)
	}
	bill := parse[struct {
		Packages []struct{ Name, VersionInfo, LicenseConcluded string }
	}](t, []byte(files["holdall_"+r.version+".spdx.json"]))
	listed := map[string]string{}
	for _, p := range bill.Packages {
		listed[p.Name] = p.VersionInfo
		if p.LicenseConcluded == "" {
			t.Errorf("%s has no licence", p.Name)
		}
	}
	linked := map[string]string{"holdall": says.Version, std: strings.TrimPrefix(says.Go, "go")}
	for _, d := range says.Dependencies {
		linked[d.Module] = d.Version
	}
	if !maps.Equal(listed, linked) || len(linked) < 20 {
		t.Errorf("the bill of materials lists\n%v, expected\n%v", listed, linked)
	}
}

// one is the one file of a pattern.
func one(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v, expected one file", pattern, found, err)
	}
	return found[0]
}

func unzip(t *testing.T, name string) string {
	t.Helper()
	z, err := zip.OpenReader(name)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	dir := t.TempDir()
	if err := os.CopyFS(dir, z); err != nil {
		t.Fatal(err)
	}
	return dir
}

// tarDir unpacks a tar.
func tarDir(t *testing.T, data string) string {
	t.Helper()
	small, err := gzipped([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return untar(t, small)
}

// installDeb installs the package into a root of its own, or unpacks it if only root could.
func installDeb(t *testing.T, dir string) string {
	root, deb := t.TempDir(), one(t, dir, "*.deb")
	if os.Getuid() != 0 {
		does(t, exec.Command(need(t, "dpkg-deb"), "-x", deb, root))
		return filepath.Join(root, "usr", "bin", "holdall")
	}
	for _, folder := range []string{"info", "updates", "triggers"} {
		if err := os.MkdirAll(filepath.Join(root, "var", "lib", "dpkg", folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "var", "lib", "dpkg", "status"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	dpkg := need(t, "dpkg")
	does(t, exec.Command(dpkg, "--root="+root, "-i", deb))
	if out := does(t, exec.Command(dpkg, "--root="+root, "--verify", "holdall")); out != "" {
		t.Errorf("dpkg --verify: %s", out)
	}
	return filepath.Join(root, "usr", "bin", "holdall")
}

func installRPM(t *testing.T, dir string) string {
	rpm := need(t, "rpm")
	if os.Getuid() != 0 {
		t.Skip("rpm installs only for root")
	}
	root := t.TempDir()
	does(t, exec.Command(rpm, "--root", root, "-i", "--nodeps", "--ignorearch", "--nosignature", one(t, dir, "*.rpm")))
	if out := does(t, exec.Command(rpm, "--root", root, "-V", "--nodeps", "holdall")); out != "" {
		t.Errorf("rpm -V: %s", out)
	}
	return filepath.Join(root, "usr", "bin", "holdall")
}

// openImage follows the layout of the image down to its layer, compares all digests, and
// unpacks it.
func openImage(t *testing.T, files map[string]string) string {
	t.Helper()
	blob := func(d descriptor) []byte {
		data := files["image/blobs/"+strings.Replace(d.Digest, ":", "/", 1)]
		if fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(data))) != d.Digest || len(data) != d.Size {
			t.Fatalf("%+v: %d bytes that differ", d, len(data))
		}
		return []byte(data)
	}
	type index struct{ Manifests []descriptor }
	top := parse[index](t, []byte(files["image/index.json"]))
	all := parse[index](t, blob(top.Manifests[0]))
	if len(top.Manifests) != 1 || len(all.Manifests) != 1 || all.Manifests[0].Platform["architecture"] != runtime.GOARCH {
		t.Fatalf("%v, %v: expected one image, for this machine", top, all)
	}
	manifest := parse[struct {
		Config descriptor
		Layers []descriptor
	}](t, blob(all.Manifests[0]))
	config := parse[struct {
		Config struct {
			User       string
			Entrypoint []string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}](t, blob(manifest.Config))
	if config.Config.User != imageUser || !slices.Equal(config.Config.Entrypoint, []string{"/usr/bin/holdall"}) || len(manifest.Layers) != 1 {
		t.Fatalf("%+v, %+v", manifest, config)
	}
	layer := blob(manifest.Layers[0])
	z, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, z); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("sha256:%x", sum.Sum(nil)); !slices.Equal(config.RootFS.DiffIDs, []string{got}) {
		t.Fatalf("the layer is %s, expected %v", got, config.RootFS.DiffIDs)
	}
	dir := untar(t, layer)
	if !bytes.Contains(read(t, filepath.Join(dir, "etc", "ssl", "certs", "ca-certificates.crt")), []byte("BEGIN CERTIFICATE")) {
		t.Error("no certificates")
	}
	return dir
}

// goInstall installs the command as users do, from the module's zip. Its dependencies come from
// the module cache, which go uses as a second proxy.
func goInstall(t *testing.T, source string) {
	const version = "v0.0.1-check"
	proxy, bin := t.TempDir(), t.TempDir()
	at := filepath.Join(proxy, "github.com", "holdall", "holdall", "@v")
	if err := os.MkdirAll(at, 0o777); err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	if err := zipfile.CreateFromDir(&packed, xmod.Version{Path: "github.com/holdall/holdall", Version: version}, source); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		version + ".zip":  packed.Bytes(),
		version + ".mod":  read(t, filepath.Join(source, "go.mod")),
		version + ".info": fmt.Appendf(nil, `{"Version":%q,"Time":"2026-01-02T03:04:06Z"}`, version),
		"list":            []byte(version + "\n"),
	} {
		if err := os.WriteFile(filepath.Join(at, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	cache := strings.TrimSpace(does(t, exec.Command("go", "env", "GOMODCACHE")))
	install := exec.Command("go", "install", "-trimpath", "github.com/holdall/holdall/cmd/holdall@"+version)
	install.Dir = t.TempDir()
	install.Env = append(os.Environ(), "GOBIN="+bin, "GOMODCACHE="+shadow(t, cache), "GOPROXY=file://"+filepath.ToSlash(proxy)+",file://"+filepath.ToSlash(cache)+"/cache/download",
		"GONOSUMDB=*", "GOSUMDB=off", "GONOPROXY=none", "GOPRIVATE=", "GOVCS=*:off", "GOFLAGS=-mod=mod", "GOWORK=off", "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GORISCV64=rva20u64", "GOEXPERIMENT=")
	does(t, install)
	if out := does(t, exec.Command(filepath.Join(bin, target{os: runtime.GOOS}.program()), "version")); !strings.HasPrefix(out, "holdall "+version+" ") {
		t.Errorf("%s, expected version %s", out, version)
	}
}

// shadow is a module cache with all modules of an existing cache except this one, which a test
// must not put into the user's cache.
func shadow(t *testing.T, cache string) string {
	t.Helper()
	dir := t.TempDir()
	for _, in := range []string{"", "github.com", "cache", "cache/download", "cache/download/github.com"} {
		if err := os.MkdirAll(filepath.Join(dir, in), 0o777); err != nil {
			t.Fatal(err)
		}
		names, err := os.ReadDir(filepath.Join(cache, in))
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if name := filepath.Join(in, n.Name()); !slices.Contains([]string{"github.com", "cache", filepath.FromSlash("cache/download"), filepath.FromSlash("cache/download/github.com")}, name) && n.Name() != "holdall" && n.Name() != "lock" {
				if err := os.Symlink(filepath.Join(cache, name), filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return dir
}

// A run removes what killed runs left beside its output, and nothing that another run still makes.
func TestLeftoversOfKilledRunsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	left, made := filepath.Join(dir, unfinished+"1"), filepath.Join(dir, unfinished+"2")
	for _, name := range []string{left, made} {
		if err := os.MkdirAll(filepath.Join(name, "npm"), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	unlock, err := lock(made)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("folders cannot be locked here")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	r := release{source: dir} // which has nothing to build
	if err := r.make(filepath.Join(dir, "out")); err == nil {
		t.Error("a release of nothing")
	}
	names, err := filepath.Glob(filepath.Join(dir, unfinished+"*"))
	if err != nil || !slices.Equal(names, []string{made}) {
		t.Errorf("%q, %v", names, err)
	}
}

func TestLicencesAreTold(t *testing.T) {
	for text, want := range map[string]string{
		"Apache License\n Version 2.0, January 2004":                               "Apache-2.0",
		"Licensed under the Apache License,\nVersion 2.0":                          "Apache-2.0",
		"Mozilla Public License Version 2.0":                                       "MPL-2.0",
		"Permission is hereby granted,\n free of charge, to any person":            "MIT",
		"Permission to use, copy, modify, and/or distribute this software":         "ISC",
		"Redistribution and use in source and binary forms, with or":               "BSD-2-Clause",
		"Redistribution and use in source and binary forms … endorse or promote …": "BSD-3-Clause",
		"All rights reserved.":                                                     "",
	} {
		if got := strings.Join(licensesOf(text), " "); got != want {
			t.Errorf("%q: %q, expected %q", text, got, want)
		}
	}
}

// TestManifestsOfAllTargets fills in the manifests as for a whole release.
func TestManifestsOfAllTargets(t *testing.T) {
	r := release{out: t.TempDir(), version: "1.2.3", date: testDate, targets: allTargets}
	var subjects []subject
	for i, target := range allTargets {
		subjects = append(subjects, subject{r.archiveName(target), fmt.Sprintf("%064x", i+0xabcdef0)})
	}
	if err := r.manifests(subjects); err != nil {
		t.Fatal(err)
	}
	files := filesIn(t, r.out)
	text := ""
	for name, data := range files {
		text += strings.ToLower(data)
		if strings.Contains(data, "<no value>") || strings.Contains(data, "\n\n\n") {
			t.Errorf("%s:\n%s", name, data)
		}
	}
	for _, s := range subjects {
		used := strings.Contains(text, home+"/releases/download/v1.2.3/"+s.name) && strings.Contains(text, s.sum)
		if want := !strings.Contains(s.name, "freebsd"); used != want {
			t.Errorf("%s is used: %v, expected %v", s.name, used, want)
		}
	}
	scoop := parse[struct {
		Architecture map[string]struct{ URL, Hash, Extract_dir string }
	}](t, []byte(files["manifests/scoop/holdall.json"]))
	if len(scoop.Architecture) != 2 || scoop.Architecture["arm64"].Extract_dir != "holdall_1.2.3_windows_arm64" {
		t.Errorf("scoop: %+v", scoop)
	}
	if out := does(t, exec.Command(need(t, "bash"), "-c", `source "$1"; echo "${arch[@]} ${#source_riscv64[@]}"`, "bash", filepath.Join(r.out, "manifests", "aur", "PKGBUILD"))); out != "x86_64 aarch64 riscv64 1\n" {
		t.Errorf("PKGBUILD: %s", out)
	}
}
