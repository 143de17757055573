package bucket

// Parts returns the number of parts in which an object of n bytes is uploaded. It is 0 if the
// object is sent as a whole.
func Parts(n int64) (parts int64) {
	if n <= firstPart {
		return 0
	}
	for sent := int64(0); sent < n; parts++ {
		sent += int64(partSize(firstPart, sent))
	}
	return parts
}

// Copies returns the number of parts in which the server copies a range of n bytes, unless the
// object is so long that its parts must be longer.
func Copies(n int64) int64 { return (n + copyPart - 1) / copyPart }
