package e2e

import (
	"fmt"
	"strings"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// Changing is a file that can change. Gateways do not revalidate it: the mutable_ttl is long.
type Changing struct {
	ID      fdfs.FileID
	Content []byte
}

// PutChanging stores a file that can change in the storages.
func (f *Fleet) PutChanging() *Changing {
	f.T.Helper()
	content := RandomContent(3000)
	id := Put(f.T, f.Cluster, fdfstest.FileSpec{Group: "group1", Content: content, Kind: fdfs.KindAppender, Ext: "log",
		Created: LongAgo})
	return &Changing{id, content}
}

// Change replaces the content of the file in the storages.
func (f *Fleet) Change(c *Changing) {
	f.T.Helper()
	before := c.Content
	for string(c.Content) == string(before) {
		c.Content = RandomContent(len(before) + 1)
	}
	require.NoError(f.T, f.Cluster.Change(c.ID, c.Content, time.Now()))
}

// RequirePurged fails unless every gateway serves the new content of a changed file after the
// purge, and the old content before.
func (f *Fleet) RequirePurged(purge func(id string) error) {
	f.T.Helper()
	require.NoError(f.T, f.Punctually(func() error {
		c := f.PutChanging()
		f.Warm(c.ID, c.Content)
		old := c.Content
		f.Change(c)
		RequireWhole(f.T, f.Stampede(3, c.ID, old)) // it is cached, and no gateway revalidates it
		if err := purge(c.ID.String()); err != nil {
			return err
		}
		RequireWhole(f.T, f.Stampede(9, c.ID, c.Content))
		return nil
	}))
}

// ReachedAll returns nil if three gateways have applied a purge, by its response. A purge does not
// reach the others if Redis times out.
func ReachedAll(well bool, text string) error {
	if !well || strings.Join(strings.Fields(text), "") != `{"gateways":3}` {
		return fmt.Errorf("the response to a purge is %q", text)
	}
	return nil
}
