package fdfs

import "errors"

// Errors about a file, wherever it is asked for: packages above give them the names of their own
// interface, so that one error is the same from a storage's reply to the status of the client.
var (
	// ErrNoFile: there is no such file.
	ErrNoFile = errors.New("no such file")
	// ErrFileChanged: the file is not of the version that was asked for.
	ErrFileChanged = errors.New("file has changed")
	// ErrFileCRC: the content of a whole file does not have the CRC32 of its id.
	ErrFileCRC = errors.New("content does not match the CRC32 of the file id")
)
