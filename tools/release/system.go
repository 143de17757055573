package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/apk"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

const (
	home    = "https://github.com/holdall/holdall"
	summary = "Pack many small files into few archives, and read each file alone"
	about   = summary + "\nholdall packs, lists, reads, verifies, repairs, converts, mounts and serves\narchives of many small files: on disk, over HTTP and in buckets."
)

// systemPackages makes the packages of Linux distributions.
func (r *release) systemPackages(b built, d docs) error {
	if b.os != "linux" {
		return nil
	}
	for _, p := range []struct {
		packager               nfpm.Packager
		zsh, license, license3 string
	}{
		{deb.Default, "/usr/share/zsh/vendor-completions/_holdall", "/usr/share/doc/holdall/copyright", "/usr/share/doc/holdall/THIRD_PARTY_LICENSES"},
		{rpm.DefaultRPM, "/usr/share/zsh/site-functions/_holdall", "/usr/share/licenses/holdall/LICENSE", "/usr/share/licenses/holdall/THIRD_PARTY_LICENSES"},
		{apk.Default, "/usr/share/zsh/site-functions/_holdall", "/usr/share/licenses/holdall/LICENSE", "/usr/share/licenses/holdall/THIRD_PARTY_LICENSES"},
	} {
		put := []file{
			{"/usr/bin/holdall", 0o755, b.command},
			{p.license, 0o644, d.license},
			{p.license3, 0o644, licenseTexts(b.modules)},
			{"/usr/share/doc/holdall/README.md", 0o644, d.read},
		}
		for _, c := range d.completions {
			switch c.name {
			case "holdall.bash":
				c.name = "/usr/share/bash-completion/completions/holdall"
			case "_holdall":
				c.name = p.zsh
			case "holdall.fish":
				c.name = "/usr/share/fish/vendor_completions.d/holdall.fish"
			default:
				continue
			}
			put = append(put, c)
		}
		for _, page := range d.pages {
			small, err := gzipped(page.data)
			if err != nil {
				return err
			}
			put = append(put, file{"/usr/share/man/man1/" + page.name + ".gz", 0o644, small})
		}
		if err := r.systemPackage(p.packager, b, put); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) systemPackage(p nfpm.Packager, b built, put []file) error {
	info := &nfpm.Info{
		Name: "holdall", Version: r.version, Release: "1", Arch: b.arch, Platform: "linux",
		Section: "utils", Priority: "optional", Maintainer: "The holdall developers <" + home + ">",
		Description: about, Vendor: "holdall", Homepage: home, License: "Apache-2.0",
		MTime: r.date, DisableGlobbing: true,
	}
	info.Recommends = []string{"fuse3"} // for holdall mount
	info.RPM.BuildHost = "localhost"
	info.RPM.Summary = summary
	dir, err := os.MkdirTemp("", "holdall-package-") // nfpm reads files of a disk
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, f := range byName(put) {
		at := filepath.Join(dir, f.name)
		if err := os.MkdirAll(filepath.Dir(at), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(at, f.data, 0o666); err != nil {
			return err
		}
		info.Contents = append(info.Contents, &files.Content{Source: at, Destination: f.name, FileInfo: &files.ContentFileInfo{Mode: f.mode, MTime: r.date}})
	}
	info = nfpm.WithDefaults(info)
	name := p.ConventionalFileName(info)
	if err := nfpm.PrepareForPackager(info, strings.TrimPrefix(filepath.Ext(name), ".")); err != nil {
		return err
	}
	var out bytes.Buffer
	if err := p.Package(info, &out); err != nil {
		return err
	}
	return r.write(name, out.Bytes())
}
