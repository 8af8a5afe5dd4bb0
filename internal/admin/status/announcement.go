package status

import (
	"encoding/json"
	"math"
	"time"

	"fastdfs-gateway/internal/i18n"
)

// maxAnnouncement bounds the text of an Announcement in bytes.
const maxAnnouncement = 1024

// Announcement is the state that a gateway publishes for the status pages of other gateways. It has
// no other use: every client of Redis can write one.
type Announcement struct {
	Version    string  `json:"version"`
	Started    int64   `json:"started"` // unix time
	Requests   float64 `json:"requests"`
	HitRatio   float64 `json:"hit_ratio"` // 0 to 1; negative = unknown
	MemoryUsed int64   `json:"memory_used"`
	MemoryMax  int64   `json:"memory_max"`
	DiskUsed   int64   `json:"disk_used"`
	DiskMax    int64   `json:"disk_max"` // 0 = there is none
	State      State   `json:"state"`
	Why        string  `json:"why"` // in English
	WhyChinese string  `json:"why_zh,omitempty"`
}

// Announcement returns the announcement of this gateway.
func (s *Snapshot) Announcement() Announcement {
	v := s.Verdict()
	a := Announcement{
		Version: s.Version, Started: s.Started.Unix(), Requests: s.Traffic.Minute.Requests,
		HitRatio: s.Traffic.Minute.HitRatio, State: v.State, Why: v.Sentence.String(),
		WhyChinese: v.Sentence.In(i18n.Chinese),
	}
	if math.IsNaN(a.HitRatio) {
		a.HitRatio = -1
	}
	for _, b := range s.Budgets {
		switch b.Name.String() {
		case MemoryBudget:
			a.MemoryUsed, a.MemoryMax = b.Used, b.Max
		case DiskBudget:
			a.DiskUsed, a.DiskMax = b.Used, b.Max
		}
	}
	return a
}

// Names of budgets that other gateways show.
const (
	MemoryBudget = "Files of other hosts, memory"
	DiskBudget   = "Files of other hosts, disk"
)

// JSON returns the announcement in maxAnnouncement bytes at most; empty if it does not fit.
func (a Announcement) JSON() string {
	a.Version, a.Why, a.WhyChinese = shorten(a.Version, 64), shorten(a.Why, 200), shorten(a.WhyChinese, 300)
	text, err := json.Marshal(a)
	if err != nil || len(text) > maxAnnouncement {
		return ""
	}
	return string(text)
}

// ParseAnnouncement parses the announcement of another gateway. The result is the zero value if
// that fails.
func ParseAnnouncement(text string) Announcement {
	var a Announcement
	if len(text) > maxAnnouncement || json.Unmarshal([]byte(text), &a) != nil {
		return Announcement{}
	}
	a.State = min(a.State, Bad)
	a.HitRatio = min(a.HitRatio, 1)
	a.Requests = max(a.Requests, 0)
	return a
}

// String returns the reason for the state in English. An announcement can be an argument of an
// i18n.Text.
func (a Announcement) String() string { return a.Why }

// In returns the reason for the state in a language; in English if the gateway has not published a
// translation.
func (a Announcement) In(l i18n.Language) string {
	if l == i18n.Chinese && a.WhyChinese != "" {
		return a.WhyChinese
	}
	return a.Why
}

// Since returns the start time of the gateway; zero if it is unknown.
func (a Announcement) Since() time.Time {
	if a.Started <= 0 {
		return time.Time{}
	}
	return time.Unix(a.Started, 0)
}
