"""Every call site of one package held against the sources of another, without importing either."""
