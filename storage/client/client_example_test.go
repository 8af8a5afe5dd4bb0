package client_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/tests/fdfstest"
)

// cluster is two storages of group1 with one file, and where they listen.
func cluster() (c *fdfstest.Cluster, id fdfs.FileID, servers []client.Server) {
	c, err := fdfstest.Start(fdfstest.Options{})
	if err != nil {
		log.Fatal(err)
	}
	id, err = c.Put(fdfstest.FileSpec{Storage: c.Storage(0), Content: []byte("hello, world\n")})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range c.Storages()[:2] {
		servers = append(servers, client.Server{Host: s.AddrPort().Addr().String(), Port: int(s.AddrPort().Port())})
	}
	return c, id, servers
}

// One storage is down; the file comes from the other.
func ExampleClient() {
	cluster, id, servers := cluster()
	defer cluster.Close()
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
	// Output:
	// bytes: 13
	// hello, world
}

func ExampleClient_Health() {
	cluster, id, servers := cluster()
	defer cluster.Close()
	cluster.Storage(0).Kill()
	c := client.New(client.Options{})
	defer c.Close()
	if _, err := c.Stat(context.Background(), client.FetchRequest{ID: id}, servers); err != nil {
		log.Fatal(err)
	}
	var states []string
	for _, h := range c.Health() {
		states = append(states, h.State.String())
	}
	fmt.Println(strings.Join(states, ", "))
	// Output: suspect, healthy
}
