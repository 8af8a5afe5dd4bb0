package fleet

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/variant/picture"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/stampede"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// photo returns a JPEG that differs at each call.
func photo(t testing.TB, width, height int) []byte {
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	seed := rand.Uint32()
	for y := range height {
		for x := range width {
			m.SetRGBA(x, y, color.RGBA{uint8(x + int(seed)), uint8(y), uint8((x * y) >> 6), 255})
		}
	}
	var b bytes.Buffer
	require.NoError(t, jpeg.Encode(&b, m, nil))
	return b.Bytes()
}

// sizeOf decodes a picture.
func sizeOf(t *testing.T, body []byte) (image.Point, string) {
	t.Helper()
	m, format, err := image.Decode(bytes.NewReader(body))
	require.NoError(t, err)
	return m.Bounds().Size(), format
}

const images = "[image]\nsizes = 200x200, 800x0, 1500x1500\npreset.thumb = w=100,h=100,fit=cover\n" +
	"forms = query, width, suffix, infix, bang\non_error = 422\n"

// TestImageStampede: 500 clients ask for one variant of a file over three gateways, which know
// neither: the file is downloaded once, the variant is made once, and all clients get the same
// bytes. A purge of the file removes its variants on all gateways.
func TestImageStampede(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 3, Storages: 1, Disk: true, Lines: []string{images}})
	file := photo(t, 2000, 1500)
	id := e2e.Put(t, f.Cluster, fdfstest.FileSpec{Group: "group1", Content: file, Ext: "jpg", Created: e2e.LongAgo})
	variant := func(m *e2e.Member) string { return "http://" + m.Addrs[0] + e2e.Path(id) + "?w=200&h=200" }
	var urls []string
	for _, m := range f.Gateways {
		urls = append(urls, variant(m))
	}
	want, err := picture.Make(t.Context(), file, picture.Spec{Width: 200, Height: 200, Quality: 85}, picture.Limits{})
	require.NoError(t, err)
	began := time.Now()
	r := stampede.Run(stampede.Options{Clients: 500, URLs: urls, Want: want})
	t.Logf("500 clients: first byte p99 %v, whole %v, in %v", r.FirstByte(0.99), r.Whole(1), time.Since(began))
	e2e.RequireWhole(t, r)
	require.Equal(t, 1.0, f.Metric(`fdfs_gateway_variants_made_total`))
	require.Equal(t, 1, f.Cluster.Downloads(id).Downloads)
	t.Logf("making it took %.3f s", f.Metric(`fdfs_gateway_variants_seconds_total`))
	other := f.Gateways[0].Get(e2e.Path(id) + "?w=800&h=0")
	require.Equal(t, http.StatusOK, other.StatusCode)
	size, format := sizeOf(t, other.Body)
	require.Equal(t, image.Pt(800, 600), size)
	require.Equal(t, "jpeg", format)
	require.Equal(t, 2.0, f.Metric(`fdfs_gateway_variants_made_total`))
	require.Equal(t, 1, f.Cluster.Downloads(id).Downloads)

	before := f.Gateways[1].Get(e2e.Path(id) + "?w=200&h=200")
	for _, m := range f.Gateways {
		again := m.Get(e2e.Path(id) + "?w=200&h=200")
		require.Equal(t, before.Body, again.Body)
		require.Equal(t, before.Header.Get("ETag"), again.Header.Get("ETag"))
	}
	status, text := f.Gateways[2].AdminPost("/purge?id="+id.String(), "")
	require.Equal(t, http.StatusOK, status, text)
	require.Equal(t, http.StatusOK, f.Gateways[1].Get(e2e.Path(id)+"?w=200&h=200").StatusCode)
	require.Equal(t, 3.0, f.Metric(`fdfs_gateway_variants_made_total`), "the purge has removed the variants")
	require.Equal(t, 2, f.Cluster.Downloads(id).Downloads)
}

