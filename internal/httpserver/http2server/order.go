package http2server

// order finds updates of the size of the table behind a field of a header block (RFC 7541 section
// 4.2), which hpack.Decoder accepts while the table is empty. It reads the lengths of a block that
// the decoder has accepted, in any number of fragments.
type order struct {
	fields  bool // a field has begun
	strings int  // strings of the field that have not begun
	text    bool // the integer is the length of a string
	more    bool // the integer has further bytes
	shift   uint // position of these in it
	number  int
	skip    int // bytes of a string that are left
}

// check reads a fragment. It returns false if an update is behind a field.
func (o *order) check(p []byte) bool {
	for len(p) > 0 {
		if n := min(o.skip, len(p)); n > 0 {
			o.skip -= n
			p = p[n:]
			continue
		}
		ch := p[0]
		p = p[1:]
		switch {
		case o.more:
			o.number += int(ch&0x7f) << o.shift
			o.shift += 7
			o.more = ch&0x80 != 0
		case o.strings > 0:
			o.strings--
			o.text = true
			o.beginInteger(ch, 7)
		case ch&0xe0 == 0x20:
			if o.fields {
				return false
			}
			o.text = false
			o.beginInteger(ch, 5)
		default:
			o.field(ch)
		}
		if o.text && !o.more {
			o.text, o.skip = false, o.number
		}
	}
	return true
}

// field begins a field (RFC 7541 sections 6.1 and 6.2).
func (o *order) field(ch byte) {
	o.fields, o.text = true, false
	switch {
	case ch&0x80 != 0:
		o.beginInteger(ch, 7)
		return
	case ch&0x40 != 0:
		o.beginInteger(ch, 6)
	default:
		o.beginInteger(ch, 4)
	}
	if o.strings = 1; o.number == 0 { // the name is a string too
		o.strings = 2
	}
}

// beginInteger begins an integer whose first bits are the low ones of a byte (RFC 7541 section
// 5.1).
func (o *order) beginInteger(ch byte, bits uint) {
	limit := byte(1)<<bits - 1
	o.number = int(ch & limit)
	o.more, o.shift = ch&limit == limit, 0
}
