package pack

// PieceSize is how many bytes Objects requests at most at once.
const PieceSize = pieceSize

// LeastCopy is the least length of an object that a store is requested to copy.
const LeastCopy = 5 << 20
