// Package docs checks the documents: their commands, configurations and the tests that they name.
// It also writes the sections that programs compute. A section stands between two marks:
//
//	<!-- figures: written by make bench -->
//	<!-- end of figures -->
package docs

import (
	"bytes"
	"fmt"
	"os"
)

// ReplaceSection puts text between the two marks of a section that the command writes. A missing
// mark is an error.
func ReplaceSection(document []byte, command, section, text string) ([]byte, error) {
	begin := fmt.Sprintf("<!-- %s: written by %s -->\n", section, command)
	end := fmt.Sprintf("<!-- end of %s -->\n", section)
	before, rest, found := bytes.Cut(document, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		return nil, fmt.Errorf("cannot write section %q: its marks %q and %q are missing", section, begin, end)
	}
	return bytes.Join([][]byte{before, []byte(begin), []byte("\n" + text + "\n"), []byte(end), after}, nil), nil
}

// WriteSection replaces a section of a file.
func WriteSection(path, command, section, text string) error {
	document, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if document, err = ReplaceSection(document, command, section, text); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, document, 0o644)
}
