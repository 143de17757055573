package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// linked returns the modules of all targets.
func linked(all []built) []module {
	var modules []module
	for _, b := range all {
		for _, m := range b.modules {
			if !slices.ContainsFunc(modules, func(has module) bool { return has.path == m.path }) {
				modules = append(modules, m)
			}
		}
	}
	return modules
}

// purl returns the package URL of a module.
func (m module) purl() string {
	if m.path == std {
		return "pkg:golang/stdlib@" + m.version
	}
	return "pkg:golang/" + strings.ToLower(m.path) + "@" + m.version
}

// bill writes the bill of materials, as SPDX 2.3.
func (r *release) bill(all []built) error {
	type dict = map[string]any
	pack := func(id, name, version, license, purl string) dict {
		return dict{
			"SPDXID": id, "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION", "filesAnalyzed": false,
			"licenseConcluded": license, "licenseDeclared": license, "copyrightText": "NOASSERTION",
			"externalRefs": []dict{{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}},
		}
	}
	packages := []dict{pack("SPDXRef-holdall", "holdall", r.version, "Apache-2.0", "pkg:golang/github.com/holdall/holdall@v"+r.version)}
	relations := []dict{{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": "SPDXRef-holdall"}}
	for i, m := range linked(all) {
		id := fmt.Sprintf("SPDXRef-module-%d", i+1)
		packages = append(packages, pack(id, m.path, m.version, m.license, m.purl()))
		relations = append(relations, dict{"spdxElementId": "SPDXRef-holdall", "relationshipType": "DEPENDS_ON", "relatedSpdxElement": id})
	}
	return r.writeJSON(fmt.Sprintf("holdall_%s.spdx.json", r.version), dict{
		"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": "holdall-" + r.version,
		"documentNamespace": fmt.Sprintf("%s/releases/download/v%s/holdall_%[2]s.spdx.json#%s", home, r.version, r.commit),
		"creationInfo":      dict{"created": r.date.UTC().Format(time.RFC3339), "creators": []string{"Tool: holdall-tools-release"}},
		"packages":          packages, "relationships": relations,
	})
}

// provenance writes the SLSA provenance of the files, as an in-toto statement. It is not signed.
func (r *release) provenance(all []built, subjects []subject) error {
	type dict = map[string]any
	sums, err := goSums(filepath.Join(r.source, "go.sum"))
	if err != nil {
		return err
	}
	var made, from []dict
	for _, s := range subjects {
		made = append(made, dict{"name": s.name, "digest": dict{"sha256": s.sum}})
	}
	commit, _, modified := strings.Cut(r.commit, "-")
	source := dict{"uri": "git+" + home + "@" + r.commit, "digest": dict{"gitCommit": commit}}
	if modified {
		delete(source, "digest")
	}
	from = append(from, source)
	for _, m := range linked(all) {
		material := dict{"uri": m.purl()}
		if sum := sums[m.path+" "+m.version]; sum != "" {
			material["digest"] = dict{"dirHash1": sum}
		} else if m.path != std {
			return fmt.Errorf("go.sum has no sum of %s %s", m.path, m.version)
		}
		from = append(from, material)
	}
	var targets []string
	for _, b := range all {
		targets = append(targets, b.String())
	}
	return r.writeJSON(fmt.Sprintf("holdall_%s.intoto.json", r.version), dict{
		"_type": "https://in-toto.io/Statement/v1", "subject": made, "predicateType": "https://slsa.dev/provenance/v1",
		"predicate": dict{
			"buildDefinition": dict{
				"buildType":            home + "/blob/main/docs/releasing.md",
				"externalParameters":   dict{"commit": r.commit, "version": r.version, "targets": targets},
				"internalParameters":   dict{"go": runtime.Version()},
				"resolvedDependencies": from,
			},
			"runDetails": dict{"builder": dict{"id": home + "/tree/main/tools/release"}},
		},
	})
}

// goSums reads go.sum: the sum of each module, in hexadecimal.
func goSums(name string) (map[string]string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 3 || strings.HasSuffix(f[1], "/go.mod") {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(f[2], "h1:"))
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, f[2], err)
		}
		sums[f[0]+" "+f[1]] = fmt.Sprintf("%x", raw)
	}
	return sums, nil
}
