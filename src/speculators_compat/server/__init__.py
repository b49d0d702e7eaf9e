"""Hidden states through vLLM's own server: its command for the installed release, and a check of what it wrote.

speculators from 0.5 gets its states from a vLLM server (speculative method ``extract_hidden_states``, a connector that
writes files). What that server can do, and what it needs switched off, differs by release: ``facts`` holds it as data,
``command`` builds the command from it, ``check`` compares files with our own extraction and ``diagnosis`` names what is
wrong in them.
"""
