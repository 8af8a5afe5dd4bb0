// Package contenttest reads files for tests.
package contenttest

import (
	"bytes"
	"math/rand/v2"

	"fastdfs-gateway/internal/content"
)

// ReadAll reads a file of size bytes. What it returns with an error is what there was.
func ReadAll(f content.File, size int64) ([]byte, error) {
	var all bytes.Buffer
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

// ReadChunk reads a chunk, wherever it is.
func ReadChunk(chunk content.Chunk) (all []byte, err error) {
	for chunk.Length > 0 && err == nil {
		var n int
		b := make([]byte, chunk.Length)
		n, err = chunk.Load(b)
		all, chunk = append(all, b[:n]...), chunk.Behind(int64(n))
	}
	return all, err
}

// Bytes returns n bytes that look random and differ from offset to offset, the same in every run.
func Bytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	return b
}
