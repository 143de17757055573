package content

import "context"

// Known reports whether e's content was compared before, and what was wrong.
func (s *Source) Known(ctx context.Context, e Entry) (bool, error) { return s.known(ctx, e) }
