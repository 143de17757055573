package bytemap

import (
	"encoding/json"
	"io"

	"github.com/holdall/holdall/format"
)

// maxTold is the number of the largest spans in JSON.
const maxTold = 200

type jsonMap struct {
	Size     int64            `json:"size"`
	Uses     map[string]Share `json:"uses"`
	Volumes  []jsonVolume     `json:"volumes"`
	Largest  []jsonSpan       `json:"largest"`
	Outside  int64            `json:"outside"`
	Shared   int64            `json:"shared_runs"`
	SharedBy int64            `json:"sharing_files"`
	Parity   string           `json:"parity,omitempty"`
	Unproven *Unproven        `json:"unproven,omitempty"`
}

type jsonVolume struct {
	Name     string             `json:"name"`
	Size     int64              `json:"size"`
	Uses     map[string]Share   `json:"uses"`
	Exact    bool               `json:"exact"`
	CellSize int64              `json:"cell_size"`
	Cells    map[string][]int64 `json:"cells"` // bytes by use
	Spans    []int64            `json:"cell_spans"`
}

type jsonSpan struct {
	Volume string `json:"volume"`
	Off    int64  `json:"offset"`
	Len    int64  `json:"length"`
	Use    string `json:"use"`
	Label  string `json:"label,omitempty"`
	Files  int64  `json:"files,omitempty"` // number of files that share it
}

// JSON writes the map as JSON to w: the totals and, for each volume, the bytes of each use in
// each cell. Names are escaped with format.Escape.
func (m *Map) JSON(w io.Writer) error {
	out := jsonMap{Size: m.size(), Uses: m.Totals.byName(), Volumes: []jsonVolume{}, Largest: []jsonSpan{}, Outside: m.Outside, Shared: m.Shared, SharedBy: m.SharedBy, Parity: format.Escape(m.Parity)}
	if m.Unproven.Files > 0 {
		out.Unproven = &m.Unproven
	}
	for _, v := range m.Volumes {
		jv := jsonVolume{
			Name: format.Escape(v.Name), Size: v.Size, Uses: v.Totals.byName(), Exact: v.Exact,
			CellSize: v.CellSize, Cells: map[string][]int64{}, Spans: []int64{},
		}
		for _, c := range v.Cells {
			jv.Spans = append(jv.Spans, c.Spans)
		}
		for u, share := range v.Totals {
			if share.Bytes == 0 {
				continue
			}
			bytes := make([]int64, len(v.Cells))
			for i, c := range v.Cells {
				bytes[i] = c.Bytes[u]
			}
			jv.Cells[Use(u).String()] = bytes
		}
		out.Volumes = append(out.Volumes, jv)
	}
	for _, s := range m.Largest[:min(len(m.Largest), maxTold)] {
		out.Largest = append(out.Largest, jsonSpan{format.Escape(s.Volume), s.Off, s.Len, s.Use.String(), format.Escape(s.Label), s.Files})
	}
	return json.NewEncoder(w).Encode(out)
}

func (t Totals) byName() map[string]Share {
	shares := map[string]Share{}
	for u, share := range t {
		if share != (Share{}) {
			shares[Use(u).String()] = share
		}
	}
	return shares
}
