"""A small local publishing site with its own record of what happened and faults that act on the socket.

It is a server to be driven from outside: nothing here may import the executor, the flows or the evidence,
and none of those may import it.
"""

from __future__ import annotations
