package gateway_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"fastdfs-gateway/internal/gateway"
	"fastdfs-gateway/internal/httpserver"
	"fastdfs-gateway/internal/tools/demo"
	"fastdfs-gateway/storage/local"
)

// A server with the store of the demonstration.
func ExampleNewHandler() {
	dir, _ := os.MkdirTemp("", "store")
	defer os.RemoveAll(dir)
	files, err := demo.Write(dir, time.Now(), demo.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	store, err := local.Open(local.Options{Groups: []local.GroupPaths{
		{Name: demo.Group, StorePaths: files.StorePaths}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	h := gateway.NewHandler(gateway.Options{Store: store, GroupInURL: true})
	s := httpserver.New(httpserver.Options{ReadTimeout: 10 * time.Second}, h)
	defer s.Shutdown(context.Background())
	listener, _ := net.Listen("tcp", "127.0.0.1:0")
	go func() { _ = s.Serve(listener, nil) }()

	resp, err := http.Get("http://" + listener.Addr().String() + "/" + files.Files[0].ID.String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, resp.ContentLength == files.Files[0].Size)
	// Output: 200 true
}
