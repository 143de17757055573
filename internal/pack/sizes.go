package pack

// PieceSize is how much of an object Objects asks for at once.
const PieceSize = pieceSize
