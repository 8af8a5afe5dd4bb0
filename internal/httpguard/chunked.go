package httpguard

import "math"

// chunkDecoder finds the end of a chunked body (RFC 9112 section 7.1). It accepts pieces of any
// size and keeps none of them.
//
// A chunked body:
//
//	size [extensions] CR LF    size: hexadecimal digits
//	size bytes        CR LF
//	...
//	"0" [extensions]  CR LF
//	field lines                the trailer section, mostly empty
//	CR LF
//
// No lone CR or LF is accepted, and no blank that the grammar does not have.
type chunkDecoder struct {
	maxBody   int64 // of all chunks together
	maxFields int   // of the trailer section

	state      chunkState
	digits     int   // of the current size
	left       int64 // of the current chunk
	total      int64 // of all chunks so far
	extensions int   // bytes of chunk extensions so far
	trailer    int   // bytes of the trailer section so far
	fields     int   // of the trailer section
}

type chunkState uint8

const (
	atSize     chunkState = iota // before the first digit
	inSize                       // behind a digit
	atSizeLF                     // behind the CR of a size line
	inData                       // left bytes of the chunk to go
	atDataCR                     // behind the chunk
	atDataLF                     // behind the CR behind the chunk
	atTrailer                    // at the start of a trailer line
	inName                       // in the name of a trailer field
	inValue                      // in the value of a trailer field
	atFieldLF                    // behind the CR of a trailer field
	atEndLF                      // behind the CR of the last line
	extAt                        // before the semicolon of an extension
	extName0                     // before the name
	extName                      // in the name
	extNameEnd                   // behind the name
	extValue0                    // before the value
	extValue                     // in a token
	extQuoted                    // in a quoted string
	extEscape                    // behind a backslash in it
	extEnd                       // behind the quoted string
)

// feed takes the next bytes of the body and returns how many of them belong
// to it and whether it is complete.
func (d *chunkDecoder) feed(b []byte) (n int, done bool, err error) {
	for n < len(b) {
		if d.state == inData {
			step := min(d.left, int64(len(b)-n))
			n += int(step)
			if d.left -= step; d.left == 0 {
				d.state = atDataCR
			}
			continue
		}
		ch := b[n]
		n++
		if d.state == atEndLF && ch == '\n' {
			return n, true, nil
		}
		if err := d.step(ch); err != nil {
			return n, false, err
		}
	}
	return n, false, nil
}

// step takes one byte that is not data.
func (d *chunkDecoder) step(ch byte) error {
	switch {
	case d.state <= inSize:
		return d.size(ch)
	case d.state >= extAt:
		return d.extension(ch)
	case d.state >= atTrailer:
		return d.trailerByte(ch)
	case d.state == atDataCR && ch == '\r':
		d.state = atDataLF
		return nil
	case d.state == atDataLF && ch == '\n':
		d.state, d.digits = atSize, 0
		return nil
	case d.state == atSizeLF && ch == '\n':
		d.state = inData
		if d.left == 0 {
			d.state = atTrailer
		}
		return nil
	}
	return badRequest("chunk is not ended by CR LF")
}

// size takes one byte of a chunk size, or the one behind it.
func (d *chunkDecoder) size(ch byte) error {
	if v := unhex(ch); v >= 0 {
		if d.digits++; d.digits > maxSizeDigits {
			return badRequest("chunk size has too many digits")
		}
		if d.left > math.MaxInt64>>4 {
			return errTooLarge()
		}
		d.left = d.left<<4 | int64(v)
		d.state = inSize
		return nil
	}
	if d.state == atSize {
		return badRequest("chunk size is not a hexadecimal number")
	}
	if ch != '\r' && ch != ';' && ch != ' ' && ch != '\t' {
		return badRequest("invalid character behind a chunk size")
	}
	if d.left > d.maxBody-d.total {
		return errTooLarge()
	}
	d.total += d.left
	d.state = extAt
	if ch == '\r' {
		d.state = atSizeLF
		return nil
	}
	return d.extension(ch)
}

// extension takes one byte of the chunk extensions (RFC 9112 section 7.1.1):
//
//	*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )
//
// None is understood, so they are checked and forgotten.
func (d *chunkDecoder) extension(ch byte) error {
	if d.extensions++; d.extensions > maxExtensions {
		return badRequest("chunk extensions are too long")
	}
	next, ok := d.state.afterExtension(ch)
	if !ok {
		return badRequest("malformed chunk extension")
	}
	d.state = next
	return nil
}

// afterExtension returns the state behind the byte ch of an extension.
func (s chunkState) afterExtension(ch byte) (next chunkState, ok bool) {
	if s == extQuoted || s == extEscape {
		return s.afterQuoted(ch)
	}
	switch {
	case ch == ' ' || ch == '\t':
		return s.afterBlank()
	case ch == ';':
		return extName0, s == extAt || s == extName || s == extNameEnd || s == extValue || s == extEnd
	case ch == '=':
		return extValue0, s == extName || s == extNameEnd
	case ch == '"':
		return extQuoted, s == extValue0
	case ch == '\r':
		return atSizeLF, s == extName || s == extValue || s == extEnd
	case s == extName0 || s == extName:
		return extName, isToken[ch]
	case s == extValue0 || s == extValue:
		return extValue, isToken[ch]
	}
	return s, false
}

// afterQuoted is afterExtension within a quoted string (RFC 9110 section
// 5.6.4).
func (s chunkState) afterQuoted(ch byte) (next chunkState, ok bool) {
	switch {
	case ch < ' ' && ch != '\t' || ch == 0x7f:
		return s, false
	case s == extQuoted && ch == '"':
		return extEnd, true
	case s == extQuoted && ch == '\\':
		return extEscape, true
	}
	return extQuoted, true
}

// afterBlank is afterExtension for a blank or tab outside of a quoted string.
func (s chunkState) afterBlank() (next chunkState, ok bool) {
	switch s {
	case extName:
		return extNameEnd, true
	case extValue, extEnd:
		return extAt, true
	}
	return s, true
}

// trailerByte takes one byte of the trailer section. Its fields are checked
// like those of a head and forgotten (RFC 9110 section 6.5.1).
func (d *chunkDecoder) trailerByte(ch byte) error {
	if d.trailer++; d.trailer > maxTrailer {
		return &Error{Status: 431, Reason: "trailer section is too long"}
	}
	switch {
	case d.state == atTrailer && ch == '\r':
		d.state = atEndLF
	case d.state == atTrailer && isToken[ch]:
		if d.fields++; d.fields > d.maxFields {
			return &Error{Status: 431, Reason: "too many trailer fields"}
		}
		d.state = inName
	case d.state == inName && ch == ':':
		d.state = inValue
	case d.state == inName && isToken[ch]:
	case d.state == inValue && ch == '\r':
		d.state = atFieldLF
	case d.state == inValue && (ch >= ' ' || ch == '\t') && ch != 0x7f:
	case d.state == atFieldLF && ch == '\n':
		d.state = atTrailer
	default:
		return badRequest("malformed trailer section")
	}
	return nil
}
