package fdfstest

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
)

// zeros is a file of zeros of any size.
type zeros struct{}

func (zeros) ReadAt(b []byte, _ int64) (int, error) { clear(b); return len(b), nil }

func get(t *testing.T, s *Storage, id fdfs.FileID) (byte, []byte) {
	t.Helper()
	got := exchange(t, s.Addr(), downloadRequest(id, 0, 0))
	return got[9], got[headerLen:]
}

// servers are the host:port texts of an answer to CmdFetchAll.
func servers(t *testing.T, c *Cluster, id fdfs.FileID) []string {
	t.Helper()
	status, b := ask(t, c.Tracker(0).Addr(), CmdFetchAll, fileBody(id))
	require.Zero(t, status)
	require.Equal(t, id.Group, cutText(b[:groupLen]))
	var list []string
	for b = b[groupLen:]; len(b) > 0; b = b[c.addressSize+portLen:] {
		port := binary.BigEndian.Uint64(b[c.addressSize:])
		list = append(list, netip.AddrPortFrom(netip.MustParseAddr(cutText(b[:c.addressSize])), uint16(port)).String())
	}
	return list
}

func TestDefaultCluster(t *testing.T) {
	c := start(t, Options{})
	require.Len(t, c.Trackers(), 1)
	var all []string
	for _, s := range c.Storages() {
		all = append(all, s.Name()+" "+s.Group()+" "+s.ID())
		require.Equal(t, s.Addr(), s.Advertised())
		require.Equal(t, c.Storage(0).AddrPort().Port(), s.AddrPort().Port())
	}
	require.Equal(t, []string{"s1 group1 127.0.0.11", "s2 group1 127.0.0.12", "s3 group2 127.0.0.13"}, all)
}

func TestPutKinds(t *testing.T) {
	c := start(t, Options{Groups: []GroupSpec{{Name: "group1", Count: 2, StorePaths: 2}}})
	created := time.Unix(1700000000, 0)
	content := []byte(strings.Repeat("content ", 100))
	for _, kind := range []fdfs.Kind{fdfs.KindNormal, fdfs.KindTrunk, fdfs.KindAppender} {
		t.Run(kind.String(), func(t *testing.T) {
			s := c.Storage(1)
			id, err := c.Put(FileSpec{Storage: s, Kind: kind, Content: content, Ext: "txt", Created: created,
				PathIndex: 1})
			require.NoError(t, err)
			parsed, err := fdfs.Parse(id.String())
			require.NoError(t, err)
			require.Equal(t, id, parsed)
			require.Equal(t, kind, id.Kind)
			require.Equal(t, 1, id.PathIndex)
			require.Equal(t, created.Unix(), id.Created)
			require.Equal(t, crc32.ChecksumIEEE(content), id.CRC32)
			addr, _ := id.SourceAddr()
			require.Equal(t, s.AddrPort().Addr(), addr)
			for _, holder := range c.Storages() {
				status, got := get(t, holder, id)
				require.Zero(t, status)
				require.Equal(t, content, got)
			}

			slave, err := c.Put(FileSpec{Kind: fdfs.KindSlave, Master: id, Prefix: "_150x150", Ext: "png",
				Content: content[:50]})
			if kind == fdfs.KindAppender {
				require.ErrorIs(t, err, fdfs.ErrEncode)
				return
			}
			require.NoError(t, err)
			require.Equal(t, fdfs.KindSlave, slave.Kind)
			require.Equal(t, []string{s.Addr()}, servers(t, c, slave))
			_, got := get(t, s, slave)
			require.Equal(t, content[:50], got)
		})
	}
}

func TestSameCallsSameIDs(t *testing.T) {
	var ids [2][]string
	for round := range ids {
		c := start(t, Options{})
		for i := range 300 {
			id, err := c.Put(FileSpec{Group: "group1", Created: time.Unix(1700000000, 0), Kind: fdfs.Kind(i % 2)})
			require.NoError(t, err)
			ids[round] = append(ids[round], id.String())
		}
	}
	require.Equal(t, ids[0], ids[1])
}

