package origin

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/tracker"
)

// SourcesOptions describe the other hosts.
type SourcesOptions struct {
	LocalIPs []netip.Addr // addresses of this host
	// HasStore reports whether the store paths of a group are on this host: then its storage here
	// has no file outside of them. nil = no group has any.
	HasStore func(group string) bool
	// Web reports whether files come from web servers, or clients are redirected to them: the web
	// server of this host is this gateway.
	Web        bool
	Allow      []netip.Prefix    // further addresses that may be sources
	AddressMap map[string]string // address in an id or from a tracker -> address, or address:port, to use
	Ports      map[string]int    // storage_server_port by group
	Port       int               // of other groups; default 23000
	Members    *tracker.Members  // from trackers and the list of storage ids
	// Trackers reports whether trackers are configured, which will send lists.
	Trackers bool
	// Renew, if not nil, loads the lists again, unless that was done a moment ago, and returns when
	// they are loaded. It is called for a source or a group that the lists do not contain, and for
	// storages that cannot be reached. It must not block for long.
	Renew func()
}

// Sources is the list of hosts that may be asked for a file. The address in a file id is a claim of
// the client that made the URL: no connection is made to a host that only an id names.
type Sources struct{ o SourcesOptions }

// NewSources returns sources for the options.
func NewSources(o SourcesOptions) *Sources {
	o.Port, o.Members = cmp.Or(o.Port, 23000), cmp.Or(o.Members, &tracker.Members{})
	return &Sources{o}
}

// SourceStatus is the status of the source in a file id.
type SourceStatus int

// The statuses.
const (
	SourceAllowed    SourceStatus = iota
	SourceSelf                    // the source is this host
	SourceNotAllowed              // no list and no option names the source
	SourceUnknown                 // the storage id of the source is not known
	SourceNone                    // the id has no source: canonical id of a trunk file
)

// Of returns the source of a file, and its status.
func (s *Sources) Of(id fdfs.FileID) (client.Server, SourceStatus) {
	if id.Source.IsNone() {
		return client.Server{}, SourceNone
	}
	if n, ok := id.Source.ID(); ok {
		member, ok := s.o.Members.ByID(n)
		switch {
		case !ok:
			return client.Server{}, SourceUnknown
		case member.Group != id.Group:
			return s.Server(member), SourceNotAllowed
		case s.isSelf(member):
			return s.Server(member), SourceSelf
		}
		return s.Server(member), SourceAllowed
	}
	addr, _ := id.Source.Addr()
	member, listed := s.o.Members.ByAddr(id.Group, addr)
	if !listed {
		member = tracker.Server{Group: id.Group, Host: addr.String()}
	}
	server := s.Server(member)
	switch {
	case s.isSelf(member):
		return server, SourceSelf
	case listed || s.o.AddressMap[member.Host] != "":
		return server, SourceAllowed
	case slices.ContainsFunc(s.o.Allow, func(p netip.Prefix) bool { return p.Contains(addr) }):
		server.Unlisted = true // of all allowed addresses, the id has chosen this one
		return server, SourceAllowed
	}
	return server, SourceNotAllowed
}

// ByID returns the server of a storage id; false if no list contains the id.
func (s *Sources) ByID(id uint32) (client.Server, bool) {
	member, ok := s.o.Members.ByID(id)
	return s.Server(member), ok
}

// mayExist reports whether a group can be one of this cluster. It is false only for a group that is
// in no list, if a list was loaded.
func (s *Sources) mayExist(group string) bool {
	return !s.o.Members.Known() || s.o.Members.HasGroup(group)
}

// areInDoubt reports whether the lists may lack groups and storages of the cluster: none was loaded
// yet, but one will be, or the trackers may not know all of them yet.
func (s *Sources) areInDoubt() bool {
	return s.o.Trackers && (!s.o.Members.Known() || s.o.Members.Partial())
}

// Replicas returns the storages of a group without this host. Behind them are the further addresses
// of storages that have several.
func (s *Sources) Replicas(group string) []client.Server {
	var list, further []client.Server
	for _, member := range s.o.Members.StoragesOf(group) {
		if s.isSelf(member) {
			continue
		}
		list = append(list, s.Server(member))
		for _, other := range member.Others {
			member.Host = other.String()
			further = append(further, s.Server(member))
		}
	}
	return append(list, further...)
}

// renew loads the lists again. It returns false if no lists can be loaded.
func (s *Sources) renew() bool {
	if s.o.Renew == nil {
		return false
	}
	s.o.Renew()
	return true
}

// isSelf reports whether a storage serves the local store, which was searched before.
func (s *Sources) isSelf(member tracker.Server) bool {
	if !s.o.Web && (s.o.HasStore == nil || !s.o.HasStore(member.Group)) {
		return false
	}
	addr, err := netip.ParseAddr(member.Host)
	return err == nil && slices.Contains(s.o.LocalIPs, addr.Unmap()) ||
		slices.ContainsFunc(member.Others, func(a netip.Addr) bool { return slices.Contains(s.o.LocalIPs, a) })
}

// Server returns the server of a storage: by the address map, and with the usual port if the lists
// have none.
func (s *Sources) Server(member tracker.Server) client.Server {
	server := client.Server{Host: member.Host, Port: cmp.Or(member.Port, s.o.Ports[member.Group], s.o.Port)}
	to := s.o.AddressMap[member.Host]
	if to == "" {
		return server
	}
	if host, port, err := net.SplitHostPort(to); err == nil {
		if n, err := strconv.Atoi(port); err == nil {
			return client.Server{Host: host, Port: n}
		}
	}
	return client.Server{Host: to, Port: server.Port}
}
