"""How fast something computes: our own steps, those of other libraries for the same work, and turns between them."""
