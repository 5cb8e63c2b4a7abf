"""A device beside the reference, layer by layer and operator by operator of one training step."""