func TestPutRefuses(t *testing.T) {
	c := start(t, Options{})
	id, err := c.Put(FileSpec{Group: "group1"})
	require.NoError(t, err)
	slave := FileSpec{Kind: fdfs.KindSlave, Master: id, Prefix: "_x", Ext: "jpg"}
	_, err = c.Put(slave)
	require.NoError(t, err)
	tests := map[string]FileSpec{
		"unknown group":          {Group: "group9"},
		"no group":               {},
		"storage of other group": {Group: "group1", On: c.Storages()},
		"store path":             {Group: "group1", PathIndex: 1},
		"extension":              {Group: "group1", Ext: "toolong"},
		"bad id":                 {ID: "group1/M00/00/00/x"},
		"id of unknown group":    {ID: strings.Replace(id.String(), "group1", "group9", 1)},
		"id put before":          {ID: id.String()},
		"slave put before":       slave,
		"unknown master": {Kind: fdfs.KindSlave, Master: fdfs.FileID{Group: "group1", Logic: "x"},
			Prefix: "_x"},
		"trunk file too large": {Group: "group1", Kind: fdfs.KindTrunk, Reader: zeros{}, Size: 1 << 32},
	}
	for name, spec := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := c.Put(spec)
			require.Error(t, err)
		})
	}
}

func TestWhereFilesAre(t *testing.T) {
	c := start(t, Options{Groups: []GroupSpec{{Name: "group1", Count: 3}}})
	s := c.Storages()
	only, err := c.Put(FileSpec{Storage: s[1], Content: []byte("x"), On: s[:1]})
	require.NoError(t, err)
	for i, want := range []byte{0, StatusNotFound, StatusNotFound} {
		status, _ := get(t, s[i], only)
		require.Equal(t, want, status, s[i].Name())
	}
	require.Equal(t, []string{s[0].Addr(), s[1].Addr()}, servers(t, c, only))

	listed, err := c.Put(FileSpec{Storage: s[0], Content: []byte("x"), Listed: s[2:]})
	require.NoError(t, err)
	require.Equal(t, []string{s[2].Addr()}, servers(t, c, listed))

	all, err := c.Put(FileSpec{Group: "group1", Content: []byte("x")})
	require.NoError(t, err)
	require.NoError(t, c.Remove(all, s[1]))
	status, _ := get(t, s[1], all)
	require.Equal(t, StatusNotFound, status)
	status, _ = get(t, s[2], all)
	require.Zero(t, status)
	require.NoError(t, c.Remove(all))
	status, _ = get(t, s[2], all)
	require.Equal(t, StatusNotFound, status)
	require.Len(t, servers(t, c, all), 3)
	require.ErrorIs(t, c.Remove(fdfs.FileID{}), ErrUnknownFile)

	s[0].SetOnline(false)
	require.Equal(t, []string{s[1].Addr(), s[2].Addr()}, servers(t, c, all))
	s[1].SetOnline(false)
	s[2].SetOnline(false)
	got, _ := ask(t, c.Tracker(0).Addr(), CmdFetchOne, fileBody(all))
	require.Equal(t, StatusNotFound, got)
	s[1].SetOnline(true)
	require.Equal(t, []string{s[1].Addr()}, servers(t, c, listed))
}

func TestTurns(t *testing.T) {
	c := start(t, Options{Groups: []GroupSpec{{Name: "group1", Count: 3}}})
	id, err := c.Put(FileSpec{Group: "group1"})
	require.NoError(t, err)
	for _, command := range []byte{CmdFetchOne, CmdStore} {
		seen := map[string]int{}
		for range 6 {
			body := fileBody(id)
			if command == CmdStore {
				body = nil
			}
			status, b := ask(t, c.Tracker(0).Addr(), command, body)
			require.Zero(t, status)
			seen[cutText(b[groupLen:groupLen+shortAddress])]++
		}
		require.Equal(t, map[string]int{"127.0.0.11": 2, "127.0.0.12": 2, "127.0.0.13": 2}, seen)
	}
}

