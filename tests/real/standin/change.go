package main

import (
	"fmt"
	"hash/crc32"
	"net/netip"
	"os"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/real/client"
)

// trunkSpace is where packed files go: a slot that was freed and is large enough, or the end of the
// last trunk file.
type trunkSpace struct {
	first  int // number of this life's first trunk file, another one than those of other storages and lives
	number int // of trunk files so far
	end    int64
	free   []freeSlot
}

// firstTrunk makes such a number of the host's address and the time.
func firstTrunk(host netip.Addr, now time.Time) int {
	bytes := host.AsSlice()
	return int(bytes[len(bytes)-1])*1e6 + int(now.Unix()%1e4)*trunkFiles
}

type freeSlot struct {
	pathIndex int
	place     fdfs.Trunk
	dirs      string // HH/LL/
}

const (
	trunkAlign = 256
	trunkFiles = 100 // that a storage makes in one life
	maxRandom  = 1<<23 - 1
)

// corrupt makes the stand-in damage what the variable names, so that a test can see the harness
// find it.
var corrupt = os.Getenv("STANDIN_CORRUPT")

func idAnswer(id fdfs.FileID) []byte { return append(fdfs.AppendGroup(nil, id.Group), id.Logic...) }

// source is what ids made here begin with.
func (s *storage) source() fdfs.Source {
	if s.me.ID != 0 {
		return fdfstest.IDSource(s.me.ID)
	}
	return s.me.Addr.Addr().As4()
}

// newFields are those of a file that is stored now.
func (s *storage) newFields(pathIndex int, ext string, content []byte) (fdfs.Fields, error) {
	if s.group.You.Group == "" {
		return fdfs.Fields{}, fdfs.StatusError(16) // EBUSY: no tracker has answered yet
	}
	s.count++
	dirs := s.store.subDirs
	return fdfs.Fields{Group: s.me.Group, PathIndex: pathIndex, Source: s.source(), Created: time.Now().Unix(),
		High: byte(int(s.count) / dirs % dirs), Low: byte(int(s.count) % dirs), Size: int64(len(content)),
		CRC32: crc32.ChecksumIEEE(content), Random: s.count * 2654435761 & maxRandom, Ext: ext, Pad: s.count}, nil
}

func (s *storage) upload(appender bool, body []byte) ([]byte, error) {
	if len(body) < 1 {
		return nil, fdfs.StatusError(22)
	}
	n, rest, err := fields(body[1:], 1)
	if err != nil {
		return nil, err
	}
	ext, content, err := text(rest, client.ExtSize)
	if err != nil || int64(len(content)) != n[0] || int(body[0]) >= len(s.store.paths) {
		return nil, fdfs.StatusError(22)
	}
	f, err := s.newFields(int(body[0]), ext, content)
	if err != nil {
		return nil, err
	}
	switch {
	case appender:
		f.Kind, f.Size = fdfs.KindAppender, 0
	case s.group.Trunk && int64(len(content))+fdfs.SlotHeaderSize <= s.group.SlotMax:
		return s.pack(f, content)
	}
	id, err := fdfs.Encode(f)
	if err != nil {
		return nil, err
	}
	return idAnswer(id), s.make(change{Kind: putFile, PathIndex: id.PathIndex, Name: id.TrueName(), Data: content})
}

// pack puts a file into a slot of a trunk file.
func (s *storage) pack(f fdfs.Fields, content []byte) ([]byte, error) {
	alloc := (int64(len(content)) + fdfs.SlotHeaderSize + trunkAlign - 1) / trunkAlign * trunkAlign
	slot := s.slot(f.PathIndex, alloc)
	f.Kind, f.Trunk = fdfs.KindTrunk, slot.place
	if _, err := fmt.Sscanf(slot.dirs, "%02X/%02X/", &f.High, &f.Low); err != nil {
		return nil, err
	}
	id, err := fdfs.Encode(f)
	if err != nil {
		return nil, err
	}
	data := append(id.SlotHeader().AppendTo(nil), content...)
	data = append(data, make([]byte, alloc-int64(len(data)))...)
	return idAnswer(id), s.make(change{Kind: patch, PathIndex: id.PathIndex, Name: id.DiskName(),
		Offset: int64(slot.place.Offset), Data: data})
}

// slot finds room.
func (s *storage) slot(pathIndex int, alloc int64) freeSlot {
	for i, free := range s.trunk.free {
		if free.pathIndex == pathIndex && int64(free.place.Alloc) >= alloc {
			s.trunk.free = append(s.trunk.free[:i], s.trunk.free[i+1:]...)
			free.place.Alloc = uint32(alloc) // what is left over is lost
			return free
		}
	}
	if s.trunk.number == 0 || s.trunk.end+alloc > s.group.TrunkFileMB<<20 {
		s.trunk.number++
		s.trunk.end = 0
	}
	place := fdfs.Trunk{ID: uint32(s.trunk.first + s.trunk.number), Offset: uint32(s.trunk.end), Alloc: uint32(alloc)}
	s.trunk.end += alloc
	return freeSlot{pathIndex: pathIndex, place: place, dirs: fmt.Sprintf("00/%02X/", s.trunk.number%s.store.subDirs)}
}

