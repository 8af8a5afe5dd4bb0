package tests

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

var fdfsBase64 = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_").
	WithPadding(base64.NoPadding)

// aliasOf is another id of a packed file: its slot has neither the source nor the random bits.
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

// aliasesOf are n of them: other bits, other sources, and some without M00/.
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

// TestAliasesAreOneFile: all ids of a packed file are one file for the open-file cache and for
// purges.
func TestAliasesAreOneFile(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	small, large := s.Trunk("jpg", s.Bytes(5000)), s.Trunk("jpg", s.Bytes(300_000))
	p := serve(t, s, "[open_file_cache]", "valid = 1h")
	for _, o := range []storetest.Object{small, large} {
		before := p.metric("fdfs_gateway_file_cache_misses_total")
		for _, alias := range append(aliasesOf(t, o.ID, 20), o.ID, o.ID) {
			a := p.get(url(alias))
			require.Equal(t, 200, a.StatusCode, alias)
			require.Equal(t, o.Content, a.body)
		}
		require.Equal(t, before+1, p.metric("fdfs_gateway_file_cache_misses_total"), "its content is checked once")
		s.Free(o)
		purge(t, p, o.ID)
		for _, alias := range append(aliasesOf(t, o.ID, 20), o.ID) {
			require.Equal(t, 404, p.get(url(alias)).StatusCode, alias)
		}
	}
	old := s.Normal("jpg", s.Bytes(5000))
	for _, target := range []string{old.URL(), strings.Replace(old.URL(), "/M00/", "/", 1)} {
		require.Equal(t, old.Content, p.get(target).body, target)
	}
}

// purge lets a gateway and its fleet forget a file.
func purge(t *testing.T, p *process, id fdfs.FileID) {
	t.Helper()
	resp, err := http.Post("http://"+p.admin+"/purge?id="+id.String(), "", nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 200, resp.StatusCode)
}

// TestAliasesAreFetchedOnce: all ids of a packed file share what a fleet has cached of it, and a
// purge by one of them is a purge of all.
func TestAliasesAreFetchedOnce(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{gateways: 2, disk: true})
	content := randomContent(300_000)
	id := put(t, f.cluster, fdfstest.FileSpec{Group: "group1", Kind: fdfs.KindTrunk, Content: content, Ext: "bin",
		Created: longAgo})
	aliases := aliasesOf(t, id, 20)
	for _, m := range f.gateways {
		for _, alias := range append(aliases, id) {
			a := m.get(url(alias))
			require.Equal(t, 200, a.StatusCode, alias)
			require.Equal(t, content, a.body)
		}
	}
	require.Equal(t, 1, f.cluster.Downloads(id).Downloads)
	require.EqualValues(t, len(content), f.cluster.Downloads(id).Bytes)
	f.settled()
	require.NoError(t, f.cluster.Remove(id))
	require.Equal(t, content, f.gateways[1].get(url(aliases[0])).body, "it is cached")
	purge(t, f.gateways[0].process, aliases[7])
	for _, m := range f.gateways {
		for _, alias := range append(aliases, id) {
			require.Equal(t, 404, m.get(url(alias)).StatusCode, alias)
		}
	}
}

// TestStoragesAreAskedAsRequested: storages get the id that the client has requested, whichever
// gateway asks them.
func TestStoragesAreAskedAsRequested(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{gateways: 2})
	f.cluster.SetExactIDs()
	content := randomContent(5000)
	for range 8 { // owned by either
		id := put(t, f.cluster, fdfstest.FileSpec{Group: "group1", Kind: fdfs.KindTrunk, Content: content, Ext: "bin",
			Created: longAgo})
		for _, m := range f.gateways {
			a := m.get(url(id))
			require.Equal(t, 200, a.StatusCode, "%s: %s", id, a.body)
			require.Equal(t, content, a.body)
		}
		require.Equal(t, 1, f.cluster.Downloads(id).Downloads)
	}
}

// TestAliasesOfAFolder: a purge of a folder reaches all ids of the files in it.
func TestAliasesOfAFolder(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetOptions{gateways: 1, noRedis: true})
	m, content := f.gateways[0], randomContent(5000)
	id := put(t, f.cluster, fdfstest.FileSpec{Group: "group1", Kind: fdfs.KindTrunk, Content: content, Ext: "bin",
		Created: longAgo})
	aliases := aliasesOf(t, id, 8)
	for _, alias := range aliases {
		require.Equal(t, content, m.get(url(alias)).body)
	}
	require.NoError(t, f.cluster.Remove(id))
	folder := id.String()[:len("group1/M00/00")]
	resp, err := http.Post("http://"+m.admin+"/purge?prefix="+folder, "", nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 200, resp.StatusCode)
	for _, alias := range aliases {
		require.Equal(t, 404, m.get(url(alias)).StatusCode, alias)
	}
}

