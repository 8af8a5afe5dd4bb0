package logtemplate

import "unicode/utf8"

const upperHex = "0123456789ABCDEF"

// AppendSafe appends text with quotes, backslashes and bytes outside printable ASCII as \xHH, as
// nginx does: a client cannot forge lines or fields.
func AppendSafe(dst, text []byte) []byte {
	for _, c := range text {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			dst = append(dst, '\\', 'x', upperHex[c>>4], upperHex[c&15])
			continue
		}
		dst = append(dst, c)
	}
	return dst
}

// AppendJSONText appends text for the inside of a JSON string. Bytes that are no UTF-8 become
// U+FFFD. Characters that control a terminal or a viewer are escaped, so that a client cannot forge
// the display.
func AppendJSONText(dst, text []byte) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		text = text[n:]
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case isUnsafe(r):
			dst = append(dst, '\\', 'u', upperHex[r>>12], upperHex[r>>8&15], upperHex[r>>4&15], upperHex[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return dst
}

// isUnsafe reports whether a character is a control (C0, DEL, C1), ends a line or paragraph
// (U+2028, U+2029), or changes the direction of text (bidi). All of these are below U+10000.
func isUnsafe(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069 ||
		r == 0x200e || r == 0x200f || r == 0x061c
}
