package main

import (
	_ "embed"
	"fmt"
	"strings"
)

// Names of systems and machines in npm.
var (
	npmOS   = map[string]string{"linux": "linux", "darwin": "darwin", "windows": "win32", "freebsd": "freebsd"}
	npmArch = map[string]string{"amd64": "x64", "arm64": "arm64", "riscv64": "riscv64"}
)

//go:embed templates/npm/holdall.js
var npmScript []byte

func npmName(t target) string { return "@holdall/" + npmOS[t.os] + "-" + npmArch[t.arch] }

// npm makes the package of a target, which has only the command.
func (r *release) npm(b built, d docs) error {
	about := r.npmPackage(npmName(b.target))
	about["os"], about["cpu"] = []string{npmOS[b.os]}, []string{npmArch[b.arch]}
	return r.npmWrite(about, []file{
		{"bin/" + b.program(), 0o755, b.command},
		{"LICENSE", 0o644, d.license},
		{"THIRD_PARTY_LICENSES", 0o644, licenseTexts(b.modules)},
	})
}

// npmChooser makes the package that users install. With it, npm installs the package of their
// system.
func (r *release) npmChooser(d docs) error {
	about := r.npmPackage("holdall")
	about["bin"] = map[string]string{"holdall": "bin/holdall.js"}
	needs := map[string]string{}
	for _, t := range allTargets {
		needs[npmName(t)] = r.version
	}
	about["optionalDependencies"] = needs
	return r.npmWrite(about, []file{
		{"bin/holdall.js", 0o755, npmScript},
		{"LICENSE", 0o644, d.license},
		{"README.md", 0o644, d.read},
	})
}

func (r *release) npmPackage(name string) map[string]any {
	return map[string]any{
		"name": name, "version": r.version, "description": summary, "license": "Apache-2.0", "homepage": home,
		"repository": map[string]string{"type": "git", "url": "git+" + home + ".git"},
		"engines":    map[string]string{"node": ">=18"},
	}
}

func (r *release) npmWrite(about map[string]any, files []file) error {
	files = append(files, file{"package.json", 0o644, toJSON(about)})
	for i := range files {
		files[i].name = "package/" + files[i].name
	}
	data, err := tarGz(files, r.date)
	if err != nil {
		return err
	}
	name := strings.NewReplacer("@", "", "/", "-").Replace(about["name"].(string))
	return r.write(fmt.Sprintf("%s-%s.tgz", name, r.version), data)
}