func TestChange(t *testing.T) {
	c := start(t, Options{Groups: []GroupSpec{{Name: "group1"}}})
	id, err := c.Put(FileSpec{Group: "group1", Kind: fdfs.KindAppender, Content: []byte("one")})
	require.NoError(t, err)
	require.NoError(t, c.Change(id, []byte("one two"), time.Unix(1800000000, 0)))
	_, got := get(t, c.Storage(0), id)
	require.Equal(t, "one two", string(got))
	_, info := ask(t, c.Storage(0).Addr(), CmdFileInfo, fileBody(id))
	require.EqualValues(t, 7, binary.BigEndian.Uint64(info))
	require.EqualValues(t, 1800000000, binary.BigEndian.Uint64(info[8:]))
	require.Equal(t, crc32.ChecksumIEEE([]byte("one two")), uint32(binary.BigEndian.Uint64(info[16:])))
	require.ErrorIs(t, c.Change(fdfs.FileID{}, nil, time.Now()), ErrUnknownFile)
}

func TestLargeFile(t *testing.T) {
	c := start(t, Options{Groups: []GroupSpec{{Name: "group1"}}})
	const size = 1<<32 + 5
	id, err := c.Put(FileSpec{Group: "group1", Reader: zeros{}, Size: size})
	require.NoError(t, err)
	require.EqualValues(t, size, id.Size)
	got := exchange(t, c.Storage(0).Addr(), downloadRequest(id, size-3, 100))
	require.Equal(t, append(appendHeader(nil, 3, cmdAnswer, 0), 0, 0, 0), got)
}

func TestStorageIDs(t *testing.T) {
	c := start(t, Options{UseStorageIDs: true, IDsPerAnswer: 2, Trackers: 2, Groups: []GroupSpec{
		{Name: "group1", Storages: []StorageSpec{{Listen: "127.0.0.1:0"}, {Listen: "127.0.0.1:0", ID: 7}}},
		{Name: "group2", Storages: []StorageSpec{{Listen: "127.0.0.1:0", Advertise: "192.0.2.1:23000"}}},
	}})
	s := c.Storages()
	want := "100001 group1 " + s[0].Addr() + "\n7 group1 " + s[1].Addr() + "\n100003 group2 192.0.2.1:23000\n"
	require.Len(t, c.Trackers(), 2)
	for _, addr := range c.Trackers() {
		text, total := "", 3
		for next := 0; next < total; {
			status, b := ask(t, addr, CmdStorageIDs, []byte{0, 0, 0, byte(next), 0})
			require.Zero(t, status)
			total = int(binary.BigEndian.Uint32(b))
			next += int(binary.BigEndian.Uint32(b[4:]))
			text += string(b[8:])
		}
		require.Equal(t, want, text)
	}
	status, _ := ask(t, c.Tracker(0).Addr(), CmdStorageIDs, []byte{0, 0, 0, 3, 1})
	require.Equal(t, StatusInvalid, status, "the list was at its end")
	id, err := c.Put(FileSpec{Storage: s[1]})
	require.NoError(t, err)
	number, ok := id.SourceID()
	require.True(t, ok)
	require.EqualValues(t, 7, number)
	_, got := ask(t, c.Tracker(1).Addr(), CmdStorageID,
		append(appendPadded(nil, "group2", groupLen), "192.0.2.1:23000"...))
	require.Equal(t, "100003", string(got))
}

