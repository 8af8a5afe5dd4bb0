package fdfstest

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/fdfs"
)

// Options describe a cluster. The zero value describes one tracker, group1 with two storages and
// group2 with one.
type Options struct {
	Groups []GroupSpec

	// Trackers is the number of trackers, which are all equal; default 1, on free ports of
	// 127.0.0.1.
	Trackers int

	// UseStorageIDs gives the storages ids from 100001 on, which file ids name in place of
	// addresses.
	UseStorageIDs bool
	StorageIDs    []string // lines that CmdStorageIDs returns; default: one "id group host:port" a storage
	IDsPerReply   int      // limit of the lines in one reply of CmdStorageIDs; default: all

	Parameters  map[string]string // add to the lines that CmdParameters returns, or change them
	OldLists    bool              // CmdListServers returns records of 612 bytes, as trackers of 5.x
	AddressSize int               // 15 (default) or 45: bytes of an address in replies

	// OnUnknown is called with the name of the node and each request whose command the node does
	// not know. The status of the reply is 22, as that of the real programs. Tests should fail on
	// such a request.
	OnUnknown func(node string, r Request)
}

// GroupSpec describes a group.
type GroupSpec struct {
	Name       string        // 1 to 16 letters and digits
	Count      int           // of storages if Storages is empty; default 1
	Storages   []StorageSpec // each storage, in place of Count
	StorePaths int           // of each storage; default 1
	Version    string        // of FastDFS at the storages; default 6.16.1
}

// StorageSpec describes a storage. File ids name the source by its IPv4 address, without a port, so
// the storages of a group need different addresses unless the cluster has storage ids.
type StorageSpec struct {
	Advertise string // ip:port in the lists of the trackers; default: the address of the listener
	// Version of FastDFS; default: Version of the group. A storage before 5.11 ignores the offset
	// of a download from a trunk file: the reply begins at the first byte, and has the length of
	// the range.
	Version string
}

const (
	shortAddress = 15
	longAddress  = 45
	firstID      = 100001
	firstHost    = 11  // storages listen on 127.0.0.11 and up
	lastHost     = 254 // in the last byte of an address
	portTries    = 50
)

// Cluster is a set of trackers and storages that run until Close. Its methods may be called from
// any goroutine.
type Cluster struct {
	trackers []*Node
	storages []*Storage
	groups   []*group

	useIDs      bool
	idLines     []string
	idsPerReply int
	parameters  string
	addressSize int
	oldLists    bool
	exactIDs    atomic.Bool
	started     time.Time

	mu       sync.RWMutex // guards all below
	files    map[string]*file
	put      uint32 // number of ids that were made
	trunkEnd int64  // end of the used part of the trunk file
}

type group struct {
	name       string
	storePaths int
	storages   []*Storage
}

// Start starts a cluster, which the caller closes.
func Start(o Options) (*Cluster, error) {
	o.setDefaults()
	c := &Cluster{
		useIDs: o.UseStorageIDs, idsPerReply: o.IDsPerReply, oldLists: o.OldLists,
		addressSize: o.AddressSize, parameters: parameters(o), started: time.Now(), files: map[string]*file{},
	}
	if err := c.build(o); err != nil {
		c.Close()
		return nil, fmt.Errorf("cannot start cluster: %w", err)
	}
	for _, n := range c.nodes() {
		if err := n.Revive(); err != nil {
			c.Close()
			return nil, fmt.Errorf("cannot start cluster: %w", err)
		}
	}
	return c, nil
}

func (o *Options) setDefaults() {
	if len(o.Groups) == 0 {
		o.Groups = []GroupSpec{{Name: "group1", Count: 2}, {Name: "group2", Count: 1}}
	}
	if o.AddressSize == 0 {
		o.AddressSize = shortAddress
	}
	o.Trackers = max(1, o.Trackers)
}

// build reserves all addresses and makes all nodes, and starts none.
func (c *Cluster) build(o Options) error {
	if c.addressSize != shortAddress && c.addressSize != longAddress {
		return fmt.Errorf("address size %d is neither %d nor %d", c.addressSize, shortAddress, longAddress)
	}
	for i := range o.Trackers {
		port, err := reserve(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0))
		if err != nil {
			return err
		}
		n := newNode(fmt.Sprintf("t%d", i+1), port)
		n.handle = n.handler(c.trackerCommand, o.OnUnknown)
		c.trackers = append(c.trackers, n)
	}
	common, err := newCommonPort(o)
	if err != nil {
		return err
	}
	defer common.release()
	for _, spec := range o.Groups {
		if err := c.buildGroup(spec, o, common); err != nil {
			return fmt.Errorf("group %q: %w", spec.Name, err)
		}
	}
	if c.idLines = o.StorageIDs; c.idLines == nil {
		for _, s := range c.storages {
			c.idLines = append(c.idLines, fmt.Sprintf("%s %s %s", s.ID(), s.group.name, s.advertise))
		}
	}
	return nil
}

