package bucket

// Parts is in how many parts an object of n bytes is sent, 0 if it is sent whole.
func Parts(n int64) (parts int64) {
	if n <= firstPart {
		return 0
	}
	for sent := int64(0); sent < n; parts++ {
		sent += int64(partSize(firstPart, sent))
	}
	return parts
}

// Copies is in how many parts a range of n bytes is copied by the server, as long as what is
// written is not so long that all its parts are.
func Copies(n int64) int64 { return (n + copyPart - 1) / copyPart }