func TestFormsOfAnswers(t *testing.T) {
	id := func(c *Cluster) []byte {
		id, err := c.Put(FileSpec{Group: "group1"})
		require.NoError(t, err)
		return fileBody(id)
	}
	t.Run("one port for all", func(t *testing.T) {
		c := start(t, Options{OnePortForAll: true})
		_, b := ask(t, c.Tracker(0).Addr(), CmdFetchAll, id(c))
		require.Len(t, b, 39+15)
		require.Equal(t, "127.0.0.12", cutText(b[39:]))
	})
	t.Run("long addresses", func(t *testing.T) {
		requireIPv6(t)
		c := start(t, Options{AddressSize: 45, UseStorageIDs: true, Groups: []GroupSpec{
			{Name: "group1", Storages: []StorageSpec{{Listen: "[::1]:0"}, {}}},
		}})
		body := id(c)
		_, b := ask(t, c.Tracker(0).Addr(), CmdFetchAll, body)
		require.Len(t, b, 16+2*(45+8))
		require.Equal(t, "::1", cutText(b[16:]))
		_, b = ask(t, c.Storage(0).Addr(), CmdFileInfo, body)
		require.Len(t, b, 24+46)
		_, b = ask(t, c.Tracker(0).Addr(), CmdListServers, body[:groupLen])
		require.Len(t, b, 2*(487+30))
		_, b = ask(t, c.Tracker(0).Addr(), CmdParameters, nil)
		require.Contains(t, string(b), "response_ip_addr_size=46\n")
	})
	t.Run("lines of storage ids", func(t *testing.T) {
		c := start(t, Options{UseStorageIDs: true, StorageIDs: []string{"1 group1 host-a:23000 rw=read"}})
		_, b := ask(t, c.Tracker(0).Addr(), CmdStorageIDs, make([]byte, 5))
		require.Equal(t, "\x00\x00\x00\x01\x00\x00\x00\x011 group1 host-a:23000 rw=read\n", string(b))
	})
	t.Run("tracker addresses", func(t *testing.T) {
		c := start(t, Options{Trackers: 2, TrackerListen: []string{"127.0.0.9:0"}})
		require.Len(t, c.Trackers(), 2)
		require.True(t, strings.HasPrefix(c.Trackers()[0], "127.0.0.9:"))
	})
	t.Run("parameters", func(t *testing.T) {
		c := start(t, Options{Parameters: map[string]string{"use_trunk_file": "0", "extra": "yes"}})
		_, b := ask(t, c.Tracker(0).Addr(), CmdParameters, nil)
		require.Contains(t, string(b), "\nuse_trunk_file=0\n")
		require.True(t, strings.HasSuffix(string(b), "\nextra=yes\n"))
		require.Equal(t, 27, strings.Count(string(b), "\n"))
	})
}

// A remote storage is named by the trackers, and nothing listens for it.
func TestRemoteStorage(t *testing.T) {
	c := start(t, Options{Groups: []GroupSpec{{Name: "group1", Storages: []StorageSpec{
		{Advertise: "192.0.2.1:23000", Remote: true}, {Advertise: "192.0.2.2:23000", Remote: true},
	}}}})
	id, err := c.Put(FileSpec{Storage: c.Storage(1)})
	require.NoError(t, err)
	require.Equal(t, []string{"192.0.2.1:23000", "192.0.2.2:23000"}, servers(t, c, id))
	require.ErrorIs(t, c.Storage(0).Revive(), ErrRemote)
	require.ErrorIs(t, c.Storage(0).Silence(), ErrRemote)
	c.Storage(0).Kill()
}

func TestOptionsRefused(t *testing.T) {
	same := StorageSpec{Listen: "127.0.0.1:0"}
	tests := map[string]struct {
		o    Options
		says string
	}{
		"same source": {Options{Groups: []GroupSpec{{Name: "g", Storages: []StorageSpec{same, same}}}},
			"are the same source 127.0.0.1"},
		"group name":   {Options{Groups: []GroupSpec{{Name: "a-b"}}}, `group "a-b"`},
		"group twice":  {Options{Groups: []GroupSpec{{Name: "g"}, {Name: "g"}}}, "no other group's"},
		"address size": {Options{AddressSize: 16}, "address size 16"},
		"listen":       {Options{TrackerListen: []string{"localhost:0"}}, `"localhost:0"`},
		"remote": {Options{Groups: []GroupSpec{{Name: "g", Storages: []StorageSpec{{Remote: true}}}}},
			"nothing is advertised"},
		"advertise": {Options{Groups: []GroupSpec{{Name: "g", Storages: []StorageSpec{{Advertise: "x"}}}}},
			`"x"`},
		"IPv6, no ids": {Options{Groups: []GroupSpec{{Name: "g", Storages: []StorageSpec{{Listen: "[::1]:0"}}}}},
			"no IPv4 address"},
		"too many":        {Options{Groups: []GroupSpec{{Name: "g", Count: 300}}}, "300 storages"},
		"not our address": {Options{TrackerListen: []string{"192.0.2.1:0"}}, "192.0.2.1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if strings.HasPrefix(name, "IPv6") {
				requireIPv6(t)
			}
			_, err := Start(test.o)
			require.ErrorContains(t, err, test.says)
		})
	}
	t.Run("port taken", func(t *testing.T) {
		c := start(t, Options{})
		_, err := Start(Options{Port: int(c.Storage(0).AddrPort().Port())})
		require.ErrorContains(t, err, "cannot find a common port")
	})
}