// TestImageRestart: after a restart of all gateways, the variants on their disks are served, and
// none is made again. A purge of the file removes them, on every gateway.
func TestImageRestart(t *testing.T) {
	t.Parallel()
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 3, Storages: 1, Disk: true, Cache: []string{"copies = 2"},
		Lines: []string{images}})
	const made = `fdfs_gateway_variants_made_total`
	content := map[string][]byte{} // by URL
	var ids []fdfs.FileID
	for i := range 3 {
		spec := fdfstest.FileSpec{Group: "group1", Content: photo(t, 600, 500+i), Ext: "jpg", Created: e2e.LongAgo}
		ids = append(ids, e2e.Put(t, f.Cluster, spec))
		content[e2e.Path(ids[i])+"?w=200&h=200"] = nil
	}
	requireSame := func() {
		t.Helper()
		for url, want := range content {
			for _, m := range f.Gateways {
				r := m.Get(url)
				require.Equal(t, http.StatusOK, r.StatusCode, url)
				require.True(t, want == nil || bytes.Equal(want, r.Body))
				want = r.Body
			}
			content[url] = want
		}
	}
	requireSame()
	require.EqualValues(t, 3, f.Metric(made))
	variants := func() (n int) {
		for _, m := range f.Gateways {
			for _, file := range m.SegmentFiles(t) {
				if strings.Contains(file, "w200-h200-") {
					n++
				}
			}
		}
		return n
	}
	eventually.True(t, func() bool { return variants() >= 2*3 })
	restart := func() {
		for _, m := range f.Gateways {
			m.Gateway.Stop()
		}
		for _, m := range f.Gateways {
			m.Start(t)
		}
		f.Met()
	}
	restart()
	requireSame()
	require.Zero(t, f.Metric(made), "the variants are on the disks")
	restart() // now no gateway has heard of them
	for _, id := range ids {
		status, text := f.Gateways[0].AdminPost("/purge?id="+id.String(), "")
		require.Equal(t, http.StatusOK, status, text)
	}
	eventually.True(t, func() bool { return variants() == 0 })
	requireSame()
	require.EqualValues(t, 3, f.Metric(made), "the purge has removed the variants")
}

