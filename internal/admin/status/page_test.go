package status

import (
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/i18n"

	"github.com/stretchr/testify/require"
)

// hostile is a text from outside that tries to inject markup and code.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>'{{.}}`

var hostileText = i18n.Sprintf("%s", hostile)

// fullPage returns a page with content in every section and with hostile texts everywhere.
func fullPage() Page {
	h := NewHistory([]float64{.001, .01})
	for i := range 5 {
		h.Add(steady(10 * i))
	}
	at := steady(47).At
	server := Server{Group: hostile, Address: hostile, State: Warn, Text: hostileText, Latency: time.Millisecond,
		P95:     time.Second,
		Replies: 1234, Error: hostile, ErrorAt: at.Add(-time.Minute)}
	s := Snapshot{
		At: at, Version: hostile, Started: start, Config: hostile, Listen: hostile, NotReady: hostileText, Panics: 2,
		Process: []Fact{{hostileText, hostileText}}, Traffic: h.Traffic(steady(47)),
		Fleet: &Fleet{Redis: hostile, RedisDown: true, Gateways: []Gateway{
			{Name: hostile, Self: true, Live: true, Share: .25, Announcement: Announcement{Version: hostile,
				Started: start.Unix(), Why: hostile, HitRatio: -1, MemoryMax: 100}},
			{Name: hostile, Seen: start, Share: -1}, {Name: hostile, Live: true, Share: -1}}},
		Trackers: []Server{server}, Storages: []Server{server},
		Budgets: []Budget{{Name: hostileText, Used: 5, Max: 10, Note: hostileText},
			{Name: hostileText, Count: true, State: Warn, Text: hostileText}},
		Caching: []Fact{{hostileText, hostileText}},
		Locks: []Lock{{Key: hostile, Since: start}, {Key: hostile, Waiting: true, Holder: hostile, Since: start,
			TTL: time.Second}},
		Coalesced: Coalesced{Segments: 3, Largest: 500, Saved: 1497}, Log: []Entry{{Text: hostile, Detail: hostile,
			Level: slog.LevelError, Count: 2, Last: start}},
		Settings: []Setting{{Name: hostile, Value: hostileText, Doc: hostile}, {Name: "d", Default: true}},
	}
	return Page{Snapshot: s, Asked: hostile, Explanation: hostile, Purge: hostile, Confirm: true,
		Purged: &Result{Warn, hostileText, hostileText}}
}

// TestPageEscapes: texts from outside are escaped everywhere on the page.
func TestPageEscapes(t *testing.T) {
	page, err := Render(fullPage())
	require.NoError(t, err)
	live, err := RenderLive(fullPage().Snapshot, i18n.English)
	require.NoError(t, err)
	require.Contains(t, string(page), string(live), "the page begins with what its script would fetch")
	text := string(page)
	require.Greater(t, strings.Count(text, "&lt;script&gt;alert(1)&lt;/script&gt;"), 30)
	require.Equal(t, 1, strings.Count(text, "<script"), "the page's own")
	require.NotContains(t, text, "<img")
	require.NotContains(t, text, "ZgotmplZ", "a value that html/template rejects")
	require.NotRegexp(t, regexp.MustCompile(`\son[a-z]+=["a-z]`), strings.ReplaceAll(text, "onerror=alert(1)", ""))
	require.NotRegexp(t, regexp.MustCompile(`<[a-z]+[^>]*\sstyle=`), text, "the policy forbids inline styles")
	require.NotContains(t, strings.ReplaceAll(text, "http://www.w3.org/2000/svg", ""), "http://",
		"no request to another place")
	for _, heading := range regexp.MustCompile(`<th[ >][^>]*`).FindAllString(text, -1) {
		require.Contains(t, heading, "scope=")
	}
	require.Contains(t, Policy, "style-src '"+hashOf(pageCSS)+"'")
	require.Contains(t, Policy, "script-src '"+hashOf(pageJS)+"'")
	for _, verbatim := range []string{"<style>" + pageCSS + "</style>", "<script>" + pageJS + "</script>"} {
		require.Contains(t, text, verbatim, "the hash of the policy is that of what is sent")
	}
}

// FuzzParseAbout: the page can show any announcement of another gateway.
func FuzzParseAbout(f *testing.F) {
	p := fullPage()
	f.Add(p.Announcement().JSON())
	f.Add(`{"version":"1","started":-1,"requests":1e308,"hit_ratio":7,"memory_used":5,"memory_max":-1,"state":200}`)
	f.Add("{")
	f.Fuzz(func(t *testing.T, text string) {
		a := ParseAnnouncement(text)
		require.LessOrEqual(t, a.State, Bad)
		page, err := RenderLive(Snapshot{Fleet: &Fleet{Gateways: []Gateway{{Name: "g", Live: true, Announcement: a}}}},
			i18n.English)
		require.NoError(t, err)
		require.NotContains(t, string(page), "NaN")
	})
}

func TestAbout(t *testing.T) {
	p := fullPage()
	p.Version, p.NotReady = "1.2", i18n.Plain("the disk is away")
	p.Budgets = []Budget{{Name: i18n.Plain(MemoryBudget), Used: 1, Max: 2},
		{Name: i18n.Plain(DiskBudget), Used: 3, Max: 4}}
	a := ParseAnnouncement(p.Announcement().JSON())
	require.Equal(t, "1.2", a.Version)
	require.Equal(t, start.Unix(), a.Since().Unix())
	require.Equal(t, []int64{1, 2, 3, 4}, []int64{a.MemoryUsed, a.MemoryMax, a.DiskUsed, a.DiskMax})
	require.InDelta(t, .75, a.HitRatio, 1e-9)
	require.Equal(t, Bad, a.State)
	require.Contains(t, a.Why, "the disk is away")
	require.Contains(t, a.WhyChinese, "无法处理请求")
	require.Equal(t, Announcement{}, ParseAnnouncement(strings.Repeat(" ", maxAnnouncement+1)))
}
