package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/gateway"
	"fastdfs-gateway/internal/httpserver"
	"fastdfs-gateway/internal/tools/demo/storewriter"
	"fastdfs-gateway/storage/local"
)

// One file of a store, by HTTP.
func ExampleNewHandler() {
	path, err := os.MkdirTemp("", "store")
	must(err)
	defer os.RemoveAll(path)
	w := storewriter.Writer{Root: func(string, int) string { return path }, Created: time.Unix(1.7e9, 0)}
	id, err := w.Put(w.Fields(fdfs.KindNormal, "txt", []byte("content")), []byte("content"))
	must(err)
	store, err := local.Open(local.Options{Groups: []local.GroupPaths{{Name: "group1", StorePaths: []string{path}}}})
	must(err)
	defer store.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)

	types := map[string]string{"txt": "text/plain"}
	h := gateway.NewHandler(gateway.Options{Store: store, GroupInURL: true, Types: types})
	s := httpserver.New(httpserver.Options{ReadTimeout: 10 * time.Second}, h)
	go func() { must(s.Serve(listener, nil)) }()

	resp, err := http.Get("http://" + listener.Addr().String() + "/" + id.String())
	must(err)
	content, err := io.ReadAll(resp.Body)
	must(err)
	must(resp.Body.Close())
	http.DefaultClient.CloseIdleConnections()
	must(s.Shutdown(context.Background()))
	fmt.Println(resp.Status, resp.Header.Get("Content-Type"), string(content))
	// Output:
	// 200 OK text/plain content
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
