package sendfile_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/httpserver/sendfile"
)

// openFile is a content.File of an open file.
type openFile struct{ *os.File }

func (f openFile) At(offset, limit int64) (content.Chunk, error) {
	return content.Chunk{File: f.File, Offset: offset, Length: limit}, nil
}

// A body of two parts of a file: with heads in front of them it would be a response to two ranges.
func ExampleBody() {
	server, client, err := connected()
	if err != nil {
		panic(err)
	}
	defer client.Close()
	file, err := os.CreateTemp("", "body")
	if err != nil {
		panic(err)
	}
	defer os.Remove(file.Name())
	if _, err := file.WriteString("bytes of a file"); err != nil {
		panic(err)
	}

	conn, err := sendfile.NewConn(server, sendfile.Pace{MinRate: 1024, Window: 30 * time.Second})
	if err != nil {
		panic(err)
	}
	body := &sendfile.Body{Conn: conn, Direct: true, File: openFile{file},
		Pieces: []sendfile.Piece{{Offset: 0, Length: 6}, {Offset: 11, Length: 4}},
		Done:   func(r sendfile.Result) { fmt.Println("sent:", r.Sent, r.Err) }}
	fmt.Println("length:", body.Length())
	_, _ = body.WriteTo(conn) // Done has the error
	body.Close()
	_ = conn.Close()

	received, err := io.ReadAll(client)
	fmt.Printf("received: %s %v\n", received, err)
	// Output:
	// length: 10
	// sent: 10 <nil>
	// received: bytes file <nil>
}

// connected returns both ends of a connection.
func connected() (server, client net.Conn, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer ln.Close()
	if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		return nil, nil, err
	}
	server, err = ln.Accept()
	return server, client, err
}
