package early

// These stand in for strings and strconv, behind which Go would initialize other packages first.

// cut returns the text in front of the first sep, and the text behind it.
func cut(text string, sep byte) (before, after string) {
	for i := range len(text) {
		if text[i] == sep {
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}

// number returns the value of at most nine digits, else -1.
func number(text string) int {
	if text == "" || len(text) > 9 {
		return -1
	}
	n := 0
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return -1
		}
		n = 10*n + int(text[i]-'0')
	}
	return n
}

// decimal returns a number that is not negative as text.
func decimal(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return decimal(n/10) + string(rune('0'+n%10))
}
