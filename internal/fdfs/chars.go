package fdfs

// alphabet is the base64 alphabet of FastDFS: the standard one with - for + and _ for /.
const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// Bits of class.
const (
	isAlnum    = 1 << iota // [A-Za-z0-9]: group names
	isNameChar             // [A-Za-z0-9._-]: file names
	isHex                  // [0-9A-F]: path index and sub directories
)

// class has the classes of each byte.
var class = func() (t [256]byte) {
	for i := range 256 {
		c := byte(i)
		digit := c >= '0' && c <= '9'
		if digit || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' {
			t[c] |= isAlnum | isNameChar
		}
		if c == '.' || c == '_' || c == '-' {
			t[c] |= isNameChar
		}
		if digit || c >= 'A' && c <= 'F' {
			t[c] |= isHex
		}
	}
	return t
}()

// notBase64 marks bytes outside the alphabet in sextet.
const notBase64 = 0x80

// spareBits are the bits of a third character that belong to no byte.
const spareBits = 3

// sextet has the value of each base64 character, or notBase64.
var sextet = func() (t [256]byte) {
	for i := range t {
		t[i] = notBase64
	}
	for i := range len(alphabet) {
		t[alphabet[i]] = byte(i)
	}
	return t
}()

// decodeBase64 fills dst from s, which has exactly the needed characters (4 for 3 bytes, 3 for a
// last 2). It ignores spareBits.
func decodeBase64(dst []byte, s string) bool {
	var seen byte
	for len(s) >= 4 {
		a, b, c, d := sextet[s[0]], sextet[s[1]], sextet[s[2]], sextet[s[3]]
		seen |= a | b | c | d
		dst[0], dst[1], dst[2] = a<<2|b>>4, b<<4|c>>2, c<<6|d
		dst, s = dst[3:], s[4:]
	}
	if len(s) == 3 {
		a, b, c := sextet[s[0]], sextet[s[1]], sextet[s[2]]
		seen |= a | b | c
		dst[0], dst[1] = a<<2|b>>4, b<<4|c>>2
	}
	return seen&notBase64 == 0
}

// isHexPair reports whether s begins with two upper-case hexadecimal digits.
func isHexPair(s string) bool {
	return len(s) >= 2 && class[s[0]]&class[s[1]]&isHex != 0
}

// hexPair returns the value of the first two characters of s, an isHexPair.
func hexPair(s string) byte {
	return hexDigit(s[0])<<4 | hexDigit(s[1])
}

func hexDigit(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c - 'A' + 10
}
