"""Items drawn of each gallery identity: single gallery shot, and the mean over all draws."""
