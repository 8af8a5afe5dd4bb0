package cachelock

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// rows are the first cells of the rows in docs/locks.md.
var rows = [operations]string{"create in A", "upload to A", "move dir A to B", "move file a to B", "copy dir A to B",
	"copy file a to B", "rename dir A to B", "rename file a to B", "delete dir A", "delete file a",
	"purge trash A or a"}

func TestDocsShowTheTable(t *testing.T) {
	var want strings.Builder
	want.WriteString("| running \\ wanted |")
	for op := range operations {
		fmt.Fprintf(&want, " %s |", op)
	}
	want.WriteString("\n|" + strings.Repeat(" --- |", int(operations)+1) + "\n")
	for running := range operations {
		fmt.Fprintf(&want, "| %s |", rows[running])
		for wanted := range operations {
			fmt.Fprintf(&want, " %s |", operationTable[running][wanted])
		}
		want.WriteString("\n")
	}
	docs, err := os.ReadFile("../docs/locks.md")
	require.NoError(t, err)
	require.Contains(t, string(docs), want.String())
}

// newFolders returns a namespace that no other test uses.
func newFolders(t *testing.T) *Folders {
	return testFolders(t, New(redistest.Shared(t).Client(), Options{Prefix: t.Name() + randomHex()}))
}

// testFolders returns a namespace of a client, which is closed when the test ends.
func testFolders(t *testing.T, c *Client) *Folders {
	t.Helper()
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	f, err := c.Folders("project")
	require.NoError(t, err)
	return f
}

// TestOperationsCellByCell: each path of a running operation admits or rejects each path of a
// wanted operation as the table says, for wanted paths on, above and below the running one.
func TestOperationsCellByCell(t *testing.T) {
	f := newFolders(t)
	for running := range operations {
		for wanted := range operations {
			for runningRole := range rolesOf(running) {
				for wantedRole := range rolesOf(wanted) {
					want := operationTable[running][wanted][runningRole][wantedRole]
					for _, path := range []string{"w/a", "w/a/b", "w/a/b/c"} {
						held := begin(t, f, running, paths(running, "w/a/b", "r", runningRole), verdictYes)
						ask(t, f, wanted, paths(wanted, path, "other", wantedRole), want)
						require.NoError(t, held.Release(t.Context()))
					}
				}
			}
		}
	}
}

func TestModesExcludeOperations(t *testing.T) {
	f := newFolders(t)
	for op := range operations {
		for _, mode := range []Mode{Shared, Exclusive} {
			held, err := f.Acquire(t.Context(), "w/A", mode, LockOptions{})
			require.NoError(t, err)
			ask(t, f, op, [2]string{"w/A/x", "v"}, verdictNo)
			require.NoError(t, held.Release(t.Context()))

			held = begin(t, f, op, [2]string{"w/A/x", "v"}, verdictYes)
			_, err = f.Acquire(t.Context(), "w/A", mode, LockOptions{})
			require.ErrorIs(t, err, ErrHeld)
			require.NoError(t, held.Release(t.Context()))
		}
	}
}

func TestBeginRejects(t *testing.T) {
	f := newFolders(t)
	for _, c := range []struct {
		op             Operation
		source, target string
	}{
		{OpCreate, "a", "b"}, {OpMoveDir, "a", ""}, {OpMoveDir, "a", "a"}, {OpMoveDir, "a", "a/b"},
		{OpRenameFile, "a", "a/"},
		{OpCopyDir, "/", "a"}, {OpCopyFile, "a", ".."}, {OpDeleteDir, "", ""}, {operations, "a", ""},
	} {
		_, err := f.Begin(t.Context(), c.op, c.source, c.target, LockOptions{})
		require.ErrorIs(t, err, ErrInvalid, c)
	}
	ask(t, f, OpMoveDir, [2]string{"a", "ab"}, verdictYes)
}

func rolesOf(op Operation) role {
	if op.hasTarget() {
		return 2
	}
	return 1
}

// paths returns the paths of an operation: path in role r, and in the other role, if any, a path
// that overlaps no other.
func paths(op Operation, path, apart string, r role) (all [2]string) {
	all[roleSource] = "apart/" + apart + "/source"
	if op.hasTarget() {
		all[roleTarget] = "apart/" + apart + "/target"
	}
	all[r] = path
	return all
}

// begin begins an operation, and requires that it was admitted or rejected as want says. It returns
// nil after a rejection.
func begin(t *testing.T, f *Folders, op Operation, paths [2]string, want verdict) *Lock {
	t.Helper()
	if !op.hasTarget() {
		paths[roleTarget] = ""
	}
	l, err := f.Begin(context.Background(), op, paths[roleSource], paths[roleTarget], LockOptions{})
	if want != verdictNo {
		require.NoError(t, err, "%s %q", op, paths)
		return l
	}
	held := (*HeldError)(nil)
	require.ErrorAs(t, err, &held, "%s %q", op, paths)
	require.Contains(t, held.Key, "w/")
	return nil
}

// ask calls begin, and ends an operation that was admitted.
func ask(t *testing.T, f *Folders, op Operation, paths [2]string, want verdict) {
	t.Helper()
	if l := begin(t, f, op, paths, want); l != nil {
		require.NoError(t, l.Release(context.Background()))
	}
}

// String returns the cell as docs/locks.md shows it: "y", or "A n, B y" if the verdict depends on
// the path of the running operation, or "from A n, to A y" if it also depends on the path of the
// wanted one.
func (c cell) String() string {
	if all := c[roleSource][roleSource]; c == (cell{{all, all}, {all, all}}) {
		return string(all)
	}
	var parts []string
	for r, name := range [...]string{"A", "B"} {
		if from, to := c[r][roleSource], c[r][roleTarget]; from == to {
			parts = append(parts, name+" "+string(from))
		} else {
			parts = append(parts, "from "+name+" "+string(from), "to "+name+" "+string(to))
		}
	}
	return strings.Join(parts, ", ")
}
