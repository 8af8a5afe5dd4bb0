package fleet

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
)

// A record names a gateway in Redis, as a member of the fleet and as the holder of a lease:
//
//	https://10.0.0.7:8887 <hex of 16 bytes>
//
// The second field is the beginning of the HMAC-SHA256 (RFC 2104) of key prefix, line feed and URL,
// with a key derived from the fleet's secret. So a writer of Redis cannot choose an address that
// gateways connect to.
const (
	recordKeyInfo = "fdfs-gateway member record v" + keyVersion // HKDF info
	recordMAC     = 16                                          // bytes
	maxRecord     = maxName + 1 + 2*recordMAC
)

// records makes and checks records. The zero value is for a gateway without peers: it makes no
// record and accepts none.
type records struct {
	key    []byte
	prefix string // of the keys in Redis
}

// make returns the record of a gateway.
func (r records) make(url string) string {
	if r.key == nil {
		return ""
	}
	h := hmac.New(sha256.New, r.key)
	_, _ = h.Write([]byte(r.prefix + "\n" + url)) // never fails
	return url + " " + hex.EncodeToString(h.Sum(nil)[:recordMAC])
}

// parse returns the name in a record; ok is false if it was not made with the secret.
func (r records) parse(record string) (name string, ok bool) {
	name, _, _ = strings.Cut(record, " ")
	if r.key == nil || len(record) > maxRecord || !hmac.Equal([]byte(record), []byte(r.make(name))) {
		return "", false
	}
	return name, true
}

// maxMembers bounds the list of members and the list of gateways, in the scripts that return them.
const maxMembers = 1024

// memberList is the last list of members that was read. It is immutable.
type memberList struct {
	revision string // of the list in Redis
	Members

	began  string    // identifies the list in Redis; empty = not known yet
	lost   []string  // members of a list that Redis has lost, which have not registered again
	lostAt time.Time // time at which this gateway has found that
}

// setMembers replaces the list. A gateway with peers is always a member itself.
func (f *Fleet) setMembers(revision string, urls []string) {
	if self := f.self.Load(); self.advertise != "" {
		urls = append(slices.Clip(urls), self.advertise)
	}
	next := memberList{}
	if was := f.members.Load(); was != nil {
		next = *was
	}
	next.revision, next.Members = revision, NewMembers(urls)
	next.lost = slices.DeleteFunc(slices.Clone(next.lost), next.Has)
	f.members.Store(&next)
}

// lookForLoss compares the list in Redis with the last one. The members of a list that Redis has
// lost with its data may still serve: purges wait for them.
func (f *Fleet) lookForLoss(began string) {
	was := *f.members.Load()
	if was.began == began {
		return
	}
	next := was
	if next.began = began; was.began != "" {
		next.lost, next.lostAt = append(was.names(), was.lost...), time.Now()
	}
	f.members.Store(&next)
}

// membersOf returns the URLs in the records that were made with the secret.
func (f *Fleet) membersOf(list []string) (urls []string) {
	self := f.self.Load()
	for _, record := range list {
		name, ok := self.records.parse(record)
		_, err := parsePeer(name)
		switch {
		case ok && err == nil:
			urls = append(urls, name)
		case record != "" && self.advertise != "":
			f.warn.Warn("record", "a gateway is no member of this fleet: its record was not made with the secret",
				"record", fmt.Sprintf("%.255s", record), "advice", "give all gateways the same secret in [peer], "+
					"and the same version")
		}
	}
	return urls
}

// Rank implements cache.Fleet.
func (f *Fleet) Rank(key string, n int) []string {
	ranked := f.Owners(key, n)
	if i := slices.Index(ranked, f.self.Load().advertise); i >= 0 {
		ranked[i] = ""
	}
	return ranked
}

// Owners returns the names of the first n gateways in rank for the key of an entry; none if the
// list of members has no other gateway.
func (f *Fleet) Owners(key string, n int) []string {
	members := f.members.Load()
	if len(members.Members) <= 1 { // at most this gateway
		return nil
	}
	return members.Rank(key, n)
}

// shareKeys is the number of keys that Shares ranks: an estimate is off by about half a percent.
const shareKeys = 4096

// Shares estimates the fraction of all entries that each member owns, by name. The result is empty
// for a gateway without peers.
func (f *Fleet) Shares() map[string]float64 {
	shares, members := make(map[string]float64), f.members.Load()
	for i := range shareKeys {
		for _, owner := range members.Rank(strconv.Itoa(i), 1) {
			shares[owner] += 1. / shareKeys
		}
	}
	return shares
}

// joinTimeout bounds the wait until a gateway that has just joined appears in the list.
const joinTimeout = 100 * time.Millisecond

// peerOf returns the URL of the member with a name; empty if that is this gateway, or no member.
// The gateway may have just joined: the list is read again until it has the name, for joinTimeout
// at most.
func (f *Fleet) peerOf(name string) string {
	if _, err := parsePeer(name); err != nil || name == f.self.Load().advertise {
		return ""
	}
	if !f.catchUp(f.life, joinTimeout, func() bool { return f.members.Load().Has(name) }) {
		return ""
	}
	return name
}

// Members are the gateways that own entries. All gateways with the same list rank them alike.
type Members []ranked

// ranked is a gateway and the hash of its name.
type ranked struct {
	name string
	hash uint64
}

// NewMembers returns the Members with these names, in any order.
func NewMembers(names []string) Members {
	var m Members
	for _, name := range names {
		m = append(m, ranked{name, xxhash.Sum64String(name)})
	}
	slices.SortFunc(m, func(x, y ranked) int { return cmp.Compare(x.name, y.name) })
	return slices.Compact(m)
}

// names returns the names of all members.
func (m Members) names() (names []string) {
	for _, x := range m {
		names = append(names, x.name)
	}
	return names
}

// Has reports whether a gateway is a member.
func (m Members) Has(name string) bool {
	return slices.ContainsFunc(m, func(x ranked) bool { return x.name == name })
}

// Rank returns the first n members for a key, the owner first, by rendezvous hashing (Thaler and
// Ravishankar: Using name-based mappings to increase hit rates, 1998): each member has a score for
// the key, and the highest scores win. A member that joins or leaves changes the order of the
// others for no key.
func (m Members) Rank(key string, n int) []string {
	n = min(n, len(m))
	if n <= 0 {
		return nil
	}
	hash := xxhash.Sum64String(key)
	names, scores := make([]string, 0, n+1), make([]uint64, 0, n+1)
	for _, x := range m {
		score := mix(x.hash ^ hash)
		at := sort.Search(len(scores), func(i int) bool { return scores[i] < score })
		if at < n {
			names = slices.Insert(names, at, x.name)
			scores = slices.Insert(scores, at, score)
			names, scores = names[:min(n, len(names))], scores[:min(n, len(scores))]
		}
	}
	return names
}

// mix spreads each bit of x over all bits of the result (the finalizer of SplitMix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