func (s *storage) uploadSlave(body []byte) ([]byte, error) {
	n, rest, err := fields(body, 2)
	if err != nil {
		return nil, err
	}
	prefix, rest, err := text(rest, client.PrefixSize)
	if err != nil {
		return nil, err
	}
	ext, rest, err := text(rest, client.ExtSize)
	if err != nil || int64(len(rest)) != n[0]+n[1] {
		return nil, fdfs.StatusError(22)
	}
	master, err := fdfs.ParseLogic(s.me.Group, string(rest[:n[0]]))
	if err != nil {
		return nil, fdfs.StatusError(22)
	}
	id, err := fdfs.EncodeSlave(master, prefix, ext)
	if err != nil {
		return nil, fdfs.StatusError(22)
	}
	content := rest[n[0]:]
	if corrupt == "slave" && len(content) > 0 {
		content[0]++
	}
	return idAnswer(id), s.make(change{Kind: putFile, PathIndex: id.PathIndex, Name: id.TrueName(), Data: content})
}

func (s *storage) createLink(body []byte) ([]byte, error) {
	n, rest, err := fields(body, 3)
	if err != nil || n[0] != 0 || n[2] == 0 { // FastDFS rejects an empty signature
		return nil, fdfs.StatusError(22)
	}
	if _, rest, err = text(rest, groupSize+client.PrefixSize); err != nil {
		return nil, err
	}
	ext, rest, err := text(rest, client.ExtSize)
	if err != nil || int64(len(rest)) != n[1]+n[2] {
		return nil, fdfs.StatusError(22)
	}
	logic := rest[:n[1]]
	target, err := fdfs.ParseLogic(s.me.Group, string(logic))
	if err != nil || target.Kind == fdfs.KindTrunk {
		return nil, fdfs.StatusError(22)
	}
	f, err := s.newFields(target.PathIndex, ext, logic)
	if err != nil {
		return nil, err
	}
	id, err := fdfs.Encode(f)
	if err != nil {
		return nil, err
	}
	return idAnswer(id), s.make(change{Kind: link, PathIndex: id.PathIndex, Name: id.TrueName(), To: target.TrueName()})
}

func (s *storage) delete(body []byte) error {
	id, err := parse(body)
	if err != nil {
		return err
	}
	f, _, _, err := s.store.open(id)
	if err != nil {
		return err
	}
	f.Close()
	c := change{Kind: remove, PathIndex: id.PathIndex, Name: id.DiskName()}
	if id.Kind == fdfs.KindTrunk {
		free := id.SlotHeader()
		free.Type = fdfs.SlotFree
		c = change{Kind: patch, PathIndex: id.PathIndex, Name: id.DiskName(), Offset: int64(id.Trunk.Offset),
			Data: free.AppendTo(nil)}
		s.trunk.free = append(s.trunk.free, freeSlot{id.PathIndex, id.Trunk, id.TrueName()[:len("00/00/")]})
	}
	return s.make(c)
}

func (s *storage) setMetadata(body []byte) error {
	n, rest, err := fields(body, 2)
	if err != nil || int64(len(rest)) != 1+groupSize+n[0]+n[1] {
		return fdfs.StatusError(22)
	}
	id, err := parse(rest[1 : 1+groupSize+n[0]])
	if err != nil {
		return err
	}
	return s.make(change{Kind: putFile, PathIndex: id.PathIndex, Name: id.TrueName() + "-m",
		Data: rest[1+groupSize+n[0]:]})
}

// appender finds the appender that a logic filename names.
func (s *storage) appender(logic []byte) (fdfs.FileID, int64, error) {
	id, err := fdfs.ParseLogic(s.me.Group, string(logic))
	if err != nil || id.Kind != fdfs.KindAppender {
		return id, 0, fdfs.StatusError(22)
	}
	f, size, _, err := s.store.open(id)
	if err != nil {
		return id, 0, err
	}
	return id, size, f.Close()
}

func (s *storage) changeAppender(command fdfs.Command, body []byte) error {
	numbers := map[fdfs.Command]int{client.CmdAppend: 2, client.CmdModify: 3, client.CmdTruncate: 2}[command]
	n, rest, err := fields(body, numbers)
	if err != nil || int64(len(rest)) < n[0] {
		return fdfs.StatusError(22)
	}
	id, size, err := s.appender(rest[:n[0]])
	if err != nil {
		return err
	}
	c := change{Kind: patch, PathIndex: id.PathIndex, Name: id.TrueName(), Offset: size, Data: rest[n[0]:]}
	switch command {
	case client.CmdModify:
		c.Offset = n[1]
	case client.CmdTruncate:
		c.Kind, c.Offset, c.Data = truncate, n[1], nil
	}
	return s.make(c)
}

func (s *storage) regenerate(body []byte) ([]byte, error) {
	old, _, err := s.appender(body)
	if err != nil {
		return nil, err
	}
	content, err := s.store.read(old, 0, 0)
	if err != nil {
		return nil, err
	}
	f, err := s.newFields(old.PathIndex, old.Ext(), content)
	if err != nil {
		return nil, err
	}
	id, err := fdfs.Encode(f)
	if err != nil {
		return nil, err
	}
	return idAnswer(id), s.make(change{Kind: rename, PathIndex: id.PathIndex, Name: old.TrueName(), To: id.TrueName()})
}
