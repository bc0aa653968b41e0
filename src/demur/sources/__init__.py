"""Where rows come from: files, as columns by name."""
