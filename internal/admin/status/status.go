// Package status renders the status page for the operator on call: one snapshot of a gateway, in
// HTML.
//
//	history := status.NewHistory(bounds)
//	history.Add(sample) // every Step, by one goroutine
//	...
//	s := status.Snapshot{At: time.Now(), Traffic: history.Traffic(sample), Log: log.Entries()}
//	page, err := status.Render(status.Page{Snapshot: s})
//
// The package imports no other of the program except i18n: internal/app fills the snapshot. The
// page needs no other file. Its script keeps it up to date, but the page works without a script.
package status

import (
	"time"

	"fastdfs-gateway/internal/i18n"
)

// Snapshot is the state of a gateway, and of its fleet as far as the gateway knows it, at one
// moment. Texts may have any content: the page escapes them.
type Snapshot struct {
	At      time.Time
	Version string
	Started time.Time
	Config  string // file
	Listen  string // addresses for files
	// NotReady is the reason for which requests cannot be served; empty = none.
	NotReady i18n.Text
	// Sandbox is a problem of the sandbox; empty = none.
	Sandbox i18n.Text
	Setup   []i18n.Text // problems of the configuration on this host
	Panics  int64       // contained since the start: bugs
	Process []Fact
	// Certificates are the certificates of the listeners, by name.
	Certificates []Certificate

	Traffic   Traffic
	Fleet     *Fleet   // nil = this gateway is in no fleet
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
	Name, Value i18n.Text
}

// Certificate is a certificate that clients receive.
type Certificate struct {
	Name    string
	Expires time.Time
}

// Fleet is the state of the gateways that share a Redis.
type Fleet struct {
	Redis     string // addresses
	RedisDown bool
	Gateways  []Gateway // by name; at least this gateway
}

// Gateway is one gateway of a fleet.
type Gateway struct {
	Name string
	Self bool
	Live bool
	Seen time.Time // last heartbeat
	// Share is the part of all files that the gateway owns, from 0 to 1; negative = it owns none,
	// since other gateways cannot reach it.
	Share        float64
	OtherSecret  bool         // it does not have the [peer] secret of this one
	Announcement Announcement // zero = none was received
}

// State is the health of a server, a budget or a gateway.
type State uint8

// The states. Idle is the state of a server or budget that has not been used yet.
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
	Group   string // of a storage; Unlisted = unknown
	Address string
	State   State
	Text    i18n.Text     // describes the state
	Latency time.Duration // to the first byte, a mean; 0 = unknown
	P95     time.Duration // 0 = unknown
	Replies int
	Error   string // the last error; empty = none
	ErrorAt time.Time
}

// Unlisted is the group of storages that only file ids name.
const Unlisted = "named by file ids"

// Budget is the use of a limited resource of the gateway, such as memory for files.
type Budget struct {
	Name      i18n.Text
	Used, Max int64 // bytes, or a count
	Count     bool  // Used and Max are a count
	Note      i18n.Text
	State     State
	Text      i18n.Text // describes the state if it is not Good
}

// Share returns the used part of Max, from 0 to 1.
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
	Segments uint64 // segments that several requests shared
	Largest  int64  // most requests for one segment
	Saved    uint64 // downloads that were avoided
	Running  int64  // segments being fetched
}

// Setting is a key of the configuration with the value in use.
type Setting struct {
	Name    string    // section.key
	Value   i18n.Text // secrets are masked
	Default bool      // the configuration does not set the key
	Doc     string    // in English
}