func TestCountsAndLog(t *testing.T) {
	unknown := make(chan string, 1)
	c := start(t, Options{OnUnknown: func(node string, r Request) { unknown <- node }})
	content := make([]byte, 5000)
	id, err := c.Put(FileSpec{Storage: c.Storage(0), Content: content})
	require.NoError(t, err)
	s := c.Storage(0)

	s.SetFaults(Faults{Delay: 100 * time.Millisecond}, Faults{})
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() { get(t, s, id) })
	}
	wait.Wait()
	s.SetFaults(Faults{BreakAt: new(10)})
	io.Copy(io.Discard, send(t, s.Addr(), downloadRequest(id, 0, 0)))
	s.SetFaults()
	get(t, c.Storage(1), id)
	status, _ := ask(t, s.Addr(), 250, []byte("body"))
	require.Equal(t, StatusInvalid, status)
	require.Equal(t, "s1", <-unknown)

	eventually.True(t, func() bool { return s.Counts().Open == 0 })
	counts := s.Counts()
	require.Equal(t, 5, counts.Accepted)
	require.Equal(t, map[byte]int{CmdDownload: 4, 250: 1}, counts.Requests)
	require.Equal(t, 5, counts.Total())
	require.Equal(t, 4, counts.Files[id.String()].Downloads)
	require.EqualValues(t, 3*5000+10, counts.Files[id.String()].Bytes)
	require.Equal(t, 5, c.Downloads(id).Downloads)

	log := s.Requests()
	last := log[len(log)-1]
	require.Equal(t, request(250, 0, []byte("body")), last.Raw)
	require.Equal(t, "body", string(last.Body))
	require.Equal(t, downloadRequest(id, 0, 0), log[0].Raw)

	conn := dial(t, s.Addr())
	for range logSize + 10 {
		_, err := conn.Write(request(CmdActive, 0, nil))
		require.NoError(t, err)
		readAnswer(t, conn)
	}
	require.Len(t, s.Requests(), logSize)
	s.ResetCounts()
	require.Zero(t, s.Counts().Total())
	require.Equal(t, 1, s.Counts().Open)
	require.Empty(t, s.Requests())
}

func TestAtOnce(t *testing.T) {
	c := start(t, Options{})
	id, err := c.Put(FileSpec{Storage: c.Storage(0), Content: make([]byte, 5000)})
	require.NoError(t, err)
	s := c.Storage(0)
	for range 200 {
		get(t, s, id)
	}
	require.Equal(t, FileCount{Downloads: 200, Bytes: 200 * 5000, AtOnce: 1}, c.Downloads(id))
	s.ResetCounts()
	s.SetFaults(Faults{Rate: 10})
	var conns []net.Conn
	for i := range 3 {
		conns = append(conns, send(t, s.Addr(), downloadRequest(id, 0, 0)))
		eventually.True(t, func() bool { return s.Counts().Files[id.String()].AtOnce == i+1 })
	}
	s.SetFaults()
	for _, conn := range conns { // what has the last byte finds the books complete
		readAnswer(t, conn)
	}
	get(t, s, id)
	require.Equal(t, FileCount{Downloads: 4, Bytes: 4 * 5000, AtOnce: 3}, c.Downloads(id))
}

