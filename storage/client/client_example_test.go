package client_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/tests/fdfstest"
)

// One storage is down; the file comes from the other.
func ExampleClient() {
	cluster, err := fdfstest.Start(fdfstest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	id, err := cluster.Put(fdfstest.FileSpec{Storage: cluster.Storage(0), Content: []byte("hello, world\n")})
	if err != nil {
		log.Fatal(err)
	}
	var servers []client.Server
	for _, s := range cluster.Storages()[:2] {
		servers = append(servers, client.Server{Host: s.AddrPort().Addr().String(), Port: int(s.AddrPort().Port())})
	}
	cluster.Storage(0).Kill()

	c := client.New(client.Options{})
	defer c.Close()
	ctx := context.Background()
	info, err := c.Stat(ctx, client.FetchRequest{ID: id}, servers)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("bytes:", info.Size)
	stream, err := c.Open(ctx, client.FetchRequest{ID: id}, info, 0, info.Size, servers)
	if err != nil {
		log.Fatal(err) // no byte was sent: this can still be a 502
	}
	defer stream.Close()
	if _, err := io.Copy(os.Stdout, stream); err != nil {
		log.Fatal(err) // bytes are missing
	}
	var states []client.State
	for _, h := range c.Health() {
		states = append(states, h.State)
	}
	fmt.Println(states)
	// Output:
	// bytes: 13
	// hello, world
	// [suspect healthy]
}
