"""What each site needs: the vocabulary of a flow author, and the flows that ship with Interlock."""
