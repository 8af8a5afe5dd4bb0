package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/fdfstest"
)

// cmdJoin is what a storage tells its trackers every second: a member as JSON. The answer is all
// members of its group, with the settings that storages share. FastDFS has a command of this number
// and purpose, and other contents.
const cmdJoin fdfs.Command = 81

// member is a storage.
type member struct {
	Group      string
	Addr       netip.AddrPort
	ID         uint32 // set by the tracker; 0 without storage ids
	StorePaths int
}

// group is the answer to a join.
type group struct {
	You         member
	Members     []member
	Trunk       bool
	TrunkFileMB int64
	SlotMax     int64
}

const (
	beat      = time.Second
	goneAfter = 4 * beat
)

// tracker knows the storages that have joined. Everything but joining is answered by a fake of
// package fdfstest, of which there is a new one whenever a storage joins or changes.
type tracker struct {
	conf conf
	ids  []idLine

	mu      sync.Mutex // guards all below
	members []member
	seen    map[netip.AddrPort]time.Time
	fake    *fdfstest.Cluster // nil until the first storage has joined
}

func serveTracker(c conf) error {
	t := &tracker{conf: c, seen: map[netip.AddrPort]time.Time{}}
	if c.truth("use_storage_id") {
		path := c.get("storage_ids_filename")
		if !filepath.IsAbs(path) {
			return fmt.Errorf("storage_ids_filename %q is no absolute path", path)
		}
		var err error
		if t.ids, err = readIDs(path); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", ":"+strconv.Itoa(c.number("port", 22122)))
	if err != nil {
		return err
	}
	go t.watch()
	return serve(listener, t.answer)
}

// serve answers requests until the process is ended.
func serve(listener net.Listener, answer func(fdfs.Header, []byte) ([]byte, error)) error {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			for exchange(conn, answer) == nil {
			}
		}()
	}
}

const requestLimit = 1 << 30 // bytes of a request's body

// exchange answers one request.
func exchange(conn net.Conn, answer func(fdfs.Header, []byte) ([]byte, error)) error {
	var raw [fdfs.HeaderSize]byte
	if _, err := io.ReadFull(conn, raw[:]); err != nil {
		return err
	}
	command := fdfs.Command(raw[8])
	raw[8] = byte(fdfs.CmdAnswer) // the one that ParseAnswer wants
	head, err := fdfs.ParseAnswer(raw)
	if err != nil || head.Length > requestLimit || command == fdfs.CmdQuit {
		return fmt.Errorf("the connection ends: %w", err)
	}
	head.Command = command
	body := make([]byte, head.Length)
	if _, err := io.ReadFull(conn, body); err != nil {
		return err
	}
	result, err := answer(head, body)
	out := fdfs.Header{Length: int64(len(result)), Command: fdfs.CmdAnswer, Status: status(err)}
	_, err = (&net.Buffers{out.AppendTo(nil), result}).WriteTo(conn)
	return err
}

func (t *tracker) answer(head fdfs.Header, body []byte) ([]byte, error) {
	if head.Command == cmdJoin {
		return t.join(body)
	}
	t.mu.Lock()
	fake := t.fake
	t.mu.Unlock()
	if fake == nil {
		return nil, fdfs.StatusError(2)
	}
	return relay(fake.Trackers()[0], head, body)
}

// relay asks the fake.
func relay(addr string, head fdfs.Header, body []byte) ([]byte, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := (&net.Buffers{head.AppendTo(nil), body}).WriteTo(conn); err != nil {
		return nil, err
	}
	var raw [fdfs.HeaderSize]byte
	if _, err := io.ReadFull(conn, raw[:]); err != nil {
		return nil, err
	}
	if head, err = fdfs.ParseAnswer(raw); err != nil {
		return nil, err
	}
	answer := make([]byte, head.Length)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return nil, err
	}
	if head.Status != 0 {
		return answer, fdfs.StatusError(head.Status)
	}
	return answer, nil
}

// join takes a storage in, or notes that it is there.
func (t *tracker) join(body []byte) ([]byte, error) {
	var m member
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, line := range t.ids {
		if line.addr == m.Addr.Addr() && line.group == m.Group {
			m.ID = line.id
		}
	}
	if t.ids != nil && m.ID == 0 {
		return nil, fdfs.StatusError(2)
	}
	t.seen[m.Addr] = time.Now()
	if !slices.Contains(t.members, m) {
		t.members = append(t.members, m)
		if err := t.rebuild(); err != nil {
			return nil, err
		}
	}
	g := group{You: m, Trunk: t.conf.truth("use_trunk_file"),
		TrunkFileMB: t.conf.megabytes("trunk_file_size", 64<<20) >> 20,
		SlotMax:     t.conf.megabytes("slot_max_size", 16<<20)}
	for _, other := range t.members {
		if other.Group == m.Group {
			g.Members = append(g.Members, other)
		}
	}
	return json.Marshal(g)
}

// rebuild makes a fake of the storages that are known; mu must be held.
func (t *tracker) rebuild() error {
	o := fdfstest.Options{UseStorageIDs: t.ids != nil, Parameters: map[string]string{"use_trunk_file": "0"}}
	if t.conf.truth("use_trunk_file") {
		o.Parameters["use_trunk_file"] = "1"
	}
	if t.conf.wantsIPv6() {
		o.AddressSize = 45
	}
	for _, m := range t.members {
		i := slices.IndexFunc(o.Groups, func(g fdfstest.GroupSpec) bool { return g.Name == m.Group })
		if i < 0 {
			i = len(o.Groups)
			o.Groups = append(o.Groups, fdfstest.GroupSpec{Name: m.Group, StorePaths: m.StorePaths})
		}
		spec := fdfstest.StorageSpec{Advertise: m.Addr.String(), ID: m.ID, Remote: true}
		o.Groups[i].Storages = append(o.Groups[i].Storages, spec)
	}
	fake, err := fdfstest.Start(o)
	if err != nil {
		return err
	}
	if t.fake != nil {
		t.fake.Close()
	}
	t.fake = fake
	return nil
}

// watch tells the fake, for as long as the process lives, which storages are silent.
func (t *tracker) watch() {
	for range time.Tick(beat) {
		t.mu.Lock()
		if t.fake != nil {
			for _, s := range t.fake.Storages() {
				addr := netip.MustParseAddrPort(s.Advertised())
				s.SetOnline(time.Since(t.seen[addr]) < goneAfter)
			}
		}
		t.mu.Unlock()
	}
}
