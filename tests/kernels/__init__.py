"""Every kernel against the numpy executor, in real browsers."""
