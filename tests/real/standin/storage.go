package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/real/client"
)

// cmdChange carries a change to another storage of the group, as JSON. FastDFS has no such command.
const cmdChange fdfs.Command = 200

// storage is a storage server.
type storage struct {
	conf     conf
	store    *store
	trackers []string

	mu      sync.Mutex // guards all below, and the order of changes
	me      member
	group   group
	count   uint32 // of names made
	trunk   trunkSpace
	history []change // all that were made here in this life
	grown   sync.Cond
	peers   map[netip.AddrPort]bool // storages that history is given to
}

func serveStorage(c conf) error {
	files, err := openStore(c)
	if err != nil {
		return err
	}
	addr, err := ownAddress(c.wantsIPv6())
	if err != nil {
		return err
	}
	port := c.number("port", 23000)
	s := &storage{conf: c, store: files, trackers: c["tracker_server"], peers: map[netip.AddrPort]bool{},
		count: uint32(time.Now().Unix()), trunk: trunkSpace{first: firstTrunk(addr, time.Now())},
		me: member{Group: c.get("group_name"), Addr: netip.AddrPortFrom(addr, uint16(port)),
			StorePaths: len(files.paths)}}
	s.grown.L = &s.mu
	listener, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	go s.join()
	return serve(listener, s.answer)
}

// join tells all trackers, every second for as long as the process lives, that this storage is
// there.
func (s *storage) join() {
	for ; ; time.Sleep(beat) {
		for _, tracker := range s.trackers {
			s.mu.Lock()
			body, err := json.Marshal(s.me)
			s.mu.Unlock()
			if err != nil {
				panic("BUG: " + err.Error())
			}
			answer, err := client.Call(tracker, cmdJoin, body)
			var g group
			if err == nil && json.Unmarshal(answer, &g) == nil {
				s.learn(g)
			}
		}
	}
}

// learn takes in what a tracker said, and begins to replicate to storages that are new.
func (s *storage) learn(g group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.me, s.group = g.You, g
	for _, m := range g.Members {
		if m.Addr != s.me.Addr && !s.peers[m.Addr] {
			s.peers[m.Addr] = true
			go s.replicate(m.Addr.String())
		}
	}
}

// syncDelay is how old a change is before the others hear of it: nothing, or what the variable
// says.
var syncDelay, _ = time.ParseDuration(os.Getenv("STANDIN_SYNC_DELAY"))

// replicate gives all changes to another storage in their order, for as long as the process lives.
// It tries until the other one is there; what the other refuses is lost.
func (s *storage) replicate(addr string) {
	for i := 0; ; i++ {
		c := s.nth(i)
		time.Sleep(time.Until(c.Time.Add(syncDelay)))
		for !s.conf.inWindow(time.Now()) {
			time.Sleep(beat)
		}
		body, err := json.Marshal(c)
		if err != nil {
			panic("BUG: " + err.Error())
		}
		for {
			var refused fdfs.StatusError
			if _, err = client.Call(addr, cmdChange, body); err == nil || errors.As(err, &refused) {
				break
			}
			time.Sleep(beat / 10)
		}
	}
}

// nth is a change from history, for which it waits.
func (s *storage) nth(i int) change {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i >= len(s.history) {
		s.grown.Wait()
	}
	return s.history[i]
}

// make makes changes here, and later on the other storages; mu must be held.
func (s *storage) make(changes ...change) error {
	for _, c := range changes {
		c.Time = time.Now()
		if err := s.store.apply(c); err != nil {
			return err
		}
		s.history = append(s.history, c)
		s.grown.Broadcast()
	}
	return nil
}

func status(err error) byte {
	var code fdfs.StatusError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return byte(code)
	}
	return 5 // EIO
}

func (s *storage) answer(head fdfs.Header, body []byte) ([]byte, error) {
	switch head.Command {
	case fdfs.CmdActiveTest:
		return nil, nil
	case fdfs.CmdDownload:
		return s.download(body)
	case fdfs.CmdFileInfo:
		return s.info(body)
	case cmdChange:
		var c change
		if err := json.Unmarshal(body, &c); err != nil {
			return nil, err
		}
		return nil, s.store.apply(c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch head.Command {
	case client.CmdUpload, client.CmdUploadAppender:
		return s.upload(head.Command == client.CmdUploadAppender, body)
	case client.CmdUploadSlave:
		return s.uploadSlave(body)
	case client.CmdCreateLink:
		return s.createLink(body)
	case client.CmdDelete:
		return nil, s.delete(body)
	case client.CmdSetMetadata:
		return nil, s.setMetadata(body)
	case client.CmdRegenerate:
		return s.regenerate(body)
	case client.CmdAppend, client.CmdModify, client.CmdTruncate:
		return nil, s.changeAppender(head.Command, body)
	}
	return nil, fdfs.StatusError(22)
}

// fields cuts numbers of 8 bytes from the front of a body.
func fields(body []byte, n int) ([]int64, []byte, error) {
	if len(body) < 8*n {
		return nil, nil, fdfs.StatusError(22)
	}
	list := make([]int64, n)
	for i := range list {
		list[i] = int64(binary.BigEndian.Uint64(body[8*i:]))
		if list[i] < 0 || list[i] > requestLimit {
			return nil, nil, fdfs.StatusError(22)
		}
	}
	return list, body[8*n:], nil
}

// text cuts a NUL padded field from the front of a body.
func text(body []byte, width int) (string, []byte, error) {
	if len(body) < width {
		return "", nil, fdfs.StatusError(22)
	}
	return strings.TrimRight(string(body[:width]), "\x00"), body[width:], nil
}

const groupSize = 16

// parse reads group and logic filename, which are all of body.
func parse(body []byte) (fdfs.FileID, error) {
	name, logic, err := text(body, groupSize)
	if err != nil {
		return fdfs.FileID{}, err
	}
	id, err := fdfs.ParseLogic(name, string(logic))
	if err != nil {
		return fdfs.FileID{}, fdfs.StatusError(22)
	}
	return id, nil
}

func (s *storage) download(body []byte) ([]byte, error) {
	n, rest, err := fields(body, 2)
	if err != nil {
		return nil, err
	}
	id, err := parse(rest)
	if err != nil {
		return nil, err
	}
	return s.store.read(id, n[0], n[1])
}

// info answers size, time, CRC32 and source; the CRC32 of what can change is left at 0.
func (s *storage) info(body []byte) ([]byte, error) {
	id, err := parse(body)
	if err != nil {
		return nil, err
	}
	f, size, _, err := s.store.open(id)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return nil, err
	}
	changed, crc := stat.ModTime().Unix(), id.CRC32
	if id.Kind == fdfs.KindTrunk {
		changed = id.Created
	}
	if !id.Immutable() {
		crc = 0
	}
	b := binary.BigEndian.AppendUint64(nil, uint64(size))
	b = binary.BigEndian.AppendUint64(b, uint64(changed))
	b = binary.BigEndian.AppendUint64(b, uint64(int64(int32(crc))))
	width := groupSize
	if s.conf.wantsIPv6() {
		width = 46
	}
	source := s.me.Addr.Addr().String() // of the storage that is asked: nothing here looks at it
	return append(append(b, source...), make([]byte, width-len(source))...), nil
}
