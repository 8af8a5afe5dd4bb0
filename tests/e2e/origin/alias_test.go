package origin

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

var fdfsBase64 = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_").
	WithPadding(base64.NoPadding)

// aliasOf returns another id of a packed file, with another source and other random bits: the
// header of the slot contains neither.
func aliasOf(t *testing.T, id fdfs.FileID, source fdfs.Source, random uint32) fdfs.FileID {
	t.Helper()
	raw, err := fdfsBase64.DecodeString(id.Name[:27])
	require.NoError(t, err)
	copy(raw, source[:])
	raw[9], raw[10], raw[11] = byte(random>>16), byte(random>>8), byte(random)
	prefix, _ := strings.CutSuffix(id.String(), id.Name)
	alias, err := fdfs.Parse(prefix + fdfsBase64.EncodeToString(raw) + id.Name[27:])
	require.NoError(t, err)
	require.NotEqual(t, id.String(), alias.String())
	require.Equal(t, id.SlotHeader(), alias.SlotHeader())
	return alias
}

// aliasesOf returns n aliases of a packed file: all with other random bits, some with another
// source, and some without M00/.
func aliasesOf(t *testing.T, id fdfs.FileID, n int) (aliases []fdfs.FileID) {
	t.Helper()
	for i := range n {
		source := id.Source
		if i%3 == 1 {
			source[3]++ // the other storage of the group
		} else if i%3 == 2 {
			source = fdfs.Source{198, 51, 100, byte(i)} // none
		}
		alias := aliasOf(t, id, source, 0x10203*uint32(i+1))
		if i%4 == 3 {
			old, err := fdfs.Parse(strings.Replace(alias.String(), "/M00/", "/", 1))
			require.NoError(t, err)
			alias = old
		}
		aliases = append(aliases, alias)
	}
	return aliases
}

// TestAliasesAreOneFile: the open-file cache and purges treat all ids of a packed file as one file.
func TestAliasesAreOneFile(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	small, large := s.Trunk("jpg", s.Bytes(5000)), s.Trunk("jpg", s.Bytes(300_000))
	p := e2e.Serve(t, s, "[open_file_cache]", "valid = 1h")
	for _, o := range []storetest.Object{small, large} {
		before := p.Metric("fdfs_gateway_file_cache_misses_total")
		for _, alias := range append(aliasesOf(t, o.ID, 20), o.ID, o.ID) {
			a := p.Get(e2e.Path(alias))
			require.Equal(t, 200, a.StatusCode, alias)
			require.Equal(t, o.Content, a.Body)
		}
		require.Equal(t, before+1, p.Metric("fdfs_gateway_file_cache_misses_total"), "its content is checked once")
		s.Free(o)
		purge(t, p, o.ID)
		for _, alias := range append(aliasesOf(t, o.ID, 20), o.ID) {
			require.Equal(t, 404, p.Get(e2e.Path(alias)).StatusCode, alias)
		}
	}
	old := s.Normal("jpg", s.Bytes(5000))
	for _, target := range []string{old.URL(), strings.Replace(old.URL(), "/M00/", "/", 1)} {
		require.Equal(t, old.Content, p.Get(target).Body, target)
	}
}

// purge purges a file from a gateway and its fleet.
func purge(t *testing.T, p *e2e.Process, id fdfs.FileID) {
	t.Helper()
	status, text := p.AdminPost("/purge?id="+id.String(), "")
	require.Equal(t, 200, status, text)
}

// TestAliasesAreFetchedOnce: all ids of a packed file share one cached copy in the fleet, and a
// purge by one id purges all.
func TestAliasesAreFetchedOnce(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2, Disk: true})
	content := e2e.RandomContent(300_000)
	id := e2e.Put(t, f.Cluster, fdfstest.FileSpec{Group: "group1", Kind: fdfs.KindTrunk, Content: content, Ext: "bin",
		Created: e2e.LongAgo})
	aliases := aliasesOf(t, id, 20)
	for _, m := range f.Gateways {
		for _, alias := range append(aliases, id) {
			a := m.Get(e2e.Path(alias))
			require.Equal(t, 200, a.StatusCode, alias)
			require.Equal(t, content, a.Body)
		}
	}
	require.Equal(t, 1, f.Cluster.Downloads(id).Downloads)
	require.EqualValues(t, len(content), f.Cluster.Downloads(id).Bytes)
	f.Settled()
	require.NoError(t, f.Cluster.Remove(id))
	require.Equal(t, content, f.Gateways[1].Get(e2e.Path(aliases[0])).Body, "it is cached")
	purge(t, f.Gateways[0].Process, aliases[7])
	for _, m := range f.Gateways {
		for _, alias := range append(aliases, id) {
			require.Equal(t, 404, m.Get(e2e.Path(alias)).StatusCode, alias)
		}
	}
}

