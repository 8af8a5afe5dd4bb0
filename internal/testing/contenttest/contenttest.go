// Package contenttest reads files for tests.
package contenttest

import (
	"bytes"
	"math/rand/v2"

	"fastdfs-gateway/internal/content"
)

// ReadAll reads a file of size bytes. With an error it returns the bytes before the error.
func ReadAll(f content.File, size int64) ([]byte, error) {
	var all bytes.Buffer
	all.Grow(int(size))
	for offset := int64(0); offset < size; {
		chunk, err := f.At(offset, size-offset)
		if err != nil {
			return all.Bytes(), err
		}
		b, err := ReadChunk(chunk)
		all.Write(b)
		if err != nil {
			return all.Bytes(), err
		}
		offset += chunk.Length
	}
	return all.Bytes(), nil
}

// ReadChunk reads a chunk in memory, in an open file or in a stream.
func ReadChunk(chunk content.Chunk) (all []byte, err error) {
	all = make([]byte, chunk.Length)
	have := 0
	for chunk.Length > 0 && err == nil {
		var n int
		n, err = chunk.Load(all[have:])
		have, chunk = have+n, chunk.Behind(int64(n))
	}
	return all[:have], err
}

// Bytes returns n pseudo-random bytes, so that the content differs from offset to offset. They are
// the same in every run.
func Bytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	return b
}
