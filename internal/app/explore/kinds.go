package explore

import (
	"path"
	"slices"
	"strings"
	"sync"
)

// A kind is the type of a file's content, according to its name. Maps have a
// colour for each kind, and lists have an icon.
type kind uint8

// The page's colours have the same order.
const (
	otherKind kind = iota
	pictureKind
	soundKind
	filmKind
	textKind
	codeKind
	dataKind
	documentKind
	packedKind
	arrayKind
	programKind
	kinds
)

var kindNames = [kinds]string{"other", "pictures", "audio", "video", "text", "code", "data", "documents", "packed", "arrays", "programs"}

// extensions are the file name extensions of each kind.
var extensions = [kinds]string{
	pictureKind:  "avif bmp cr2 dng exr gif heic ico jpeg jpg jxl nef png psd raw svg tga tif tiff webp dcm dzi",
	soundKind:    "aac aif aiff flac m4a mid mp3 oga ogg opus wav wma",
	filmKind:     "avi flv m2ts m4v mkv mov mp4 mpeg mpg ogv webm wmv",
	textKind:     "adoc asc log me md org readme rst rtf srt tex text txt vtt license",
	codeKind:     "asm bat c cc cfg clj cmake conf cpp cs css cu cxx d dart diff el ex f90 fs go gradle groovy h hpp hs html htm ini java jl js jsp jsx kt less lua m makefile mjs ml mod nim nix patch php pl po proto ps1 py r rb rs sass scala scss sh sql sum swift tcl tf toml ts tsx vim vue xsd xsl yaml yml zig",
	dataKind:     "arrow avro bson csv dat db feather geojson ipynb json jsonl jsonld ldb map msgpack ndjson npy npz orc parquet pb pkl sqlite sst tfrecord tsv ucl xml zattrs zgroup zmetadata zarray",
	documentKind: "djvu doc docx epub key numbers odp ods odt otf pages pdf ppt pptx ps ttf woff woff2 xls xlsx",
	packedKind:   "7z br bz2 caf cab deb dmg gz iso jar lz lz4 lzma rar rpm rvn sz tar tbz tgz txz war whl xz z zip zst",
	arrayKind:    "fits h5 hdf hdf5 mat nc nii nwb pt pth safetensors zarr",
	programKind:  "a apk bin class com dll dylib elf exe ko lib msi o obj pdb pyc pyd so wasm",
}

// bareNames are names without an extension that tell the kind.
var bareNames = []string{"license", "makefile", "readme"}

var kindOfExtension = sync.OnceValue(func() map[string]kind {
	all := map[string]kind{}
	for k, list := range extensions {
		for ext := range strings.FieldsSeq(list) {
			all[ext] = kind(k)
		}
	}
	return all
})

func kindOf(name string) kind {
	name = path.Base(name)
	ext := strings.ToLower(name)
	if i := strings.LastIndexByte(ext, '.'); i >= 0 {
		ext = ext[i+1:]
	} else if !slices.Contains(bareNames, ext) {
		ext = ""
	}
	if k, ok := kindOfExtension()[ext]; ok {
		return k
	}
	switch {
	case isChunk(name):
		return arrayKind
	case strings.Contains(strings.ToLower(name), ".so."):
		return programKind
	}
	return otherKind
}

// isChunk reports whether name has the form of Zarr's names of chunks: 0.12.3.
func isChunk(name string) bool {
	for n := range strings.SplitSeq(name, ".") {
		if n == "" || strings.Trim(n, "0123456789") != "" {
			return false
		}
	}
	return true
}

func isShown(name string) bool {
	switch ext := path.Ext(name); len(ext) {
	case 4:
		return slices.Contains([]string{".png", ".jpg", ".gif", ".svg"}, strings.ToLower(ext))
	case 5:
		return slices.Contains([]string{".jpeg", ".webp", ".avif"}, strings.ToLower(ext))
	}
	return false
}
