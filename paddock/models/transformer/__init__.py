"""What the transformer families share: sizes and costs, the tensor plan of a block, Hugging Face's names."""
