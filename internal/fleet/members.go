package fleet

import (
	"cmp"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
)

// A record names a gateway in Redis, as a member of the fleet and as the holder of a lease:
//
//	https://10.0.0.7:8887 <hex of 16 bytes>
//
// The second field is the beginning of the HMAC-SHA256 (RFC 2104) of key prefix, line feed and URL,
// under a key derived from the fleet's secret. So a writer of Redis cannot name an address that
// gateways connect to.
const (
	recordKeyInfo = "fdfs-gateway member record v1" // HKDF info
	recordMAC     = 16                              // bytes
	maxRecord     = maxName + 1 + 2*recordMAC
)

// records makes and checks records. The zero value is that of a gateway without peers: it has none,
// and believes none.
type records struct {
	key    []byte
	prefix string // of the keys in Redis
}

func newRecords(o *Options) (records, error) {
	if o.Advertise == "" {
		return records{}, nil
	}
	key, err := hkdf.Key(sha256.New, []byte(o.Secret), nil, recordKeyInfo, sha256.Size)
	if err != nil {
		return records{}, fmt.Errorf("cannot derive the key of member records: %w", err)
	}
	return records{key: key, prefix: o.KeyPrefix}, nil
}

// make is the record of a gateway.
func (r records) make(url string) string {
	if r.key == nil {
		return ""
	}
	return url + " " + hex.EncodeToString(r.mac(url))
}

func (r records) mac(url string) []byte {
	h := hmac.New(sha256.New, r.key)
	_, _ = h.Write([]byte(r.prefix + "\n" + url)) // never fails
	return h.Sum(nil)[:recordMAC]
}

// parse gives the URL of a record; false when it was not made with the secret.
func (r records) parse(record string) (url string, ok bool) {
	url, ok = r.authentic(record)
	if !ok {
		return "", false
	}
	_, err := parsePeer(url)
	return url, err == nil
}

// authentic gives what a record names; false when it was not made with the secret.
func (r records) authentic(record string) (name string, ok bool) {
	name, text, _ := strings.Cut(record, " ")
	mac, err := hex.DecodeString(text)
	return name, r.key != nil && len(record) <= maxRecord && err == nil && hmac.Equal(mac, r.mac(name))
}

// joinTimeout bounds the wait for a gateway to appear in the list that has joined just now.
const joinTimeout = 100 * time.Millisecond

// maxMembers bounds the list of members. The script that gives the list does too.
const maxMembers = 1024

// memberList is the last list of members that could be read.
type memberList struct {
	self string // URL of this gateway, which is always one of them; empty: it has no peers

	mu       sync.Mutex // guards what follows
	revision string     // of the list in Redis
	members  Members
}

func newMemberList(self string) *memberList {
	l := &memberList{self: self}
	l.set("", nil)
	return l
}

// set takes a list.
func (l *memberList) set(revision string, urls []string) {
	if l.self != "" {
		urls = append(slices.Clip(urls), l.self)
	}
	members := NewMembers(urls)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revision, l.members = revision, members
}

func (l *memberList) has(url string) bool {
	_, members := l.get()
	return slices.Contains(members.Names(), url)
}

func (l *memberList) get() (revision string, members Members) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revision, l.members
}

// Rank implements cache.Fleet.
func (f *Fleet) Rank(key string, n int) []string {
	ranked := f.Owners(key, n)
	if i := slices.Index(ranked, f.o.Advertise); i >= 0 {
		ranked[i] = ""
	}
	return ranked
}

// Owners names the first n gateways in rank for the key of an entry.
func (f *Fleet) Owners(key string, n int) []string {
	if f.peerTLS == nil {
		return nil
	}
	_, members := f.members.get()
	if members.Len() == 1 { // this gateway
		return nil
	}
	return members.Rank(key, n)
}

// memberOf is the URL of the member that a record names; empty when it cannot be asked: it is no
// member, its record was not made with the secret, or it is this gateway itself. For one that may
// have just joined, the list is read once more.
func (f *Fleet) memberOf(record string) string {
	url, ok := f.records.parse(record)
	if !ok || url == f.o.Advertise {
		return ""
	}
	if !f.catchUpWithin(joinTimeout, func() bool { return f.members.has(url) }) {
		return ""
	}
	return url
}

// Members are the gateways that own entries. Every gateway with the same list ranks them alike.
type Members struct {
	members []ranked
}

// ranked is one member and the hash of its name.
type ranked struct {
	name string
	hash uint64
}

// NewMembers takes the names of the members in any order.
func NewMembers(names []string) Members {
	m := Members{members: make([]ranked, 0, len(names))}
	for _, name := range names {
		m.members = append(m.members, ranked{name, xxhash.Sum64String(name)})
	}
	slices.SortFunc(m.members, func(x, y ranked) int { return cmp.Compare(x.name, y.name) })
	m.members = slices.Compact(m.members)
	return m
}

// Len is the number of members.
func (m Members) Len() int { return len(m.members) }

// Names lists the members by name.
func (m Members) Names() []string {
	names := make([]string, 0, len(m.members))
	for _, member := range m.members {
		names = append(names, member.name)
	}
	return names
}

// Rank gives the first n members for a key, the owner first, by rendezvous hashing (Thaler and
// Ravishankar: Using name-based mappings to increase hit rates, 1998): each member has a score for
// the key, and the highest scores win. A member that joins or leaves changes the order of the
// others for no key.
func (m Members) Rank(key string, n int) []string {
	n = min(n, len(m.members))
	if n <= 0 {
		return nil
	}
	hash := xxhash.Sum64String(key)
	type scored struct {
		score uint64
		name  string
	}
	best := make([]scored, 0, n+1)
	for _, member := range m.members {
		score := mix(member.hash ^ hash)
		if len(best) == n && score <= best[n-1].score {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, score, func(s scored, score uint64) int {
			return cmp.Compare(score, s.score)
		})
		best = slices.Insert(best, at, scored{score, member.name})[:min(n, len(best)+1)]
	}
	names := make([]string, 0, n)
	for _, s := range best {
		names = append(names, s.name)
	}
	return names
}

// mix spreads each bit of x over all bits of the result (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
