package mount

// Shown is what an entry is called in a folder.
var Shown = shown
