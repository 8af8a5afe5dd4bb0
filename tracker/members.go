package tracker

import (
	"net/netip"
	"slices"
	"sync/atomic"

	"fastdfs-gateway/internal/fdfs"
)

// Server is a storage of a group.
type Server struct {
	Group  string
	ID     uint32       // its storage id; 0 where it has none
	Host   string       // an address, or a host name where the list of storage ids has one
	Others []netip.Addr // further addresses of the same storage; must not be changed
	Port   int          // 0 where it is not known: then it is the usual one
	Active bool         // a tracker counts it as serving files; also where no tracker has been heard yet
}

// Members is what is known of the groups of a cluster: it may be used by any number of goroutines, costs no lock and asks
// nobody. What was known stays while the trackers are down. The zero value knows nothing.
type Members struct{ now atomic.Pointer[snapshot] }

// snapshot is never changed once it is published.
type snapshot struct {
	known  bool
	groups map[string][]Server
	byID   map[uint32]Server
	byAddr map[member]Server
	addrs  map[netip.Addr]struct{} // of all storages
}

type member struct {
	group string
	addr  netip.Addr
}

// none is what is known before the first snapshot; reading its nil maps is fine.
var none snapshot

func (m *Members) load() *snapshot {
	if s := m.now.Load(); s != nil {
		return s
	}
	return &none
}

// Known tells whether there is any list at all: from a tracker, or of storage ids.
func (m *Members) Known() bool { return m.load().known }

// HasGroup tells whether there is such a group.
func (m *Members) HasGroup(group string) bool {
	_, ok := m.load().groups[group]
	return ok
}

// Allowed tells whether an address belongs to a storage of any group.
func (m *Members) Allowed(addr netip.Addr) bool {
	_, ok := m.load().addrs[addr.Unmap()]
	return ok
}

// ByAddr is the storage of a group with this address.
func (m *Members) ByAddr(group string, addr netip.Addr) (Server, bool) {
	s, ok := m.load().byAddr[member{group, addr.Unmap()}]
	return s, ok
}

// ByID is the storage with this storage id.
func (m *Members) ByID(id uint32) (Server, bool) {
	s, ok := m.load().byID[id]
	return s, ok
}

// StoragesOf is the storages of a group, those first that serve files. The list must not be changed.
func (m *Members) StoragesOf(group string) []Server { return m.load().groups[group] }

// lists is what a snapshot is made of.
type lists struct {
	groups []group
	ids    []fdfs.StorageID
	listed bool // the storages of a group have been loaded
}

type group struct {
	info     fdfs.GroupInfo
	storages []fdfs.StorageInfo
}

func (l lists) storagesOf(name string) []fdfs.StorageInfo {
	for _, g := range l.groups {
		if g.info.Name == name {
			return g.storages
		}
	}
	return nil
}

func (m *Members) set(l lists) { m.now.Store(l.snapshot()) }

// snapshot puts the lists together: storages as trackers see them now, with what the storage ids add, then the storages that
// only the storage ids name.
func (l lists) snapshot() *snapshot {
	s := &snapshot{
		known: l.listed || len(l.ids) > 0, groups: map[string][]Server{}, byID: map[uint32]Server{},
		byAddr: map[member]Server{}, addrs: map[netip.Addr]struct{}{},
	}
	byID := make(map[uint32]fdfs.StorageID, len(l.ids))
	for _, id := range l.ids {
		byID[id.ID] = id
	}
	ports := map[string]int{}
	for _, g := range l.groups {
		s.groups[g.info.Name], ports[g.info.Name] = nil, g.info.Port
		for _, info := range g.storages {
			if server, ok := merge(g.info, info, byID); ok {
				s.add(server)
			}
		}
	}
	for _, id := range l.ids {
		if _, listed := s.byID[id.ID]; !listed {
			s.add(fromID(id, ports[id.Group], !l.listed))
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

// merge is a storage as a tracker lists it. One that has left its address, or the group, is none: someone else may have that
// address now.
func merge(g fdfs.GroupInfo, info fdfs.StorageInfo, byID map[uint32]fdfs.StorageID) (Server, bool) {
	if info.Status == fdfs.StatusDeleted || info.Status == fdfs.StatusIPChanged || !usable(info.Addr) {
		return Server{}, false
	}
	s := Server{Group: g.Name, ID: info.ID, Host: info.Addr.String(), Port: info.Port, Active: info.Status == fdfs.StatusActive}
	id, named := byID[info.ID]
	if named && id.Group == g.Name {
		for _, host := range id.Hosts {
			if addr, err := netip.ParseAddr(host); err == nil && addr.Unmap() != info.Addr {
				s.Others = append(s.Others, addr.Unmap())
			}
		}
		s.Port = firstPort(s.Port, id.Port)
	}
	s.Port = firstPort(s.Port, g.Port)
	return s, true
}

// fromID is a storage that only the list of storage ids names.
func fromID(id fdfs.StorageID, groupPort int, active bool) Server {
	s := Server{Group: id.Group, ID: id.ID, Host: id.Hosts[0], Port: firstPort(id.Port, groupPort), Active: active}
	if addr, err := netip.ParseAddr(s.Host); err == nil {
		s.Host = addr.Unmap().String()
	}
	for _, host := range id.Hosts[1:] {
		if addr, err := netip.ParseAddr(host); err == nil {
			s.Others = append(s.Others, addr.Unmap())
		}
	}
	return s
}

// usable tells whether an address may be that of a host.
func usable(addr netip.Addr) bool {
	return addr.IsValid() && !addr.IsUnspecified() && !addr.IsMulticast()
}

func firstPort(ports ...int) int {
	for _, p := range ports {
		if p != 0 {
			return p
		}
	}
	return 0
}

// add enters a storage everywhere.
func (s *snapshot) add(server Server) {
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
	s.addrs[addr] = struct{}{}
}