// TestStoragesAreAskedAsRequested: storages receive the id that the client has requested, whichever
// gateway sends the request to them.
func TestStoragesAreAskedAsRequested(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 2})
	f.Cluster.SetExactIDs()
	content := e2e.RandomContent(5000)
	for range 8 { // some owned by each gateway
		id := e2e.Put(t, f.Cluster, fdfstest.FileSpec{Group: "group1", Kind: fdfs.KindTrunk, Content: content,
			Ext:     "bin",
			Created: e2e.LongAgo})
		for _, m := range f.Gateways {
			a := m.Get(e2e.Path(id))
			require.Equal(t, 200, a.StatusCode, "%s: %s", id, a.Body)
			require.Equal(t, content, a.Body)
		}
		require.Equal(t, 1, f.Cluster.Downloads(id).Downloads)
	}
}

// TestAliasWithAnotherSource: the client can choose the source in an id of a packed file. If lists
// name the storages of the group, this source neither selects another host nor decides whether the
// file exists.
func TestAliasWithAnotherSource(t *testing.T) {
	t.Parallel()
	for name, cache := range map[string][]string{"cache": nil, "no cache": e2e.NoCache} {
		t.Run(name, func(t *testing.T) {
			c := e2e.NewCluster(t, fdfstest.Options{})
			content := e2e.RandomContent(300_000)
			a, b := c.Storages()[0], c.Storages()[1]
			id := e2e.Put(t, c, fdfstest.FileSpec{Storage: a, On: []*fdfstest.Storage{a}, Kind: fdfs.KindTrunk,
				Content: content, Ext: "bin", Created: e2e.LongAgo})
			gone := e2e.Put(t, c, fdfstest.FileSpec{Storage: a, Kind: fdfs.KindTrunk, Content: e2e.RandomContent(4000),
				Ext: "bin", Created: e2e.LongAgo})
			require.NoError(t, c.Remove(gone))
			e2e.Silence(t, int(a.AddrPort().Port()), "127.0.0.77") // never replies
			p := e2e.ServeConfig(t, e2e.WriteConfig(t, e2e.EdgeConfig(c, append([]string{
				"[gateway]", "allow_sources = 127.0.0.0/8"}, cache...)...)))
			other := b.AddrPort().Addr().As4()
			sources := []fdfs.Source{other, {127, 0, 0, 77}, {127, 0, 0, 78}, {9, 9, 9, 9}, id.Source}
			for i, source := range sources {
				began := time.Now()
				require.Equal(t, content, p.Get(e2e.Path(aliasOf(t, id, source, uint32(i+7)))).Body, source)
				require.Equal(t, 404, p.Get(e2e.Path(aliasOf(t, gone, source, uint32(i+7)))).StatusCode, source)
				require.Less(t, time.Since(began), e2e.Prompt, source)
			}
			require.Equal(t, content, p.Get(e2e.Path(id)).Body)
		})
	}
}

// TestAliasWithoutLists: if no list names the storages of a group, the gateway has only the source
// in the id. The reply of a source applies only to ids with this source, and a purge by one id
// purges all.
func TestAliasWithoutLists(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{})
	a, b := c.Storages()[0], c.Storages()[1]
	var lines []string
	for line := range strings.Lines(e2e.EdgeConfig(c, "[gateway]", "allow_sources = 127.0.0.0/8")) {
		if !strings.HasPrefix(line, "tracker_server") {
			lines = append(lines, line)
		}
	}
	port := fmt.Sprintf("storage_server_port = %d\n", a.AddrPort().Port())
	p := e2e.ServeConfig(t, e2e.WriteConfig(t, port+strings.Join(lines, "")))
	atB := fdfs.Source(b.AddrPort().Addr().As4())

	content := e2e.RandomContent(300_000)
	id := e2e.Put(t, c, fdfstest.FileSpec{Storage: a, On: []*fdfstest.Storage{a}, Kind: fdfs.KindTrunk,
		Content: content,
		Ext:     "bin", Created: e2e.LongAgo})
	for range 2 {
		require.Equal(t, 404, p.Get(e2e.Path(aliasOf(t, id, atB, 1))).StatusCode)
		require.Equal(t, content, p.Get(e2e.Path(id)).Body, "another source has said that there is none")
		require.Equal(t, content, p.Get(e2e.Path(aliasOf(t, id, id.Source, 2))).Body)
	}
	require.Equal(t, 1, c.Downloads(id).Downloads)

	id = e2e.Put(t, c, fdfstest.FileSpec{Storage: a, Kind: fdfs.KindTrunk, Content: content, Ext: "bin",
		Created: e2e.LongAgo})
	all := []fdfs.FileID{id, aliasOf(t, id, atB, 1), aliasOf(t, id, atB, 2), aliasOf(t, id, id.Source, 3)}
	for _, alias := range all {
		require.Equal(t, content, p.Get(e2e.Path(alias)).Body)
	}
	require.Equal(t, 2, c.Downloads(id).Downloads, "one from each source")
	require.NoError(t, c.Remove(id))
	require.Equal(t, content, p.Get(e2e.Path(all[2])).Body, "it is cached")
	purge(t, p, id)
	for _, alias := range all {
		require.Equal(t, 404, p.Get(e2e.Path(alias)).StatusCode)
	}
}