func (c *Cluster) buildGroup(spec GroupSpec, o Options, common *commonPort) error {
	if !fdfs.ValidGroup(spec.Name) || c.group(spec.Name) != nil {
		return errors.New("the name must be 1 to 16 letters and digits, and no other group's")
	}
	g := &group{name: spec.Name, storePaths: max(1, spec.StorePaths)}
	for _, s := range spec.list() {
		s.Version = cmp.Or(s.Version, spec.Version, version)
		storage, err := c.newStorage(s, o, common)
		if err != nil {
			return err
		}
		for _, other := range g.storages {
			if other.source == storage.source {
				return fmt.Errorf("%s and %s are the same source %s: they need addresses or ids of their own",
					other.name, storage.name, storage.ID())
			}
		}
		storage.group = g
		g.storages = append(g.storages, storage)
	}
	c.groups = append(c.groups, g)
	return nil
}

func (g GroupSpec) list() []StorageSpec {
	if len(g.Storages) > 0 {
		return g.Storages
	}
	return make([]StorageSpec, max(1, g.Count))
}

func (c *Cluster) newStorage(spec StorageSpec, o Options, common *commonPort) (*Storage, error) {
	port := common.take()
	s := &Storage{Node: newNode(fmt.Sprintf("s%d", len(c.storages)+1), port), cluster: c, advertise: port.addr}
	s.SetVersion(spec.Version)
	s.handle = s.handler(s.command, o.OnUnknown)
	c.storages = append(c.storages, s)
	var err error
	if spec.Advertise != "" {
		if s.advertise, err = netip.ParseAddrPort(spec.Advertise); err != nil {
			return nil, fmt.Errorf("cannot advertise %q: want ip:port: %w", spec.Advertise, err)
		}
	}
	if text := s.advertise.Addr().String(); len(text) > c.addressSize {
		return nil, fmt.Errorf("address %s is longer than %d bytes: set AddressSize", text, c.addressSize)
	}
	if !c.useIDs {
		s.source, err = addrSource(s.advertise.Addr())
		return s, err
	}
	s.id = firstID + uint32(len(c.storages)) - 1
	s.source = IDSource(s.id)
	return s, nil
}

// addrSource returns the source in the file ids of a storage without a storage id. An address that
// ends in .0 is an error: as a source it is a storage id.
func addrSource(addr netip.Addr) (fdfs.Source, error) {
	addr = addr.Unmap()
	if !addr.Is4() {
		return fdfs.Source{}, fmt.Errorf("source %q is no IPv4 address", addr)
	}
	s := fdfs.Source(addr.As4())
	if _, ok := s.Addr(); !ok || s == (fdfs.Source{}) {
		return fdfs.Source{}, fmt.Errorf("source %q would read as a storage id", addr)
	}
	return s, nil
}

// IDSource returns the source in the file ids of the storage with this storage id, 1 to 16777215.
func IDSource(id uint32) (s fdfs.Source) {
	binary.LittleEndian.PutUint32(s[:], id)
	return s
}

// Close stops all nodes and returns when their goroutines have ended. It may be called again.
func (c *Cluster) Close() {
	for _, n := range c.nodes() {
		n.end()
	}
}

func (c *Cluster) nodes() []*Node {
	nodes := append([]*Node(nil), c.trackers...)
	for _, s := range c.storages {
		nodes = append(nodes, s.Node)
	}
	return nodes
}

// Trackers returns the addresses of the trackers, host:port.
func (c *Cluster) Trackers() []string {
	var addrs []string
	for _, n := range c.trackers {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// Tracker returns one of the trackers, from 0.
func (c *Cluster) Tracker(i int) *Node { return c.trackers[i] }

// Storages returns all storages in the order of Options.
func (c *Cluster) Storages() []*Storage { return append([]*Storage(nil), c.storages...) }

// Storage returns one of the storages of all groups, from 0.
func (c *Cluster) Storage(i int) *Storage { return c.storages[i] }

// Downloads returns the sum of the counts of all storages for a file.
func (c *Cluster) Downloads(id fdfs.FileID) FileCount {
	var sum FileCount
	for _, s := range c.storages {
		f := s.Counts().Files[id.String()]
		sum.Downloads += f.Downloads
		sum.Bytes += f.Bytes
	}
	return sum
}

func (c *Cluster) group(name string) *group {
	for _, g := range c.groups {
		if g.name == name {
			return g
		}
	}
	return nil
}

// sourceAddr returns the address of the source of a file; empty if no storage has that source.
func (c *Cluster) sourceAddr(id fdfs.FileID) string {
	if addr, ok := id.Source.Addr(); ok {
		return addr.String()
	}
	for _, s := range c.storages {
		if s.source == id.Source {
			return s.advertise.Addr().String()
		}
	}
	return ""
}

// handler returns a function that handles requests by command, and rejects unknown commands after a
// call of unknown.
func (n *Node) handler(command func(Request) (reply, bool), unknown func(string, Request)) func(Request) reply {
	return func(r Request) reply {
		a, known := command(r)
		if known {
			return a
		}
		if unknown != nil {
			unknown(n.name, r)
		}
		return reject(StatusInvalid)
	}
}
