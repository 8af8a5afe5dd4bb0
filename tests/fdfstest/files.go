package fdfstest

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/checksum"
)

// FileSpec describes a file for Put. Exactly one of Storage and Group is needed; neither for a
// slave or with ID.
type FileSpec struct {
	Storage *Storage // the source: the storage that received the upload
	Group   string   // its storages take turns as sources

	Content []byte      // not copied
	Reader  io.ReaderAt // replaces Content, for files that do not fit into memory
	Size    int64       // of Reader, in bytes

	Kind      fdfs.Kind   // a slave needs Master and Prefix
	Master    fdfs.FileID // as Put returned it
	Prefix    string      // 1 to 16 characters, as _150x150
	Ext       string      // up to 6 characters without the dot
	PathIndex int         // store path
	Created   time.Time   // default: now
	Modified  time.Time   // default: Created; what CmdFileInfo returns except for trunk files

	// LegacyCRC: the id has the CRC32 of FastDFS 5.x, see package checksum.
	LegacyCRC bool

	On []*Storage // storages that have the file; default: all of the group

	// ID is the id of the file, whatever size and CRC32 it encodes, as for a link. The fields from
	// which an id is made are ignored then.
	ID string
}

// file is a file of the cluster. It is immutable: Change and Remove replace it.
type file struct {
	id       fdfs.FileID
	content  io.ReaderAt
	size     int64
	crc      uint32
	modified time.Time
	on       []*Storage
}

func (f *file) isOn(s *Storage) bool { return slices.Contains(f.on, s) }

func bytesAt(b []byte) io.ReaderAt { return bytes.NewReader(b) }

// ErrUnknownFile is the error for a file id that was not put, or was removed.
var ErrUnknownFile = errors.New("unknown file")

