package storage

import (
	"bytes"
	"context"
	"fmt"

	"fastdfs-gateway/internal/fdfs"
)

// Meta is one item of a file's metadata.
type Meta struct {
	Name, Value string
}

// maxMetadata is the longest metadata that is read, in bytes.
const maxMetadata = 1 << 20

// Metadata asks for the metadata of a file: the items that were set when it was uploaded or later, in the order of the
// storage. ErrNotFound means that all servers have answered and none has any: storages do not tell a file without
// metadata from none.
func (c *Client) Metadata(ctx context.Context, id fdfs.FileID, servers []Server) ([]Meta, error) {
	body := fdfs.AppendFile(nil, id)
	a, err := askEach(ctx, c, c.Order(servers), question[[]Meta]{ask: func(ctx context.Context, m *member) ([]Meta, error) {
		b, err := m.calls.Call(ctx, fdfs.CmdMetadata, 0, body, maxMetadata)
		if err != nil {
			return nil, absent(m, err)
		}
		c.completed(m, false)
		return parseMetadata(b), nil
	}})
	if err != nil {
		return nil, fmt.Errorf("cannot get metadata of %q: %w", id, err)
	}
	a.end()
	return a.value, nil
}

// The answer to CmdMetadata:
//
//	name 0x02 value, and 0x01 between two of these
const (
	recordMark = 0x01
	fieldMark  = 0x02
)

// parseMetadata reads an answer. An item without a field mark is a name without a value; one without a name is left out.
func parseMetadata(b []byte) []Meta {
	var list []Meta
	for record := range bytes.SplitSeq(b, []byte{recordMark}) {
		name, value, _ := bytes.Cut(record, []byte{fieldMark})
		if len(name) > 0 {
			list = append(list, Meta{string(name), string(value)})
		}
	}
	return list
}
