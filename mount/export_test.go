package mount

// Shown is what an entry is called in a folder.
var Shown = shown

// Opening returns options by which the system says what is opened and closed.
func Opening(o Options) Options { o.opens = true; return o }