// Put stores a file in the cluster and returns its id. Equal calls after an equal Start make equal
// ids if Created is set and the addresses are equal.
func (c *Cluster) Put(spec FileSpec) (fdfs.FileID, error) {
	f := &file{content: spec.Reader, size: spec.Size}
	if spec.Reader == nil {
		f.content, f.size = bytesAt(spec.Content), int64(len(spec.Content))
	}
	variants := checksum.OnlyStandard // the legacy sum takes minutes for 4 GiB with the race detector
	if spec.LegacyCRC {
		variants = checksum.Both
	}
	sum := checksum.New(variants)
	if _, err := io.Copy(&sum, io.NewSectionReader(f.content, 0, f.size)); err != nil {
		return fdfs.FileID{}, fmt.Errorf("cannot read content of a file to be put: %w", err)
	}
	if f.crc = sum.Standard(); spec.LegacyCRC {
		f.crc = sum.Legacy()
	}
	if spec.Created.IsZero() {
		spec.Created = time.Now()
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.nameFile(f, spec); err != nil {
		return fdfs.FileID{}, fmt.Errorf("cannot put a %s file: %w", spec.Kind, err)
	}
	if f.modified = spec.Modified; f.modified.IsZero() {
		f.modified = time.Unix(f.id.Created, 0)
	}
	if err := c.placeFile(f, spec); err != nil {
		return fdfs.FileID{}, fmt.Errorf("cannot put file %q: %w", f.id, err)
	}
	c.files[canonical(f.id)] = f
	return f.id, nil
}

// nameFile sets the id of f; c.mu must be held.
func (c *Cluster) nameFile(f *file, spec FileSpec) (err error) {
	switch {
	case spec.ID != "":
		f.id, err = fdfs.Parse(spec.ID)
	case spec.Kind == fdfs.KindSlave && c.files[canonical(spec.Master)] == nil:
		return fmt.Errorf("%w: master %q", ErrUnknownFile, spec.Master)
	case spec.Kind == fdfs.KindSlave:
		f.id, err = fdfs.EncodeSlave(spec.Master, spec.Prefix, spec.Ext)
	default:
		f.id, err = c.newID(f, spec)
	}
	if err == nil && c.files[canonical(f.id)] != nil {
		return fmt.Errorf("%q was put before", f.id)
	}
	return err
}

const (
	trunkAlign = 256
	maxRandom  = 1<<23 - 1
	spread     = 2654435761 // prime, spreads consecutive numbers over the bits
)

// newID makes an id from the properties of the file and a counter; c.mu must be held.
func (c *Cluster) newID(f *file, spec FileSpec) (fdfs.FileID, error) {
	source, err := c.pickSource(spec)
	if err != nil {
		return fdfs.FileID{}, err
	}
	c.put++
	fields := fdfs.Fields{
		Group: source.group.name, PathIndex: spec.PathIndex,
		High: byte(c.put / subDirs % subDirs), Low: byte(c.put % subDirs),
		Kind: spec.Kind, Source: source.source, Created: spec.Created.Unix(),
		Size: f.size, CRC32: f.crc, Random: c.put * spread & maxRandom,
		Ext: spec.Ext, Pad: c.put,
	}
	switch {
	case spec.PathIndex < 0 || spec.PathIndex >= source.group.storePaths:
		return fdfs.FileID{}, fmt.Errorf("store path %d: %s has %d", spec.PathIndex, source.group.name,
			source.group.storePaths)
	case spec.Kind == fdfs.KindAppender:
		fields.Size = 0
	case spec.Kind == fdfs.KindTrunk:
		alloc := (f.size + fdfs.SlotHeaderSize + trunkAlign - 1) / trunkAlign * trunkAlign
		if c.trunkEnd+alloc >= 1<<32 {
			return fdfs.FileID{}, fmt.Errorf("no room for %d bytes: offsets in a trunk file have 32 bits", f.size)
		}
		fields.Trunk = fdfs.Trunk{ID: 1, Offset: uint32(c.trunkEnd), Alloc: uint32(alloc)}
		c.trunkEnd += alloc
	case f.size >= 1<<32:
		fields.Random = 0
	}
	return fdfs.Encode(fields)
}

// pickSource returns the storage that receives an upload; c.mu must be held.
func (c *Cluster) pickSource(spec FileSpec) (*Storage, error) {
	if spec.Storage != nil {
		return spec.Storage, nil
	}
	g := c.group(spec.Group)
	if g == nil {
		return nil, fmt.Errorf("no storage and no known group are given (group %q)", spec.Group)
	}
	return g.storages[int(c.put)%len(g.storages)], nil
}

// placeFile sets the storages that have f.
func (c *Cluster) placeFile(f *file, spec FileSpec) error {
	g := c.group(f.id.Group)
	if g == nil {
		return fmt.Errorf("there is no group %q", f.id.Group)
	}
	for _, s := range spec.On {
		if s.group != g {
			return fmt.Errorf("storage %s is in %s", s.name, s.group.name)
		}
	}
	if f.on = slices.Clone(spec.On); len(f.on) == 0 {
		f.on = g.storages
	}
	return nil
}

// Change replaces the content and the time of a file, as an append to an appender file does. The id
// stays the same.
func (c *Cluster) Change(id fdfs.FileID, content []byte, modified time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.files[canonical(id)]
	if old == nil {
		return fmt.Errorf("cannot change file %q: %w", id, ErrUnknownFile)
	}
	f := *old
	f.content, f.size, f.crc, f.modified = bytesAt(content), int64(len(content)), crc32.ChecksumIEEE(content), modified
	c.files[canonical(id)] = &f
	return nil
}

// Remove removes a file from storages, or from all of them if none is given.
func (c *Cluster) Remove(id fdfs.FileID, from ...*Storage) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.files[canonical(id)]
	if old == nil {
		return fmt.Errorf("cannot remove file %q: %w", id, ErrUnknownFile)
	}
	f := *old
	f.on = slices.DeleteFunc(slices.Clone(old.on), func(s *Storage) bool {
		return len(from) == 0 || slices.Contains(from, s)
	})
	c.files[canonical(id)] = &f
	return nil
}

// file returns the file with an id, or an alias of it, as storages do: the slot of a trunk file
// does not have all bits of the id.
func (c *Cluster) file(text string) *file {
	id, err := fdfs.Parse(text)
	if err != nil {
		return nil
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.files[canonical(id)]
}

// SetExactIDs makes storages find a file only by the id under which it was stored, and by no alias.
func (c *Cluster) SetExactIDs() { c.exactIDs.Store(true) }

// canonical returns the key of a file in Cluster.files. The zero FileID has the key "", which no
// file has.
func canonical(id fdfs.FileID) string {
	if id.Logic == "" {
		return ""
	}
	return id.Canonical().String()
}
