package pack

// PieceSize is the most bytes of an object that Objects requests at once.
const PieceSize = pieceSize

// LeastCopy is the least length of an object that a store is requested to copy.
const LeastCopy = 5 << 20