// TestAliasWithAnotherSource: the source in an id of a packed file is the client's claim. Where
// lists name the storages of the group, it does not choose another host, nor does it decide whether
// there is such a file.
func TestAliasWithAnotherSource(t *testing.T) {
	t.Parallel()
	for name, cache := range map[string][]string{"cache": nil, "no cache": noCache} {
		t.Run(name, func(t *testing.T) {
			c := cluster(t, fdfstest.Options{})
			content := randomContent(300_000)
			a, b := c.Storages()[0], c.Storages()[1]
			id := put(t, c, fdfstest.FileSpec{Storage: a, On: []*fdfstest.Storage{a}, Kind: fdfs.KindTrunk,
				Content: content, Ext: "bin", Created: longAgo})
			gone := put(t, c, fdfstest.FileSpec{Storage: a, Kind: fdfs.KindTrunk, Content: randomContent(4000),
				Ext: "bin", Created: longAgo})
			require.NoError(t, c.Remove(gone))
			silence(t, int(a.AddrPort().Port()), "127.0.0.77") // never answers
			p := serveConfig(t, writeConfig(t, edgeConfig(c, append([]string{
				"[gateway]", "allow_sources = 127.0.0.0/8"}, cache...)...)))
			other := b.AddrPort().Addr().As4()
			sources := []fdfs.Source{other, {127, 0, 0, 77}, {127, 0, 0, 78}, {9, 9, 9, 9}, id.Source}
			for i, source := range sources {
				began := time.Now()
				require.Equal(t, content, p.get(url(aliasOf(t, id, source, uint32(i+7)))).body, source)
				require.Equal(t, 404, p.get(url(aliasOf(t, gone, source, uint32(i+7)))).StatusCode, source)
				require.Less(t, time.Since(began), prompt, source)
			}
			require.Equal(t, content, p.get(url(id)).body)
		})
	}
}

// TestAliasWithoutLists: where no list names the storages of a group, the source in the id is all
// there is. What it says holds for ids with this source, and a purge is for all of them.
func TestAliasWithoutLists(t *testing.T) {
	t.Parallel()
	c := cluster(t, fdfstest.Options{})
	a, b := c.Storages()[0], c.Storages()[1]
	var lines []string
	for line := range strings.Lines(edgeConfig(c, "[gateway]", "allow_sources = 127.0.0.0/8")) {
		if !strings.HasPrefix(line, "tracker_server") {
			lines = append(lines, line)
		}
	}
	port := fmt.Sprintf("storage_server_port = %d\n", a.AddrPort().Port())
	p := serveConfig(t, writeConfig(t, port+strings.Join(lines, "")))
	atB := fdfs.Source(b.AddrPort().Addr().As4())

	content := randomContent(300_000)
	id := put(t, c, fdfstest.FileSpec{Storage: a, On: []*fdfstest.Storage{a}, Kind: fdfs.KindTrunk, Content: content,
		Ext: "bin", Created: longAgo})
	for range 2 {
		require.Equal(t, 404, p.get(url(aliasOf(t, id, atB, 1))).StatusCode)
		require.Equal(t, content, p.get(url(id)).body, "another source has said that there is none")
		require.Equal(t, content, p.get(url(aliasOf(t, id, id.Source, 2))).body)
	}
	require.Equal(t, 1, c.Downloads(id).Downloads)

	id = put(t, c, fdfstest.FileSpec{Storage: a, Kind: fdfs.KindTrunk, Content: content, Ext: "bin", Created: longAgo})
	all := []fdfs.FileID{id, aliasOf(t, id, atB, 1), aliasOf(t, id, atB, 2), aliasOf(t, id, id.Source, 3)}
	for _, alias := range all {
		require.Equal(t, content, p.get(url(alias)).body)
	}
	require.Equal(t, 2, c.Downloads(id).Downloads, "one from each source")
	require.NoError(t, c.Remove(id))
	require.Equal(t, content, p.get(url(all[2])).body, "it is cached")
	purge(t, p, id)
	for _, alias := range all {
		require.Equal(t, 404, p.get(url(alias)).StatusCode)
	}
}
