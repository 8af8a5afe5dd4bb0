package gateway

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// maxFilename bounds the file name in Content-Disposition, in bytes of UTF-8, as file systems do.
const maxFilename = 255

// appendDisposition appends a Content-Disposition value with the file name (RFC 6266): a quoted
// ASCII form, and for other characters an extended form in UTF-8 (RFC 8187). Characters that could
// end a header, a quoted string or a folder name are dropped or become "_". Without a usable name
// the value is "attachment".
func appendDisposition(dst, name []byte) []byte {
	dst = append(dst, "attachment"...)
	var room [2 * maxFilename]byte
	clean := cleanFilename(room[:0], name)
	if len(clean) == 0 {
		return dst
	}
	plain := true
	dst = append(dst, `; filename="`...)
	for rest := clean; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		rest = rest[n:]
		// "%" is replaced because some browsers decode escapes here (RFC 6266 appendix D).
		if r == '"' || r == '%' || r >= utf8.RuneSelf {
			plain = false
			r = '_'
		}
		dst = append(dst, byte(r))
	}
	dst = append(dst, '"')
	if plain {
		return dst
	}
	dst = append(dst, "; filename*=UTF-8''"...)
	for _, c := range clean {
		if attrChar[c] {
			dst = append(dst, c)
			continue
		}
		dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
	}
	return dst
}

// cleanFilename appends name as valid UTF-8 of at most maxFilename bytes, without control
// characters and path separators.
func cleanFilename(dst, name []byte) []byte {
	for len(name) > 0 {
		r, n := utf8.DecodeRune(name)
		name = name[n:]
		switch {
		// Bidi controls could disguise an extension.
		case r < ' ' || r >= 0x7f && r < 0xa0 || unicode.Is(unicode.Bidi_Control, r):
			continue
		case r == '/' || r == '\\' || r == utf8.RuneError && n == 1:
			r = '_'
		}
		dst = utf8.AppendRune(dst, r)
	}
	dst = bytes.TrimSpace(shorten(bytes.TrimSpace(dst)))
	if len(bytes.Trim(dst, ".")) == 0 { // "." and ".." are no names
		return nil
	}
	return dst
}

// maxExtension bounds the extension that shorten keeps, with its dot. What follows the last dot of
// a sentence may be longer, and is no extension.
const maxExtension = 64

// shorten cuts the stem of a name of more than maxFilename bytes between two characters, and keeps
// the extension. It writes to name.
func shorten(name []byte) []byte {
	if len(name) <= maxFilename {
		return name
	}
	ext := name[len(name):]
	if dot := bytes.LastIndexByte(name, '.'); dot > 0 && len(name)-dot <= maxExtension {
		ext = name[dot:]
	}
	stem := maxFilename - len(ext)
	for !utf8.RuneStart(name[stem]) {
		stem--
	}
	return append(name[:stem], ext...)
}

const upperHex = "0123456789ABCDEF"

// attrChar marks the bytes that RFC 8187 section 3.2.1 does not encode.
var attrChar = func() (table [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$&+-.^_`|~" {
		table[c] = true
	}
	return table
}()
