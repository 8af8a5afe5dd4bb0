// Package status is the page that a person on call looks at: one snapshot of a gateway, and its
// rendering in HTML.
//
//	history := status.NewHistory(bounds)
//	history.Add(sample) // every Step, by one goroutine
//	...
//	s := status.Snapshot{At: time.Now(), Traffic: history.Traffic(sample), Log: log.Entries()}
//	err := status.Render(w, status.Page{Snapshot: s})
//
// The package knows no other of the program: internal/app fills the snapshot. The page needs no
// other file and no script; with its script it stays up to date by itself.
package status

import (
	"time"

	"fastdfs-gateway/internal/i18n"
)

// Snapshot is the state of a gateway and of what it knows of its fleet at one moment. Texts may be
// anything: the page escapes them.
type Snapshot struct {
	At      time.Time
	Version string
	Started time.Time
	Config  string // file
	Listen  string // addresses for files
	// NotReady is why requests cannot be served; empty = they can.
	NotReady i18n.Text
	// Sandbox is a problem of the sandbox; empty = none.
	Sandbox i18n.Text
	Panics  int64 // contained since the start: bugs
	Process []Fact
	// Certificates are those of the listeners, by name.
	Certificates []Certificate

	Traffic   Traffic
	Fleet     *Fleet   // nil = this gateway is alone
	Trackers  []Server // in the order of the configuration
	Storages  []Server // by group
	Budgets   []Budget
	Caching   []Fact
	Locks     []Lock
	Coalesced Coalesced
	Log       []Entry // the newest first
	Settings  []Setting
}

// Fact is a name and a value.
type Fact struct {
	Name  i18n.Text
	Value string
}

// Certificate is one that clients see.
type Certificate struct {
	Name    string
	Expires time.Time
}

// Fleet is the gateways that share a Redis.
type Fleet struct {
	Redis     string // addresses
	RedisDown bool
	Gateways  []Gateway // by name; of this gateway at least
}

// Gateway is one of a fleet.
type Gateway struct {
	Name string
	Self bool
	Live bool
	Seen time.Time // last heartbeat
	// Share is the part of all files that it owns, from 0 to 1; negative = it owns none, since
	// other gateways cannot reach it.
	Share        float64
	Announcement Announcement // zero = it has told nothing
}

// State is how well something does.
type State uint8

// The states. Idle is for what has not been used yet.
const (
	Good State = iota
	Idle
	Warn
	Bad
)

// String returns "good", "idle", "warn" or "bad": the names of CSS classes.
func (s State) String() string {
	return [...]string{"good", "idle", "warn", "bad"}[min(s, Bad)]
}

// Server is a tracker or a storage.
type Server struct {
	Group   string // of a storage; Unlisted = none is known
	Address string
	State   State
	Text    i18n.Text     // says the state
	Latency time.Duration // to the first byte, a mean; 0 = unknown
	P95     time.Duration // 0 = unknown
	Replies int
	Error   string // the last one; empty = none
	ErrorAt time.Time
}

// Unlisted is the group of storages that only file ids name.
const Unlisted = "named by file ids"

// Budget is what a store of the gateway uses of the room that it may take.
type Budget struct {
	Name      i18n.Text
	Used, Max int64 // bytes, or a count
	Count     bool  // Used and Max are a count
	Note      i18n.Text
	State     State
	Text      i18n.Text // says the state where it is not Good
}

// Share is Used of Max, from 0 to 1.
func (b Budget) Share() float64 {
	if b.Max <= 0 {
		return 0
	}
	return min(max(float64(b.Used)/float64(b.Max), 0), 1)
}

// Lock is a lock that this gateway holds or waits for.
type Lock struct {
	Key     string
	Waiting bool
	Holder  string // empty = unknown, or this gateway
	Since   time.Time
	TTL     time.Duration // 0 = unknown
}

// Coalesced counts coalesced requests: several for one segment while it was being fetched.
type Coalesced struct {
	Segments uint64 // that several requests shared
	Largest  int64  // requests of one
	Saved    uint64 // downloads that were not made
	Running  int64  // segments being fetched
}

// Setting is a key of the configuration with the value in use.
type Setting struct {
	Name    string    // section.key
	Value   i18n.Text // secrets are masked
	Default bool      // it was not written
	Doc     string    // in English
}
