"""The audit over published releases; `nox -s audit` fetches their sources."""
