package pack

// PieceSize is how much of an object Objects asks for at once.
const PieceSize = pieceSize

// LeastCopy is how long an object is at least that a store is asked to copy.
const LeastCopy = 5 << 20
