package fdfstest

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"fastdfs-gateway/internal/fdfs"
)

// Storage is a storage server.
type Storage struct {
	*Node
	cluster   *Cluster
	group     *group
	advertise netip.AddrPort // the address that trackers name
	id        uint32         // 0 without storage ids
	source    fdfs.Source
	version   atomic.Pointer[string] // of FastDFS
	unlisted  atomic.Bool            // not in the lists of the trackers
	offline   atomic.Bool            // offline in the lists of the trackers
	corrupted sync.Map               // wrong content of files, by id
}

// Corrupt replaces the content of a file at this storage. content has as many bytes as the file.
func (s *Storage) Corrupt(id fdfs.FileID, content []byte) { s.corrupted.Store(id.String(), content) }

// Group returns the name of the storage's group.
func (s *Storage) Group() string { return s.group.name }

// ID returns the storage id as decimal text, or without storage ids the advertised address, as in
// FastDFS.
func (s *Storage) ID() string {
	if s.id == 0 {
		return s.advertise.Addr().String()
	}
	return strconv.FormatUint(uint64(s.id), 10)
}

// SetOnline sets the status of the storage in the lists of the trackers. They list a killed storage
// as online until SetOnline(false), as a real tracker does for some minutes.
func (s *Storage) SetOnline(online bool) { s.offline.Store(!online) }

// SetListed adds the storage to the lists of the trackers, or removes it, as before it joins or
// after it moves away. The trackers do not know a group without listed storages.
func (s *Storage) SetListed(listed bool) { s.unlisted.Store(!listed) }

// SetVersion upgrades or downgrades the storage, see StorageSpec.
func (s *Storage) SetVersion(version string) { s.version.Store(&version) }

// command handles a request at this storage.
func (s *Storage) command(r Request) (reply, bool) {
	switch r.Command {
	case CmdDownload:
		return s.download(r), true
	case CmdFileInfo:
		return s.info(r), true
	case CmdActive:
		return withoutBody(r, func() reply { return reply{} }), true
	}
	return reply{}, false
}

// find returns the file that a body of group and logic filename names, or the status of the error.
func (s *Storage) find(body []byte) (*file, byte) {
	if len(body) <= groupLen || cutText(body[:groupLen]) != s.group.name {
		return nil, StatusInvalid
	}
	logic := string(body[groupLen:])
	if !s.validPath(logic) {
		return nil, StatusInvalid
	}
	if f := s.cluster.file(s.group.name + "/" + logic); f != nil && f.isOn(s) {
		if s.cluster.exactIDs.Load() && f.id.Logic != logic {
			return nil, StatusNotFound
		}
		return f, 0
	}
	return nil, StatusNotFound
}

// validPath reports whether a logic filename begins with Mxx/HH/LL/ and xx is a store path that
// exists.
func (s *Storage) validPath(logic string) bool {
	parts := strings.Split(logic, "/")
	if len(parts) != 4 || len(parts[0]) != 3 || parts[0][0] != 'M' {
		return false
	}
	for _, pair := range []string{parts[0][1:], parts[1], parts[2]} {
		if len(pair) != 2 || strings.Trim(pair, "0123456789ABCDEF") != "" {
			return false
		}
	}
	index, err := strconv.ParseUint(parts[0][1:], 16, 8)
	return err == nil && int(index) < s.group.storePaths
}

// download returns bytes of a file.
//
//	offset  length  field of the request's body
//	     0       8  offset of the first byte
//	     8       8  number of bytes; 0 for all to the end
//	    16      16  group, NUL padded
//	    32    rest  logic filename
func (s *Storage) download(r Request) reply {
	if len(r.Body) <= 16 {
		return reject(StatusInvalid)
	}
	from := int64(binary.BigEndian.Uint64(r.Body))
	size := int64(binary.BigEndian.Uint64(r.Body[8:]))
	f, status := s.find(r.Body[16:])
	switch {
	case f == nil:
		return reject(status)
	case from < 0 || size < 0 || from >= f.size:
		return reject(StatusInvalid)
	}
	if rest := f.size - from; size == 0 || size > rest {
		size = rest
	}
	if f.id.Kind == fdfs.KindTrunk && s.ignoresTrunkOffset() {
		from = 0
	}
	body := f.content
	if wrong, ok := s.corrupted.Load(f.id.String()); ok {
		body = bytesAt(wrong.([]byte))
	}
	return reply{body: body, from: from, size: size, file: f.id.String()}
}

// ignoresTrunkOffset reports whether the version is one before 5.11.
func (s *Storage) ignoresTrunkOffset() bool {
	major, minor, _ := strings.Cut(*s.version.Load(), ".")
	m, _ := strconv.Atoi(minor[:min(2, len(minor))])
	return major < "5" || major == "5" && m < 11
}

// flagNoCRC is a flag in the status byte of CmdFileInfo: the file is not read for its CRC32. The
// other flag, 2 (no line in the log if the file is missing), changes nothing that a client sees.
const flagNoCRC = 1

// info returns size, time, CRC32 and source of a file. The request's body is group and logic
// filename.
//
//	offset  length  field of the reply's body
//	     0       8  size
//	     8       8  time, unix seconds
//	    16       8  CRC32, sign-extended from 32 bits
//	    24      16  address of the source, NUL padded; 46 bytes where addresses are long
func (s *Storage) info(r Request) reply {
	if len(r.Body) > groupLen+maxLogic {
		return reject(StatusInvalid)
	}
	f, status := s.find(r.Body)
	if f == nil {
		return reject(status)
	}
	changed, crc := f.modified.Unix(), f.id.CRC32
	switch f.id.Kind {
	case fdfs.KindTrunk:
		changed = f.id.Created
	case fdfs.KindSlave, fdfs.KindAppender:
		crc = 0
		if r.Status&flagNoCRC == 0 {
			crc = f.crc
		}
	}
	b := appendInt(nil, f.size)
	b = appendInt(b, changed)
	b = appendInt(b, int64(int32(crc)))
	return replyOf(appendPadded(b, s.cluster.sourceAddr(f.id), s.cluster.addressSize+1))
}