// TestCountWhatWasSent kills a storage in the middle of a download whose client does not read.
func TestCountWhatWasSent(t *testing.T) {
	c := start(t, Options{})
	id, err := c.Put(FileSpec{Storage: c.Storage(0), Reader: zeros{}, Size: 1 << 26})
	require.NoError(t, err)
	conn := send(t, c.Storage(0).Addr(), downloadRequest(id, 0, 0))
	stuck := func() bool {
		before := c.Downloads(id).Bytes
		time.Sleep(20 * time.Millisecond)
		return before > 0 && before == c.Downloads(id).Bytes
	}
	eventually.True(t, stuck)
	c.Storage(0).Kill()
	received, err := io.Copy(io.Discard, conn)
	require.NoError(t, err)
	require.Less(t, received, int64(1<<26))
	require.Equal(t, received-headerLen, c.Downloads(id).Bytes)
}

// TestBadRequests are about what is no request at all.
func TestBadRequests(t *testing.T) {
	c := start(t, Options{})
	for _, addr := range []string{c.Tracker(0).Addr(), c.Storage(0).Addr()} {
		require.Empty(t, exchange(t, addr, appendHeader(nil, 1<<64-1, CmdActive, 0)), "negative length")
		require.Empty(t, exchange(t, addr, appendHeader(nil, maxBody+1, CmdActive, 0)), "long body")
		require.Empty(t, exchange(t, addr, request(CmdQuit, 0, nil)))
		status, _ := ask(t, addr, CmdActive, make([]byte, maxBody))
		require.Equal(t, StatusInvalid, status)
	}
}

// FuzzCommands sends any body to any command, without the network.
func FuzzCommands(f *testing.F) {
	c, err := Start(Options{UseStorageIDs: true})
	require.NoError(f, err)
	f.Cleanup(c.Close)
	id, err := c.Put(FileSpec{Storage: c.Storage(0), Content: []byte("hello"), Metadata: map[string]string{"a": "b"}})
	require.NoError(f, err)
	file := fileBody(id)
	for _, command := range []byte{14, 15, 22, 69, 70, 75, 82, 90, 91, 92, 101, 102, 103, 105, 111, 250} {
		f.Add(command, byte(0), file)
		f.Add(command, byte(3), append(make([]byte, 16), file...))
		f.Add(command, byte(0), []byte{0, 0, 0, 1, 1})
	}
	f.Add(CmdFetchAll, byte(0), append(file[:groupLen:groupLen], strings.Repeat("\n", 40)...))
	f.Fuzz(func(t *testing.T, command, status byte, body []byte) {
		r := Request{Command: command, Status: status, Body: body}
		for _, do := range []func(Request) (answer, bool){c.trackerCommand, c.Storage(0).command} {
			a, known := do(r)
			if a.size > 0 {
				require.True(t, known)
				require.Zero(t, a.status)
				require.LessOrEqual(t, a.size, int64(1<<20))
				_, err := a.body.ReadAt(make([]byte, a.size), a.from)
				require.NoError(t, err)
			}
		}
	})
}

// BenchmarkDownload is how fast the fake itself is, which bounds what can be measured with it.
func BenchmarkDownload(b *testing.B) {
	c, err := Start(Options{Groups: []GroupSpec{{Name: "group1"}}})
	require.NoError(b, err)
	defer c.Close()
	id, err := c.Put(FileSpec{Group: "group1", Content: make([]byte, 1<<20)})
	require.NoError(b, err)
	b.SetBytes(1 << 20)
	conn, err := net.Dial("tcp", c.Storage(0).Addr())
	require.NoError(b, err)
	defer conn.Close()
	for b.Loop() {
		_, err := conn.Write(downloadRequest(id, 0, 0))
		require.NoError(b, err)
		_, err = io.CopyN(io.Discard, conn, headerLen+1<<20)
		require.NoError(b, err)
	}
}
