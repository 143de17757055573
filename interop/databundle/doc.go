// Package databundle lets readers other than ours read the bundles that we write.
// It is tests only; nothing can be imported from here.
package databundle
