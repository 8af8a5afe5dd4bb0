package tracker

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/fdfs"
)

// Server is a storage of a group.
type Server struct {
	Group  string
	ID     uint32       // storage id; 0 = none
	Host   string       // an address, or a host name from the list of storage ids
	Others []netip.Addr // further addresses of the storage; must not be changed
	Port   int          // 0 = unknown: the default port
	Active bool         // a tracker lists it as active, or no tracker has replied yet
}

// Members are the groups of a cluster and their storages, as last loaded. It is safe for concurrent
// use, without locks, and sends no requests. The zero value is empty.
type Members struct{ current atomic.Pointer[snapshot] }

// snapshot is immutable once it is published.
type snapshot struct {
	known      bool
	partial    bool
	remembered []string
	groups     map[string][]Server
	byID       map[uint32]Server
	byAddr     map[member]Server
}

type member struct {
	group string
	addr  netip.Addr
}

// emptySnapshot is used before the first snapshot; its nil maps are only read.
var emptySnapshot snapshot

func (m *Members) load() *snapshot { return cmp.Or(m.current.Load(), &emptySnapshot) }

// Known reports whether a list has been loaded: from a tracker, or of storage ids.
func (m *Members) Known() bool { return m.load().known }

// Partial reports whether the lists may lack groups and storages of the cluster: the trackers have
// disagreed, have listed other groups than before, or have come back a short time ago.
func (m *Members) Partial() bool { return m.load().partial }

// Remembered returns the groups that no tracker lists any more: a new Client would not have them.
// The list must not be changed.
func (m *Members) Remembered() []string { return m.load().remembered }

// HasGroup reports whether a list has the group.
func (m *Members) HasGroup(group string) bool {
	_, ok := m.load().groups[group]
	return ok
}

// Groups returns the names of the groups, sorted.
func (m *Members) Groups() []string { return slices.Sorted(maps.Keys(m.load().groups)) }

// ByAddr returns the storage of a group with this address.
func (m *Members) ByAddr(group string, addr netip.Addr) (Server, bool) {
	s, ok := m.load().byAddr[member{group, addr.Unmap()}]
	return s, ok
}

// ByID returns the storage with this storage id.
func (m *Members) ByID(id uint32) (Server, bool) {
	s, ok := m.load().byID[id]
	return s, ok
}

// StoragesOf returns the storages of a group, active ones first. The list must not be changed.
func (m *Members) StoragesOf(group string) []Server { return m.load().groups[group] }

// lists are the loaded lists from which a snapshot is made.
type lists struct {
	groups []group
	ids    []fdfs.StorageID
	listed bool // the storages of a group have been loaded

	changed time.Time // of the last load with a reason for partial; zero: there was none
	partial bool      // see Members.Partial
}

type group struct {
	info       fdfs.GroupInfo
	storages   []fdfs.StorageInfo
	remembered bool // no tracker lists it any more
}

func (m *Members) set(l lists) { m.current.Store(l.snapshot()) }

// snapshot merges the lists: the storages in the lists of the trackers, with additions from the
// storage ids, then the storages that only the storage ids have.
func (l lists) snapshot() *snapshot {
	s := &snapshot{
		known: l.listed || len(l.ids) > 0, partial: l.partial, groups: map[string][]Server{}, byID: map[uint32]Server{},
		byAddr: map[member]Server{},
	}
	byID := make(map[uint32]fdfs.StorageID, len(l.ids))
	for _, id := range l.ids {
		byID[id.ID] = id
	}
	ports := map[string]int{}
	for _, g := range l.groups {
		s.groups[g.info.Name], ports[g.info.Name] = nil, g.info.Port
		if g.remembered {
			s.remembered = append(s.remembered, g.info.Name)
		}
		for _, info := range g.storages {
			if server, ok := merge(g.info, info, byID); ok {
				s.addServer(server)
			}
		}
	}
	for _, id := range l.ids {
		if _, listed := s.byID[id.ID]; !listed {
			s.addServer(fromID(id, ports[id.Group], !l.listed))
		}
	}
	for _, list := range s.groups {
		slices.SortStableFunc(list, func(a, b Server) int { return rank(a) - rank(b) })
	}
	return s
}

func rank(s Server) int {
	if s.Active {
		return 0
	}
	return 1
}

// merge returns a storage from the list of a tracker. It returns false if the storage has no
// address yet, or has left its address or the group: another host may have the address now.
func merge(g fdfs.GroupInfo, info fdfs.StorageInfo, byID map[uint32]fdfs.StorageID) (Server, bool) {
	if info.Status == fdfs.StatusDeleted || info.Status == fdfs.StatusIPChanged || !usable(info.Addr) {
		return Server{}, false
	}
	s := Server{Group: g.Name, ID: info.ID, Host: info.Addr.String(), Port: info.Port,
		Active: info.Status == fdfs.StatusActive}
	id, named := byID[info.ID]
	if named && id.Group == g.Name {
		s.Others = slices.DeleteFunc(addrsOf(id.Hosts), func(addr netip.Addr) bool { return addr == info.Addr })
		s.Port = cmp.Or(s.Port, id.Port)
	}
	s.Port = cmp.Or(s.Port, g.Port)
	return s, true
}

// fromID returns a storage that only the list of storage ids has.
func fromID(id fdfs.StorageID, groupPort int, active bool) Server {
	s := Server{Group: id.Group, ID: id.ID, Host: id.Hosts[0], Others: addrsOf(id.Hosts[1:]),
		Port: cmp.Or(id.Port, groupPort), Active: active}
	if addr, err := netip.ParseAddr(s.Host); err == nil {
		s.Host = addr.Unmap().String()
	}
	return s
}

// addrsOf returns the addresses among hosts, which may be names too.
func addrsOf(hosts []string) (addrs []netip.Addr) {
	for _, host := range hosts {
		if addr, err := netip.ParseAddr(host); err == nil {
			addrs = append(addrs, addr.Unmap())
		}
	}
	return addrs
}

// usable reports whether addr can be the address of a host.
func usable(addr netip.Addr) bool {
	return addr.IsValid() && !addr.IsUnspecified() && !addr.IsMulticast()
}

// addServer adds a storage to all indexes.
func (s *snapshot) addServer(server Server) {
	s.groups[server.Group] = append(s.groups[server.Group], server)
	if server.ID != 0 {
		s.byID[server.ID] = server
	}
	if addr, err := netip.ParseAddr(server.Host); err == nil {
		s.addAddr(addr.Unmap(), server)
	}
	for _, addr := range server.Others {
		s.addAddr(addr, server)
	}
}

func (s *snapshot) addAddr(addr netip.Addr, server Server) {
	if !usable(addr) {
		return
	}
	key := member{server.Group, addr}
	if old, taken := s.byAddr[key]; !taken || !old.Active && server.Active {
		s.byAddr[key] = server
	}
}
