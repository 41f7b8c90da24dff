"""What was seen, kept so that it can be believed.

This room imports nothing else of the project: it knows pages, bytes and hashes, not operations or ledgers. Import
from its modules (``evidence.capture``, ``evidence.store``, ``evidence.manifest`` …); this file re-exports nothing.
"""
