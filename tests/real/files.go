package main

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/real/client"
)

// file is one file of the cluster, and what a client must get of it.
type file struct {
	kind string
	id   string
	want []byte
	gone bool // 404 for everybody
	from *node
}

// content makes bytes that no other file has.
func (w *world) content(size int) []byte {
	w.seed++
	random := rand.NewChaCha8([32]byte{byte(w.seed), byte(w.seed >> 8)})
	b := make([]byte, size)
	_, _ = random.Read(b) // never fails
	return b
}

// tool runs a client tool in the bridge's namespace. There may be none of this name: then, and when
// it fails, which is said once, the caller speaks the protocol. The result is the last line of its
// output.
func (w *world) tool(name string, args ...string) (string, bool) {
	program := filepath.Join(w.s.bin, name)
	if !exists(program) {
		return "", false
	}
	out, err := exec.Command(program, append([]string{w.clientConf()}, args...)...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		if !w.noted[name] {
			w.report.skip(name, fmt.Sprintf("fails, so the protocol is spoken in its place: %v: %s", err, text))
			w.noted[name] = true
		}
		return "", false
	}
	return text[strings.LastIndexByte(text, '\n')+1:], true
}

// unpacked returns the size in bytes of a file that storages do not pack.
func (w *world) unpacked() int {
	if w.s.trunk {
		return slotMax + 1
	}
	return 600 << 10
}

// local writes content to a file for a tool.
func (w *world) local(ext string, content []byte) (string, error) {
	path := filepath.Join(w.dir, "client", "upload")
	if ext != "" {
		path += "." + ext
	}
	return path, os.WriteFile(path, content, 0o600)
}

// upload stores a normal file: by fdfs_upload_file where there is one.
func (w *world) upload(kind string, n *node, pathIndex int, ext string, content []byte) (*file, error) {
	path, err := w.local(ext, content)
	if err != nil {
		return nil, err
	}
	id, ok := "", false
	if !w.s.ipv6 { // how the tool wants an IPv6 address is not known
		id, ok = w.tool("fdfs_upload_file", path, n.addr(), fmt.Sprint(pathIndex))
	}
	if _, bad := fdfs.Parse(id); !ok || bad != nil {
		if id, err = client.Upload(n.addr(), byte(pathIndex), ext, content); err != nil {
			return nil, err
		}
	}
	return &file{kind: kind, id: id, want: content, from: n}, nil
}

func (w *world) uploadAppender(kind string, n *node, ext string, content []byte) (*file, error) {
	id, err := client.UploadAppender(n.addr(), 0, ext, content)
	return &file{kind: kind, id: id, want: content, from: n}, err
}

func (w *world) uploadSlave(kind string, master *file, prefix, ext string, content []byte) (*file, error) {
	id, err := client.UploadSlave(master.from.addr(), master.id, prefix, ext, content)
	return &file{kind: kind, id: id, want: content, from: master.from}, err
}

// append adds to an appender: by fdfs_append_file where there is one.
func (w *world) append(f *file, content []byte) error {
	path, err := w.local("", content)
	if err != nil {
		return err
	}
	if _, ok := w.tool("fdfs_append_file", f.id, path); !ok {
		err = client.Append(f.from.addr(), f.id, content)
	}
	f.want = append(bytes.Clone(f.want), content...)
	return err
}

// delete removes a file: by fdfs_delete_file where there is one.
func (w *world) delete(f *file) error {
	f.gone = true
	if _, ok := w.tool("fdfs_delete_file", f.id); ok {
		return nil
	}
	return client.Delete(f.from.addr(), f.id)
}

// crcForm says how the CRC32 in a file's id was computed: by the standard, as libfastcommon up to
// 1.0.37 did (with an arithmetic shift of a signed value), or neither.
func crcForm(id string, content []byte) string {
	parsed, err := fdfs.Parse(id)
	switch {
	case err != nil:
		return "unreadable"
	case parsed.CRC32 == crc32.ChecksumIEEE(content):
		return "standard"
	case parsed.CRC32 == signedCRC(content):
		return "signed"
	}
	return "unknown"
}

func signedCRC(b []byte) uint32 {
	c := int32(-1)
	for _, v := range b {
		c = (c >> 8) ^ int32(crc32.IEEETable[byte(c)^v])
	}
	return ^uint32(c)
}