// TestImageForms: variants of files of this host by every form of URL, with ranges, conditions,
// HEAD, and the rules for sizes and signatures. A slave of the requested name has priority.
func TestImageForms(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	content := photo(t, 1000, 500)
	file := s.Normal("jpg", content)
	slave := s.Slave(file, "_800x0", "jpg", []byte("a slave"))
	text, film := s.Normal("jpg", []byte("no picture")), s.Normal("webm", []byte("a film"))
	p := e2e.Serve(t, s, append(e2e.TokenKeys("http.anti_steal.check_token = false"), images)...)
	url, stem := file.URL(), file.URL()[:len(file.URL())-4]
	for target, want := range map[string]image.Point{
		url + "?w=200&h=200":            {200, 100},
		url + "?w=200&h=200&fit=cover":  {200, 200},
		url + "?w=200&h=200&fit=fill":   {200, 200},
		url + "?width=200&height=200":   {200, 100},
		url + "?p=thumb":                {100, 100},
		url + "_200x200.jpg":            {200, 100},
		stem + "_200x200.jpg":           {200, 100},
		url + "!200x200":                {200, 100},
		url + "!thumb":                  {100, 100},
		url + "?w=200&h=200&format=png": {200, 100},
		url + "_200x200.png":            {200, 100},
		url + "?w=800":                  {800, 400},
	} {
		r := p.Get(target)
		require.Equal(t, http.StatusOK, r.StatusCode, target)
		size, format := sizeOf(t, r.Body)
		require.Equal(t, want, size, target)
		require.Equal(t, "image/"+format, r.Header.Get("Content-Type"), target)
	}
	for target, status := range map[string]int{
		url + "?w=201&h=200": 404, url + "?p=other": 404, url + "?w=x": 400, url + "?w=200&h=200&fit=x": 400,
		url + "_201x200.jpg": 404, url + "!other": 400, text.URL() + "?w=200&h=200": 422,
		s.Missing("jpg", e2e.LongAgo).URL() + "?w=200&h=200": 404, film.URL() + "?q=720&p=2&w=9": 200,
	} {
		require.Equal(t, status, p.Get(target).StatusCode, target)
	}
	p.Logged("preset.NAME")
	require.Equal(t, []byte("a slave"), p.Get(slave.URL()).Body)
	require.Equal(t, content, p.Get(url).Body)

	whole := p.Get(url + "?w=200&h=200")
	tag := whole.Header.Get("ETag")
	require.NotEqual(t, tag, p.Get(url).Header.Get("ETag"))
	require.Equal(t, 304, p.Get(url+"?w=200&h=200", "If-None-Match: "+tag).StatusCode)
	part := p.Get(url+"?w=200&h=200", "Range: bytes=10-19")
	require.Equal(t, 206, part.StatusCode)
	require.Equal(t, whole.Body[10:20], part.Body)
	head := p.Do("HEAD", url+"?w=200&h=200")
	require.EqualValues(t, len(whole.Body), head.ContentLength)

	webp := p.Get(url+"?w=200&h=200&format=auto", "Accept: image/webp,*/*")
	require.Equal(t, "image/webp", webp.Header.Get("Content-Type"))
	require.Equal(t, "Accept", webp.Header.Get("Vary"))
	require.Equal(t, "image/jpeg", p.Get(url+"?w=200&h=200&format=auto").Header.Get("Content-Type"))

	var clear bytes.Buffer // too large for lossless WebP
	require.NoError(t, png.Encode(&clear, image.NewNRGBA(image.Rect(0, 0, 1500, 1500))))
	large := s.Normal("png", clear.Bytes()).URL() + "?w=1500&h=1500&format="
	require.Equal(t, 422, p.Get(large+"webp").StatusCode)
	for range 2 {
		r := p.Get(large+"auto", "Accept: image/webp")
		require.Equal(t, "image/png", r.Header.Get("Content-Type"))
		require.Equal(t, "Accept", r.Header.Get("Vary"))
	}

	signed := e2e.RunOK(t, "token", "-c", p.Conf, "-image", "w=123,h=77,fit=fill", file.ID.String())
	query, _, _ := strings.Cut(signed, "\n")
	size, _ := sizeOf(t, p.Get(url+"?"+query).Body)
	require.Equal(t, image.Pt(123, 77), size)
	require.Equal(t, 404, p.Get(url+"?"+strings.Replace(query, "w=123", "w=124", 1)).StatusCode)

	signed = e2e.RunOK(t, "token", "-c", p.Conf, "-image", "w=123,h=77", file.ID.String())
	query, _, _ = strings.Cut(signed, "\n")
	_, signature, _ := strings.Cut(query, "&sig=")
	for _, target := range []string{"?width=123&height=77&", "_123x77.jpg?", "!123x77?"} {
		require.Equal(t, 200, p.Get(url+target+"sig="+signature).StatusCode, target)
		require.Equal(t, 404, p.Get(url+target+"sig=x").StatusCode, target)
	}
	require.Equal(t, 200, p.Get(stem+"_123x77.jpg?sig="+signature).StatusCode)
}

// TestImageDenied: the rules of a file hold for its variants, also in links with another extension.
func TestImageDenied(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	closed, open := s.Normal("jpg", photo(t, 300, 300)).URL(), s.Normal("jpeg", photo(t, 300, 300)).URL()
	p := e2e.Serve(t, s, images, "[access jpg]\ndeny = 0.0.0.0/0, ::/0, unix:\n")
	for target, status := range map[string]int{
		closed: 403, closed + "_200x200.jpg": 403, closed + "_200x200.png": 403, closed + "?p=thumb": 403,
		closed + "!thumb": 403, open + "_200x200.png": 200, open + "_200x200.jpg": 403,
	} {
		require.Equal(t, status, p.Get(target).StatusCode, target)
	}
}

