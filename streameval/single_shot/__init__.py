"""Single gallery shot: one item is drawn of each gallery identity."""
