package fdfs

import "errors"

// Errors about a file, from any origin. Other packages export them under other names
// (cache.ErrNotFound), so that one error value leads from the reply of a storage to the HTTP
// status.
var (
	// ErrNoFile: there is no such file.
	ErrNoFile = errors.New("no such file")
	// ErrFileChanged: the file is not of the requested version.
	ErrFileChanged = errors.New("file has changed")
	// ErrFileCRC: the content of a whole file does not have the CRC32 of its id.
	ErrFileCRC = errors.New("content does not match the CRC32 of the file id")
)