// TestImageExplained: explain names the variant that is sent, and its place in the cache. The cache
// also keeps that no picture can be made of a file: the next request does not try again.
func TestImageExplained(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	file, text := s.Normal("jpg", photo(t, 1000, 500)), s.Normal("jpg", []byte("no picture"))
	p := e2e.Serve(t, s, images)
	explained := func(target string) string {
		_, text := p.AdminGet("/explain?url=" + url.QueryEscape(target))
		lines := strings.Split(strings.TrimSpace(text), "\n")
		return strings.Join(strings.Fields(lines[len(lines)-1]), " ")
	}
	const sent = "response 200: the picture v1-w200-h200-scale-down-q85-jpeg, image/jpeg"
	target, broken := file.URL()+"?w=200&h=200", text.URL()+"?w=200&h=200"
	require.Equal(t, sent+": it is made, or read from the gateway that owns it", explained(target))
	size := len(p.Get(target).Body)
	require.Equal(t, fmt.Sprintf("%s, %d bytes: it is in the cache of this gateway", sent, size), explained(target))
	require.Equal(t, "response 404: file not found", explained(file.URL()+"?w=201"))
	for range 3 {
		require.Equal(t, 422, p.Get(broken).StatusCode)
	}
	require.Equal(t, "response 422: no picture can be made of the file", explained(broken))
	_, metrics := p.AdminGet("/metrics")
	require.Contains(t, metrics, `gateway_variants_failed_total 1`)
}

// TestImageReplaced: variants of a file of this host are those of its present content. A size in a
// form that is off is rejected.
func TestImageReplaced(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	master := s.Normal("jpg", photo(t, 100, 100))
	slave := s.Slave(master, "_big", "jpg", photo(t, 400, 200))
	p := e2e.Serve(t, s, strings.Replace(images, "width, ", "", 1), "[open_file_cache]", "valid = 0")
	require.Equal(t, 404, p.Get(slave.URL()+"?width=200&height=200").StatusCode)
	p.Logged("forms does not contain width")
	size, _ := sizeOf(t, p.Get(slave.URL()+"?w=200&h=200").Body)
	require.Equal(t, image.Pt(200, 100), size)
	path := s.Root("group1", 0) + "/data/" + slave.ID.TrueName()
	require.NoError(t, os.WriteFile(path, photo(t, 200, 400), 0o600))
	later := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(path, later, later))
	eventually.True(t, func() bool {
		size, _ := sizeOf(t, p.Get(slave.URL()+"?w=200&h=200").Body)
		return size == image.Pt(100, 200)
	})
	require.NoError(t, os.Remove(path))
	eventually.True(t, func() bool { return p.Get(slave.URL()+"?w=200&h=200").StatusCode == 404 })
}

// TestImageReload: a picture above a limit is made soon after a reload raises the limit. Where it
// depends on the Accept field, the one line of Vary says so, beside what other options add.
func TestImageReload(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	const small = images + "source_max = 1KB\n"
	target := s.Normal("jpg", photo(t, 400, 200)).URL() + "?w=200&h=200&format=auto"
	p := e2e.Serve(t, s, "[gateway]", "cors_origin = https://a.example, https://b.example", small,
		"[headers jpg]\nVary = X-Device")
	require.Equal(t, 422, p.Get(target, "Accept: image/webp").StatusCode)
	text, err := os.ReadFile(p.Conf)
	require.NoError(t, err)
	text = bytes.Replace(text, []byte(small), []byte(images), 1)
	require.NoError(t, os.WriteFile(p.Conf, text, 0o600))
	p.RequireReload(200)
	var r e2e.Response
	eventually.True(t, func() bool {
		r = p.Get(target, "Accept: image/webp")
		return r.StatusCode == 200
	})
	require.Equal(t, []string{"Origin, X-Device, Accept"}, r.Header.Values("Vary"))
	date := r.Header.Get("Last-Modified")
	part := p.Get(target, "Accept: image/webp", "Range: bytes=5-9", "If-Range: "+date)
	require.Equal(t, 200, part.StatusCode, "with other settings, another picture has this date")
}
