"""Two runs that are over, beside each other: what is known of them, whether they can be compared, how far apart they
are, and a page that shows it."""
