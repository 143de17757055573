package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// A descriptor is an image's reference to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

const (
	imageIndex    = "application/vnd.oci.image.index.v1+json"
	imageManifest = "application/vnd.oci.image.manifest.v1+json"
	imageConfig   = "application/vnd.oci.image.config.v1+json"
	imageLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
	imageUser     = "65532:65532"
)

// image makes an image for Linux, as a folder and as a tar.
func (r *release) image(all []built, d docs) error {
	layout := map[string][]byte{"oci-layout": toJSON(map[string]string{"imageLayoutVersion": "1.0.0"})}
	blob := func(mediaType string, data []byte) descriptor {
		sum := fmt.Sprintf("%x", sha256.Sum256(data))
		layout["blobs/sha256/"+sum] = data
		return descriptor{MediaType: mediaType, Digest: "sha256:" + sum, Size: len(data)}
	}
	labels := map[string]string{
		"org.opencontainers.image.title":         "holdall",
		"org.opencontainers.image.description":   summary,
		"org.opencontainers.image.url":           home,
		"org.opencontainers.image.source":        home,
		"org.opencontainers.image.documentation": home + "/blob/v" + r.version + "/README.md",
		"org.opencontainers.image.version":       r.version,
		"org.opencontainers.image.revision":      r.commit,
		"org.opencontainers.image.created":       r.date.UTC().Format(time.RFC3339),
		"org.opencontainers.image.licenses":      "Apache-2.0",
	}
	var manifests []descriptor
	for _, b := range all {
		if b.os != "linux" || b.arch != "amd64" && b.arch != "arm64" {
			continue
		}
		layer, err := tarOf(imageFiles(b, d), r.date)
		if err != nil {
			return err
		}
		small, err := gzipped(layer)
		if err != nil {
			return err
		}
		config := blob(imageConfig, toJSON(map[string]any{
			"created": labels["org.opencontainers.image.created"], "os": b.os, "architecture": b.arch,
			"config": map[string]any{
				"User": imageUser, "Entrypoint": []string{"/usr/bin/holdall"}, "WorkingDir": "/home/holdall", "Labels": labels,
				"Env": []string{"PATH=/usr/bin", "HOME=/home/holdall"},
			},
			"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
			"history": []any{map[string]string{"created": labels["org.opencontainers.image.created"], "created_by": "tools/release"}},
		}))
		manifest := blob(imageManifest, toJSON(map[string]any{
			"schemaVersion": 2, "mediaType": imageManifest, "config": config,
			"layers": []descriptor{blob(imageLayer, small)}, "annotations": labels,
		}))
		manifest.Platform = map[string]string{"os": b.os, "architecture": b.arch}
		manifests = append(manifests, manifest)
	}
	if len(manifests) == 0 {
		return nil
	}
	index := blob(imageIndex, toJSON(map[string]any{"schemaVersion": 2, "mediaType": imageIndex, "manifests": manifests, "annotations": labels}))
	index.Annotations = map[string]string{"org.opencontainers.image.ref.name": r.version}
	layout["index.json"] = toJSON(map[string]any{"schemaVersion": 2, "mediaType": imageIndex, "manifests": []descriptor{index}})
	var files []file
	for _, name := range slices.Sorted(maps.Keys(layout)) {
		if err := r.write("image/"+name, layout[name]); err != nil {
			return err
		}
		files = append(files, file{name, 0o644, layout[name]})
	}
	data, err := tarOf(files, r.date)
	if err != nil {
		return err
	}
	return r.write(fmt.Sprintf("holdall_%s_image.tar", r.version), data)
}

// imageFiles returns the files of an image: the command, and those that it needs for network
// connections.
func imageFiles(b built, d docs) []file {
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil { // a file cannot store constraints
			pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	files := []file{
		{"usr/bin/holdall", 0o755, b.command},
		{"usr/share/licenses/holdall/LICENSE", 0o644, d.license},
		{"usr/share/licenses/holdall/THIRD_PARTY_LICENSES", 0o644, licenseTexts(b.modules)},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/sbin/nologin\nholdall:x:65532:65532:holdall:/home/holdall:/sbin/nologin\n")},
		{"etc/group", 0o644, []byte("root:x:0:\nholdall:x:65532:\n")},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, roots.Bytes()},
		{"home/holdall/", fs.ModeDir | fs.ModeSticky | 0o777, nil}, // for any user that the image is run as
		{"tmp/", fs.ModeDir | fs.ModeSticky | 0o777, nil},
	}
	for _, dir := range []string{"etc/", "etc/ssl/", "etc/ssl/certs/", "home/", "usr/", "usr/bin/", "usr/share/", "usr/share/licenses/", "usr/share/licenses/holdall/"} {
		files = append(files, file{dir, fs.ModeDir | 0o755, nil})
	}
	return files
}
